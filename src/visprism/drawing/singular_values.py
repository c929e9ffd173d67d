"""Figures of `SingularValues`, a curve for each block, and of `EffectiveRanks`."""

from typing import Literal

from matplotlib.axes import Axes

from visprism.drawing.depth import against_depth, depth_bar, from_zero, kinds_key
from visprism.drawing.registry import figure
from visprism.drawing.style import DEPTH, tip
from visprism.results.singular_values import EffectiveRanks, SingularValues


@figure(width=2.5, height=2.3, key=depth_bar, key_width=0.75)
def _(
    result: SingularValues, ax: Axes, *, level: Literal["tokens", "images"] = "tokens"
) -> Axes:
    """Singular values over the largest by rank, a curve per block, colored by depth."""
    chosen = result.select(result.level == level)
    for name in dict.fromkeys(chosen.block.tolist()):
        rows = chosen.select((chosen.block == name) & (chosen.relative > 0))
        if not len(rows.rank):
            continue
        ax.plot(
            rows.rank,
            rows.relative,
            color=DEPTH(float(rows.depth[0])),
            linewidth=1.1,
            label=name,
            gid=tip(f"{name} · {rows.kind[0]} · depth {rows.depth[0]:.2f}"),
        )
    ax.set(xscale="log", yscale="log", ylim=(1e-4, 1.3))
    ax.set(xlabel=f"Rank of the singular value ({level})", ylabel="Relative to the largest")
    return ax


@figure(width=2.75, height=2.0, key=kinds_key, key_height=0.25)
def _(
    result: EffectiveRanks,
    ax: Axes,
    *,
    quantity: Literal[
        "token_rank", "image_rank", "token_participation", "image_participation"
    ] = "token_rank",
) -> Axes:
    """Effective rank against depth."""
    against_depth(ax, result, quantity)
    from_zero(ax)
    ax.set_ylabel(result.infos()[quantity].heading)
    return ax

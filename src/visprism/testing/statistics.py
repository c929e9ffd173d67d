"""Laws of feature statistics: what `check_statistic` checks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib.figure
import numpy as np
import torch
from torch import Tensor, nn

from visprism.anatomy import Block, Kind, Layout, dissect
from visprism.core.provenance import Provenance
from visprism.drawing.registry import plot
from visprism.passes.features import FeatureStatistic, Gathered, Seen
from visprism.passes.tokens import Tokens
from visprism.table.result import Result

_IMAGES = 7


def assert_results_equal(a: Result, b: Result, *, rtol: float = 1e-9) -> None:
    """Compare two results column by column, with the ends of intervals; NaN equals NaN."""
    assert type(a) is type(b), f"a {type(a).__name__} and a {type(b).__name__}"
    others = b.columns()
    for name, column in a.columns().items():
        if column.dtype.kind in "fc":
            # 1e-12: a difference of equal sums is 0 only up to rounding.
            atol = 1e-12 if rtol else 0.0
            np.testing.assert_allclose(column, others[name], rtol, atol, err_msg=name)
        else:
            np.testing.assert_array_equal(column, others[name], err_msg=name)


def check_statistic(statistic: FeatureStatistic, folder: Path | str) -> None:
    """Check the laws of feature statistics; `folder` is scratch space.

    1. Cutting the data into other batches changes nothing, nor does spreading it over
       processes, whose parts are joined in the order of the data.
    2. The order of the images changes nothing.
    3. Feature maps are left as they are, and may lie in memory in any order.
    4. A result survives being written and read.
    5. A result can be drawn.

    Raises:
        AssertionError: if one is broken; the message says which.
    """
    generator = torch.Generator().manual_seed(0)
    maps = {
        _block("stem", (3, 8, 8), 0.0): _noise(3, 8, generator),
        _block("attention", (3, 8, 8), 0.5): _noise(3, 8, generator),
        _block("downsample", (5, 4, 4), 1.0): _noise(5, 4, generator),
    }

    anatomy = dissect(nn.Sequential(nn.Conv2d(3, 3, 1)).eval(), torch.zeros(2, 3, 8, 8))

    def results(*batches: Sequence[int], maps: dict[Block, Tensor] = maps) -> Sequence[Result]:
        gathered = Gathered()
        for number, rows in enumerate(batches):
            seen = {b: _seen(statistic, b, x[list(rows)]) for b, x in maps.items()}
            extracts = {block: statistic.extract(x) for block, x in seen.items()}
            gathered.add(statistic.by_image(extracts), statistic.sums(extracts, number, 0))
        image = np.array([i for rows in batches for i in rows])
        by_image, sums = gathered.of_all_processes(image)
        of_maps = replace(anatomy, blocks=tuple(maps))
        seen = Seen(by_image, sums, _IMAGES, of_maps, {}, 0, Provenance(images=_IMAGES))
        return [result.measured(seen.provenance) for result in statistic.results(seen)]

    def check(law: str, others: Sequence[Result]) -> None:
        try:
            for first, second in zip(expected, others, strict=True):
                assert_results_equal(first, second)
        except AssertionError as broken:
            raise AssertionError(f"{law}: {broken}") from broken

    for block, x in maps.items():
        before = x.clone()
        statistic.extract(_seen(statistic, block, x))
        assert torch.equal(x, before), "extract changes the feature map"
    expected = results(range(_IMAGES))
    check("other batches change the result", results([0, 1, 2, 3], [4, 5], [6]))
    shuffled = torch.randperm(_IMAGES, generator=generator).tolist()
    check("the order of images changes the result", results(shuffled))
    last = {b: x.contiguous(memory_format=torch.channels_last) for b, x in maps.items()}
    check("the order of memory changes the result", results(range(_IMAGES), maps=last))
    path = Path(folder) / "result.npz"
    expected[0].save(path)
    assert_results_equal(expected[0], Result.load(path), rtol=0.0)
    ax = matplotlib.figure.Figure().subplots()
    assert plot(expected[0], ax) is ax, "plot does not return the axes that it was given"


def _seen(statistic: FeatureStatistic, block: Block, x: Tensor) -> Tensor | Tokens:
    """A feature map as it is seen; its first two positions also stand off the grid."""
    if "tokens" not in statistic.all_seen:
        return x
    return Tokens(block, x, x.flatten(2)[:, :, :2].mT + 1, ("class", "register"))


def _block(kind: Kind, shape: tuple[int, int, int], depth: float) -> Block:
    layout = Layout("b c h w", shape[1:])
    return Block(kind, kind, round(depth), depth, kind == "downsample", shape, layout)


def _noise(channels: int, side: int, generator: torch.Generator) -> Tensor:
    shape = (_IMAGES, channels, side, side)
    return torch.randn(shape, generator=generator, dtype=torch.float64)

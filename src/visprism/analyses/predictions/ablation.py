"""Ablation: accuracy and NLL of a trained model without one of its parts.

    drop = mean(c_i - c_i without the part),   rise = mean(NLL_i without the part - NLL_i),

with c_i = 1 where image i is classified correctly. Nothing is trained again.

Source: Park and Kim (2022), How do vision transformers work?, fig. 10 and app. D.4 (there a
lesion study); Veit et al. (2016), Residual networks behave like ensembles of relatively shallow
networks, sec. 4.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import nan
from typing import Any, ClassVar, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism import kit
from visprism.analyses.predictions import ablation_by_kind
from visprism.analyses.predictions.perturbed import drops_text
from visprism.anatomy.run import ablations as part_ablations
from visprism.anatomy.run import replaced_parts
from visprism.anatomy.run import replaced_parts as parts_of
from visprism.drawing import style
from visprism.drawing.depth import kinds_key, points, stages
from visprism.estimates.estimated import paired_proportion
from visprism.estimates.findings import chance_findings
from visprism.passes.ablated import ablated_outcomes, replacements
from visprism.passes.tokens import token_roles


@kit.result(
    "ablations", "Ablation", figures={"": {}, "convolutions": {"ablated": "convolution"}}
)
class Ablations(kit.PerBlock):
    """Accuracy and NLL without one part; one row for each ablation.

    Each point is the accuracy drop when what one block adds is replaced, with its 95%
    interval over images. The finding names the replacement; with zero, the block is the
    identity. Single convolutions inside blocks have a separate figure.

    Drops are paired by image. Their 95% interval is Bonett and Price's for paired
    proportions.
    """

    row_names: ClassVar[tuple[str, ...]] = ("ablated",)

    ablated: kit.Texts = kit.column(
        "Ablated part", "", "'block', 'convolution', 'head 3', 'registers', ..."
    )
    accuracy: np.ndarray = kit.column("Accuracy", "", "accuracy of the ablated model")
    drop: kit.Estimated = kit.estimate(
        "Accuracy drop",
        kit.POINTS,
        "accuracy of the model minus accuracy of the ablated model",
        asks="Which block matters most to the accuracy?",
        comparison="none",  # selected maxima of different blocks
    )
    nll: np.ndarray = kit.column("NLL", "nats", "negative log-likelihood of the ablated model")
    nll_rise: kit.Estimated = kit.estimate(
        "NLL rise", "nats", "NLL of the ablated model minus NLL of the model"
    )
    partial: np.ndarray = kit.column(
        "Partial pass", "", "whether only what follows the ablated part was computed"
    )
    baseline_accuracy: float = kit.scalar(
        "Baseline accuracy", "", "accuracy of the model without ablation", default=nan
    )
    baseline_nll: float = kit.scalar(
        "Baseline NLL", "nats", "NLL of the model without ablation", default=nan
    )
    not_ablated: str = kit.scalar(
        "Not ablated", "", "parts that could not be ablated, and why", default=""
    )
    replacement: str = kit.scalar(
        "Replacement",
        "",
        "of what a part adds or of its output: 'zero', 'mean' over images or 'shuffle'",
        default="zero",
    )
    classes: int = kit.scalar("Classes", "", "number of classes of the model", default=0)
    blocks: int = kit.scalar("Blocks", "", "number of blocks between stem and head", default=0)

    def experiment(self, name: str) -> "Ablations":
        """The rows of one experiment: "block", "convolution", "head", "registers", ..."""
        return self.select(self._rows(name))

    def _rows(self, name: str) -> np.ndarray:
        heads = np.char.startswith(self.ablated, "head ")
        return np.flatnonzero(heads if name == "head" else self.ablated == name)

    def has_figure(self, **options: Any) -> bool:
        """Whether the experiment of the figure was made; blocks always have a figure."""
        ablated = options.get("ablated", "block")
        return ablated == "block" or len(self._rows(ablated)) > 0

    def by_kind(self) -> ablation_by_kind.KindAblations:
        """Mean drops by kind of block, and their differences, from the drops of each image."""
        return ablation_by_kind.kind_ablations(self)

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Per experiment: significant drops, and the largest, named as a maximum."""
        for name in ablation_by_kind.PARTS:
            rows = self._rows(name)
            if not len(rows):
                continue
            tests = "" if len(rows) == 1 else ", not adjusted for multiple comparisons"
            yield drops_text(
                ablation_by_kind.experiment_text(name, self.replacement),
                self.drop[rows],
                self.baseline_accuracy,
                "ablations",
                f"{self.images_text}{tests}",
                lambda i, rows=rows: f"{self._name(int(rows[i]))} ({self.kind[rows[i]]})",
            )
        if not self.partial.all():
            yield (
                f"{(~self.partial).sum()} of {len(self)} ablations ran the full model, because "
                "a forward pass cannot start at their cut"
            )
        if self.not_ablated:
            yield f"not ablated: {self.not_ablated.rstrip('.')}"
        yield from chance_findings(self.baseline_accuracy, self.provenance, self.classes)

    def answered(self, name: str) -> np.ndarray:
        """The largest drop over blocks and over convolutions, selected maxima."""
        experiments = [
            rows for part in ablation_by_kind.RANKED if len(rows := self._rows(part))
        ]
        return np.array([rows[self.drop[rows].argmax()] for rows in experiments], dtype=int)

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """The selection, and the part that has the largest drop."""
        part = str(self.ablated[row])
        number = len(self._rows(part))
        return {
            "quantity": "largest accuracy drop, "
            + ablation_by_kind.experiment_text(part, self.replacement),
            "measure": "",
            "selected": number,
            "left_out": max(self.blocks - number, 0) if part == "block" else 0,
            "subject": self._name(row),
        }

    def _name(self, row: int) -> str:
        """Name of the ablated block, with the part of it where that is not all."""
        part = str(self.ablated[row])
        return f"{self.block[row]}{'' if part == 'block' else f', {part}'}"


@kit.analysis
class Ablation(kit.Analysis):
    """Accuracy drop without each block, convolution, attention head or token.

    Removing a whole block and removing one convolution inside it are two experiments, which are
    never ranked together: the rest of the block still depends on the convolution. Park and Kim
    remove whole attention and MLP blocks, and one 3x3 convolution of a ResNet block.
    """

    name = "ablation"
    group = "robustness"
    images = kit.Sizes(fewest=16, quick=128, standard=512)
    needs = kit.Needs.OUTCOMES | kit.Needs.OUTPUTS
    source = (
        "Park & Kim (2022), fig. 10 and app. D.4; Veit et al. (2016); Morcos et al. (2018) for "
        "replacements"
    )
    claims = ("C10",)
    gives = (
        Ablations,
        ablation_by_kind.KindAblations,
    )

    parts: tuple[Literal["blocks", "convolutions", "heads", "tokens"], ...] = kit.option(
        ("blocks", "convolutions"), "parts to ablate one by one"
    )
    replacement: Literal["zero", "mean", "shuffle"] = kit.option(
        "zero",
        "what replaces a part's contribution: zero, its mean over images and positions, or "
        "another image's",
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Ablate each part in turn: rows, and means by kind."""
        anatomy = subject.anatomy
        batches = subject.batches(self._batch_size(subject))
        roles = token_roles(anatomy) if "tokens" in self.parts else {}
        planned, reasons = self._planned(anatomy, roles)
        values = replacements(anatomy, planned, batches, replacement=self.replacement, run=run)
        ablations = list(map(part_ablations.replaced_ablation, planned, values))
        if not ablations:
            because = f": {reasons[0]}" if reasons else ""
            raise kit.InputError(
                f"{type(anatomy.model).__name__} must have a part that can be ablated ("
                f"{', '.join(self.parts)}), got none{because}"
            )
        outcomes, partial, origin = ablated_outcomes(
            anatomy, batches, ablations, label="ablation", run=run
        )
        rows = Ablations(
            **kit.block_columns([part.block for part in planned]),
            ablated=np.array([a.ablated for a in ablations]),
            accuracy=outcomes.correct[:, 1:].mean(0),
            drop=kit.mean(outcomes.drops, paired_proportion),
            nll=outcomes.losses[:, 1:].mean(0),
            nll_rise=kit.mean(outcomes.rises),
            partial=np.array([a.cut in partial for a in ablations]),
            baseline_accuracy=outcomes.accuracy,
            baseline_nll=outcomes.nll,
            not_ablated="; ".join(reasons),
            replacement=self.replacement,
            classes=outcomes.classes,
            blocks=len(part_ablations.inner_blocks(anatomy)),
            provenance=origin,
        )
        return rows, rows.by_kind()

    def _planned(
        self, anatomy: kit.Anatomy, roles: Mapping[str, Sequence[str]]
    ) -> tuple[list[replaced_parts.ReplacedPart], tuple[str, ...]]:
        """The parts to ablate one by one, and why other parts cannot be ablated."""
        inner = part_ablations.inner_blocks(anatomy)
        made: list[replaced_parts.Parts] = []
        for part in dict.fromkeys(self.parts):
            if part == "tokens":
                tokens, reasons = parts_of.token_parts(
                    {block: roles.get(block.name, ()) for block in inner}, anatomy
                )
                none = [f"{type(anatomy.model).__name__} has no class tokens or registers"]
                made.append((tokens, reasons if tokens else none))
            elif part == "heads":
                made.append(parts_of.head_parts(anatomy.blocks, anatomy))
            elif part == "blocks":
                made.append(parts_of.block_parts(inner, anatomy))
            else:
                blocks = part_ablations.convolutional_blocks(anatomy)
                made.append(parts_of.convolution_parts(blocks, anatomy))
        reasons = dict.fromkeys(reason for _, reasons in made for reason in reasons)
        return [item for plan, _ in made for item in plan], tuple(reasons)

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """Half a forward pass per ablation on average, as nothing before it is computed.

        Means take one pass more.
        """
        single, _ = self._planned(subject.anatomy, {})
        means = 1.2 if self.replacement == "mean" else 0.0
        return kit.Cost(per_image=1.5 + means + 0.55 * len(single))

    def _batch_size(self, subject: kit.Subject) -> int:
        """The largest usual batch size that leaves no batch of one image, to shuffle."""
        if self.replacement != "shuffle" or subject.num_images < 2:
            return subject.batch_size
        sizes = range(subject.batch_size, 1, -1)
        return next((n for n in sizes if subject.num_images % n != 1), subject.batch_size)


@kit.figure(width=3.0, height=2.4, key=kinds_key, key_height=0.3)
def _(
    result: Ablations,
    ax: Axes,
    *,
    quantity: Literal["drop", "nll_rise"] = "drop",
    ablated: Literal["block", "convolution"] = "block",
) -> Axes:
    """Accuracy drop of one experiment against the depth of the block, with its interval.

    Stages are marked; heads and tokens are small rings. Convolutions are drawn where no whole
    block was ablated.
    """
    rows = result.experiment(ablated)
    if ablated == "block" and not len(rows):
        rows = result.experiment("convolution")
    part = str(rows.ablated[0]) if len(rows) else ablated
    inside = ~np.isin(result.ablated, ablation_by_kind.RANKED)
    inner = result.select(inside & (ablated == "block"))
    ax.axhline(0, color=style.FAINT, linewidth=0.6)
    if len(rows):
        points(ax, rows, quantity)
        stages(ax, rows)
    elif ablated == "convolution":
        text = "no convolution inside a block\ncan be ablated"
        ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", color=style.FAINT)
    for i in range(len(inner)):
        value = getattr(inner, quantity)[i]
        ax.plot(
            inner.depth[i],
            value,
            marker="o",
            markersize=2.2,
            markerfacecolor="none",
            markeredgecolor=style.color_of(str(inner.kind[i])),
            markeredgewidth=0.5,
            gid=style.tip(f"{inner.block[i]} · {inner.ablated[i]} · {value:.3g}"),
        )
    if quantity == "drop":
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    infos = result.infos()
    ax.set(
        xlim=(-0.02, 1.02),
        xlabel=infos["depth"].heading,
        ylabel=f"{infos[quantity].heading}, one {part} ablated",
    )
    return ax

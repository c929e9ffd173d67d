"""Search: an AlterNet built up from the end of a CNN, one MSA block after the other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from torch import nn

from visprism.anatomy import Images
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.harmonize.block_selection import placed
from visprism.harmonize.conv_blocks import conv_blocks
from visprism.harmonize.convert import harmonize
from visprism.harmonize.search_log import Log
from visprism.results.base import Result, column, result_type

Train = Callable[[nn.Module, int], float]  # candidate, seed -> accuracy in validation
Shown = Callable[[str], None]


@result_type("replacement-search", formerly="BuildUp")
class ReplacementSearch(Result):
    """A search for the blocks that MSAs should replace; one row per candidate and seed."""

    candidate: np.ndarray = column("Candidate", "", "0 for the CNN as it is")
    msas: np.ndarray = column("MSAs", "", "number of MSA blocks")
    added: np.ndarray = column(
        "Added", "", "name of the block that was replaced last; empty for the CNN"
    )
    placement: np.ndarray = column(
        "Placement", "", "names of all replaced blocks, with commas between them"
    )
    stage: np.ndarray = column("Stage", "", "of the added block, 0 for the CNN")
    parameters: np.ndarray = column("Parameters")
    seed: np.ndarray = column("Seed")
    accuracy: np.ndarray = column("Accuracy", "", "in validation, after training")
    kept: np.ndarray = column(
        "Kept", "", "whether the MSA helped, and the search went on from here"
    )

    @property
    def best(self) -> tuple[str, ...]:
        """Names of the replaced blocks of the network that the search ends with."""
        last = np.flatnonzero(self.kept)[-1]
        return tuple(filter(None, str(self.placement[last]).split(",")))

    def candidates(self) -> list["ReplacementSearch"]:
        """The rows of each candidate, in the order in which they were tried."""
        return [self.select(self.candidate == number) for number in np.unique(self.candidate)]

    def sentences(self) -> list[str]:
        """What the search found, with its numbers."""
        tried = self.candidates()
        first, last = tried[0], [each for each in tried if each.kept[0]][-1]
        gain, error = gain_over(first.accuracy, last.accuracy)
        if not self.best:
            return [f"none of {len(tried) - 1} MSA blocks helped by more than its noise"]
        return [
            f"{len(self.best)} MSA blocks ({', '.join(self.best)}) raise the accuracy from "
            f"{first.accuracy.mean():.1%} to {last.accuracy.mean():.1%}, by {100 * gain:.2g} "
            f"± {100 * error:.1g} percentage points (standard error over {len(first)} seeds)"
        ]


def search_replacements(
    model: nn.Module,
    images: Images,
    train: Train,
    *,
    repeats: int = 3,
    heads: int | Sequence[int] | None = None,
    head_dim: int = 64,
    window: int | None = None,
    seed: int = 0,
    log: Path | str | None = None,
    setting: Mapping[str, object] = MappingProxyType({}),
    shown: Shown | None = None,
    provenance: Provenance | None = None,
) -> ReplacementSearch:
    """Find the Conv blocks of a CNN that MSA blocks should replace, by the paper's rule.

    From the end of the last stage on, an MSA block replaces the last Conv block, and then every
    second one before it. Each candidate is trained with the same `repeats` seeds as the one
    before. It is kept if the mean of the paired gains in accuracy is larger than its standard
    error; if it is not, the search goes on at the end of the stage before.

    Each candidate costs `repeats` trainings; there are at most as many as half the blocks and
    one for each stage.

    Args:
        model: a CNN with residual blocks, in evaluation mode; candidates begin with its
            weights, and it is left as it is.
        images: a few, of the size that it is meant for.
        train: trains a copy in place with a seed and returns its accuracy in validation.
        repeats: seeds of each candidate.
        heads: as in `harmonize`.
        head_dim: as in `harmonize`.
        window: as in `harmonize`.
        seed: of the first repeat; the others follow it.
        log: a file that keeps each accuracy as soon as it is known, so that a search which was
            interrupted goes on where it ended.
        setting: what else an accuracy depends on, as the recipe; the log of another setting is
            refused.
        shown: is told what is trained, and what came out.
        provenance: what is known of the model and the data.

    Raises:
        InputError: if repeats is under 2, the log is of another search, `train` returns no
            fraction, or as `harmonize`.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4.1 and fig. 11.
    """
    if repeats < 2:
        raise InputError(
            f"repeats is {repeats}; wants at least 2, since the noise of a training is known "
            "only from several seeds"
        )
    blocks = conv_blocks(model, images)
    placed(blocks, "end-of-stage")  # whether stages have an end that can be replaced
    stage_of = {block.name: block.stage for block in blocks}
    stages = [
        [block.name for block in blocks if block.stage == stage]
        for stage in sorted(set(stage_of.values()))
    ]
    settings = {"heads": heads, "head_dim": head_dim, "window": window, **setting}
    known = Log(log, model, settings)
    tell = shown or _silent

    def accuracies(placement: tuple[str, ...]) -> np.ndarray:
        found = []
        for repeat in range(seed, seed + repeats):
            here = known.find(placement, repeat)
            if here is None:
                tell(f"training with {_words(placement)}, seed {repeat}")
                candidate = harmonize(
                    model,
                    images,
                    placement,
                    heads=heads,
                    head_dim=head_dim,
                    window=window,
                    seed=repeat,
                )
                here = known.keep(placement, repeat, train(candidate, repeat))
            found.append(here)
        return np.array(found)

    def size(placement: tuple[str, ...]) -> int:
        made = harmonize(
            model, images, placement, heads=heads, head_dim=head_dim, window=window
        )
        return sum(parameter.numel() for parameter in made.parameters())

    current: tuple[str, ...] = ()
    best = accuracies(current)
    tried = [(current, "", best, True)]
    for names in reversed(stages):
        for name in names[::-2]:
            placement = tuple(sorted((*current, name), key=list(stage_of).index))
            found = accuracies(placement)
            gain, error = gain_over(best, found)
            helps = gain > error
            tried.append((placement, name, found, helps))
            word = "kept" if helps else "not kept"
            tell(f"{_words(placement)}: {100 * gain:+.2f} ± {100 * error:.2f} %, {word}")
            if not helps:
                break
            current, best = placement, found
    rows = [
        (
            number,
            len(where),
            name,
            ",".join(where),
            stage_of.get(name, 0),
            size(where),
            repeat,
            accuracy,
            helps,
        )
        for number, (where, name, found, helps) in enumerate(tried)
        for repeat, accuracy in zip(range(seed, seed + repeats), found, strict=True)
    ]
    columns = (np.array(column) for column in zip(*rows, strict=True))
    return ReplacementSearch(*columns, provenance=provenance or Provenance())


def _silent(_text: str) -> None:
    """Tells nobody."""


def gain_over(before: Iterable[float], after: Iterable[float]) -> tuple[float, float]:
    """Mean of the differences between trainings of the same seeds, and its standard error."""
    gains = np.array(list(after)) - np.array(list(before))
    return float(gains.mean()), float(gains.std(ddof=1) / len(gains) ** 0.5)


def _words(placement: Sequence[str]) -> str:
    return f"MSAs at {', '.join(placement)}" if placement else "no MSA"

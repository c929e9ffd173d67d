"""Results by hand, with figures and declarations of their own, and a study of two models."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar, Literal

import numpy as np
import pytest

from visprism import (
    ANALYSES,
    Analysis,
    Answer,
    Cost,
    Entry,
    Failure,
    Finding,
    Provenance,
    Result,
    Section,
    Study,
    Texts,
    column,
    figure,
    option,
    result_type,
    scalar,
)
from visprism.drawing.style import tip

BLOCKS = ("stem", "conv1", "attn2")


def brightness(offset):
    """Brightness of 32 images."""
    return np.linspace(0, 1, 32) + offset * (1 + 0.2 * (-1.0) ** np.arange(32))


@result_type("test-norms")
class Norms(Result):
    """A value for each block."""

    units: ClassVar[int] = 32  # images of the brightness

    block: Texts = column("Block", "", "name of the block")
    depth: np.ndarray = column("Normalized depth", "", "0 for the first block, 1 for the last")
    norm: np.ndarray = column("Norm", "pixels", "a value with a unit")
    count: np.ndarray = column("Count", "", "a large number")
    scale: str = scalar("Scale", "", "what the norm refers to", default="relative")

    def sentences(self):
        yield f"norm {self.norm[-1]:.3g} at {self.block[-1]}"
        yield Finding("channels of one block are dead", "VP108")

    def answers(self):
        value = float(self.norm[-1])
        if not np.isfinite(value):
            return ()
        limits = value - 0.5, value + 0.5
        return (
            Answer("Do norms fall?", "norm at the end", value, *limits),
            Answer(
                "How bright?",
                "brightness",
                value,
                over="images",
                by_unit=brightness((value + 0.25) / 4)[: self.units],
            ),
            Answer("How bright?", "contrast", 2 * value),
        )


@result_type("test-gaps")
class Gaps(Result):
    """A second result of the same analysis, also about two models."""

    block: Texts = column("Block", "", "name of the block")
    gap: np.ndarray = column("Gap", "", "a value")

    def sentences(self):
        yield f"largest gap {self.gap.max():.3g}"


@figure()
def draw_norms(result: Norms, ax, *, quantity: Literal["norm", "count"] = "norm"):
    """A point for each block."""
    for name, x, y in zip(result.block, result.depth, getattr(result, quantity), strict=True):
        ax.plot(x, y, marker="o", gid=tip(f"{name} · conv · {y:.3g}"))
    ax.set_xlabel("Normalized depth")
    return ax


@figure()
def draw_gaps(result: Gaps, ax):
    """A bar for each block."""
    ax.bar(range(len(result)), result.gap)
    return ax


class Made(Analysis):
    """An analysis that is not measured."""

    group = "feature maps"
    source = "a book"

    def measure(self, subject, run):
        raise NotImplementedError

    def cost(self, subject):
        return Cost(1)


@dataclass(frozen=True)
class MeasureNorms(Made):
    """Norms of blocks."""

    name = "test-norms"
    claims = ("C6",)
    sections = (
        Section(
            Norms,
            "Norms of blocks",
            "Each point is a block.",
            figures={"": {}, "count": {"quantity": "count"}},
        ),
        Section(Gaps, "Gaps between blocks", "Each bar is a block.", table=False),
    )

    steps: int = option(3, "number of steps", minimum=1)
    bands: tuple[float, ...] = option((0.5, 1.0), "edges of bands")


@dataclass(frozen=True)
class MeasureGaps(Made):
    """Gaps alone, in a later group."""

    name = "test-gaps"
    group = "loss"
    sections = (Section(Gaps, "Gaps", "Each bar is a block.", figures={}),)


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The two analyses, registered for these tests."""
    with pytest.MonkeyPatch.context() as patch:
        for analysis in (MeasureNorms, MeasureGaps):
            patch.setitem(ANALYSES._functions, analysis.name, analysis)
        yield


def norms(model="a", end=-0.25, blocks=BLOCKS):
    return Norms(
        block=np.array(blocks),
        depth=np.linspace(0, 1, len(blocks)),
        norm=np.linspace(1, end, len(blocks)),
        count=np.array([25_557_032, 7, 12]),
        provenance=replace(ORIGIN, model=model),
    )


def gaps(model="a"):
    origin = replace(ORIGIN, model=model)
    return Gaps(block=np.array(BLOCKS), gap=np.array([0.1, 0.5, 0.25]), provenance=origin)


ORIGIN = Provenance(
    data="folder:cats", split="test", images=8, image_shape=(3, 8, 8), seed=7,
    created="2026-01-31", visprism="0.2", torch="2.6", python="3.11",
)  # fmt: skip


def study_of(first="a", second="b", reason="the model has no attention"):
    """Two models: one analysis of both, with a result about both together, one of the first."""
    options = {"steps": 5, "bands": [0.5, 1.0]}
    return Study(
        models=(first, second),
        entries=(
            Entry((first,), "test-gaps", (gaps(first),), {}, 4, 0.5, "k1"),
            Entry((first,), "test-norms", (norms(first), gaps(first)), options, 8, 1.5, "k2"),
            Entry((second,), "test-norms", (norms(second, end=0.75),), options, 8, 2.5, "k3"),
            Entry((first, second), "test-norms", (gaps(first),), options, 8, 0.25, "k4"),
        ),
        failures=(
            Failure(second, "test-gaps", reason, "skipped"),
            Failure(first, "hessian", "RuntimeError: out of memory"),
            Failure(second, "hessian", "RuntimeError: out of memory"),
        ),
        header={"images": "d1", "training images": "d2", "seed": 7, "seconds": 12.25},
    )


@pytest.fixture
def study():
    return study_of()


@pytest.fixture(scope="package")
def make():
    """Functions that make results and studies."""
    return SimpleNamespace(norms=norms, gaps=gaps, study_of=study_of)


@pytest.fixture
def undrawn(monkeypatch):
    """Pages have no figures, which take most of their time."""
    monkeypatch.setattr("visprism.study.files.rendered", lambda *_, **__: [])

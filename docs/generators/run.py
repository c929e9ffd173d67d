"""The studies whose figures the site shows; the same call resumes them.

They are small, so that the site is built in minutes: shipped networks on few images.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib import pyplot
from PIL import Image

import visprism as vp
from visprism.report.overview import overview

NETWORKS = {"ResNet-20": "resnet20.shapes", "ViT-Pico": "vit_pico_patch4_32.shapes"}
_IMAGES = 32
_FEW_IMAGES = 16  # of analyses that take many passes
_OPTIONS = {
    "adversarial": {"epsilons": (1 / 255, 4 / 255), "steps": 5},
    "attribution": {"blocks": 3, "steps": 5},
    "corruptions": {"severities": (1, 3, 5)},
    "density": {"k": 1, "runs": 3, "steps": 8, "probes": 3},
    "fourier-sensitivity": {"max_frequency": 6, "frequency_step": 3},
    "hessian": {"k": 2},
    "hessian-by-block": {"probes": 3},
    "landscape": {"points": 7, "angles": 4},
    "sharpness": {"directions": 2},
    "stability": {"perturbations": ("gaussian_noise", "brightness", "translate", "rotate")},
}
_SPECIAL = ("shape-bias", "out-of-distribution", "relative-scores", "trajectory")
_SPECIAL += ("mode-connectivity", "density", "stability", "hessian-by-block")
_RESOLUTION = 150  # dots per inch


@dataclass(frozen=True)
class Example:
    """What one study shows of an analysis."""

    study: vp.Study
    results: Mapping[str, vp.Result]  # by model
    section: vp.Section
    seconds: float  # of all models
    measured: float  # time when the study was stored

    @property
    def images(self) -> int:
        """Number of images that were measured."""
        return max(r.provenance.images for r in self.results.values())


def write_figures(folder: Path) -> None:
    """Run the studies, or resume them, and write the figures.

    ``ANALYSIS.png`` shows all models of its study, ``ANALYSIS-card.png`` only the last one,
    and ``overview.png`` several quantities of each block.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, example in examples(folder).items():
        card, path = folder / f"{name}-card.png", folder / f"{name}.png"
        if path.exists() and path.stat().st_mtime > example.measured:
            continue
        options = next(iter(example.section.figures.values()))
        ax = vp.plot(list(example.results.values())[-1], **options)
        ax.figure.savefig(card, dpi=_RESOLUTION, bbox_inches="tight")
        pyplot.close(ax.figure)
        vp.panel(example.results, **options).savefig(path, dpi=_RESOLUTION)
    path = folder / "overview.png"
    if not path.exists():
        study = main_study(folder)
        results = {
            name: [r for a in study[name] for r in study[name].results(a)] for name in study
        }
        figure = overview(results)
        assert figure is not None
        figure.savefig(path, dpi=_RESOLUTION)


@cache
def examples(folder: Path) -> dict[str, Example]:
    """The example of each analysis, by its name."""
    by_name: dict[str, Example] = {}
    for path, study in studies(folder).items():
        for name in study.analyses:
            if name not in by_name and (example := _example(study, name, path)) is not None:
                by_name[name] = example
    return {name: by_name[name] for name in vp.ANALYSES if name in by_name}


def _example(study: vp.Study, analysis: str, path: Path) -> Example | None:
    measured = (path / "study.json").stat().st_mtime
    entries = [e for e in study.entries if e.analysis == analysis]
    for section in vp.ANALYSES[analysis].sections:
        results = {
            entry.models[0]: result
            for entry in entries
            for result in entry.results
            if type(result) is section.result and len(entry.models) == 1
        } or {
            " and ".join(entry.models): result
            for entry in entries
            for result in entry.results
            if type(result) is section.result
        }
        if results and section.figures:
            return Example(study, results, section, sum(e.seconds for e in entries), measured)
    return None


@cache
def studies(folder: Path) -> dict[Path, vp.Study]:
    """By folder: the main study, and studies that need other data or checkpoints."""
    return {folder / "main": main_study(folder), **dict(_special_studies(folder))}


@cache
def main_study(folder: Path) -> vp.Study:
    """Every analysis that the two networks of the demonstration allow."""
    names = [
        name
        for name, analysis in vp.ANALYSES.items()
        if name not in _SPECIAL and analysis.__module__.startswith("visprism.")
    ]
    return _study(folder / "main", NETWORKS, "shapes", names, _OPTIONS)


def _special_studies(folder: Path) -> Iterator[tuple[Path, vp.Study]]:
    yield (
        folder / "shape-bias",
        _study(folder / "shape-bias", NETWORKS, "shapes?cues=conflict", ["shape-bias"]),
    )
    yield (
        folder / "out-of-distribution",
        _study(
            folder / "out-of-distribution",
            NETWORKS,
            "shapes",
            ["out-of-distribution"],
            {"out-of-distribution": {"ood_data": f"folder:{_noise(folder / 'noise')}"}},
        ),
    )
    yield (
        folder / "relative-scores",
        _study(
            folder / "relative-scores",
            {"AlterNet-20": "alter_resnet20.cifar10"},
            "shapes",
            ["relative-scores"],
        ),
    )
    yield (
        folder / "many-passes",
        _study(
            folder / "many-passes",
            NETWORKS,
            "shapes",
            ["density", "hessian-by-block", "stability"],
            _OPTIONS,
            limit=_FEW_IMAGES,
        ),
    )
    checkpoints, last = _trained(folder / "trained")
    yield (
        folder / "checkpoints",
        _study(
            folder / "checkpoints",
            {"ResNet-20": f"resnet20@{last}"},
            "shapes",
            ["trajectory", "mode-connectivity"],
            {
                "trajectory": {"checkpoints": checkpoints},
                "mode-connectivity": {"checkpoints": checkpoints[-2:-1]},
            },
        ),
    )


def _study(
    out: Path,
    models: Mapping[str, str],
    data: str,
    analyses: list[str],
    options: Mapping[str, Mapping[str, object]] | None = None,
    limit: int = _IMAGES,
) -> vp.Study:
    return vp.examine(
        models,
        data,
        analyses=analyses,
        options={name: o for name, o in (options or {}).items() if name in analyses},
        minutes=None,
        limit=limit,
        out=out,
        listener=_silent,
    )


def _silent(event: object) -> None:
    del event  # the log of the build has no plans


def _noise(folder: Path) -> Path:
    """Images of uniform noise, as data of another distribution."""
    folder.mkdir(exist_ok=True)
    generator = np.random.default_rng(0)
    for i in range(_IMAGES):
        pixels = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02}.png")
    return folder


def _trained(folder: Path) -> tuple[tuple[Path, ...], Path]:
    """Checkpoints of a short training run, in its order, and the last one."""
    job = vp.Job("resnet20", "shapes", folder, test_limit=200, logs=(), resume=True)
    recipe = vp.RECIPES["demo_resnet"]().replace(
        epochs=5, limit=640, batch_size=64, lr=4e-3, snapshot_every=1
    )
    last = folder / "model.safetensors"
    if not last.exists():
        vp.train(job, recipe)
    return tuple(sorted((folder / "snapshots").glob("*.safetensors"))), last

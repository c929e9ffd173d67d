"""Evolution: the analyses of `examine` over the checkpoints of one or more trainings."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from visprism.analyses.evolution import Evolution
from visprism.analyses.features.cka import CKA, Similarity
from visprism.core.errors import InputError
from visprism.core.files import slug
from visprism.core.options import with_default
from visprism.core.provenance import Provenance
from visprism.core.request import DataOptions
from visprism.estimates.estimated import Estimated
from visprism.estimates.findings import CODES
from visprism.kit.analysis import ANALYSES
from visprism.kit.inputs import images_of, normalization_given
from visprism.loss.training_curvature import CurvatureDuringTraining
from visprism.study.checkpoints_of_run import checkpoints_in, loaded_checkpoint, of_one_network
from visprism.study.events import silent
from visprism.study.examination import LATE
from visprism.study.examine import examine
from visprism.study.monitor import WATCHED
from visprism.study.record import Entry, Failure, Header
from visprism.study.request import Analyses, Measurement, arguments_of
from visprism.study.steps import steps_of_run
from visprism.study.store import check_out, key_of
from visprism.study.study import Study
from visprism.table.result import Result
from visprism.table.shapes import ScalarPerBlock
from visprism.training.vitals import Alarm, stored_alarms

_LAST = "last step"
_PLAIN_NAMES = {"ckpt", "ckpts", "checkpoint", "checkpoints", "weights", "monitor", "/"}


@dataclass(frozen=True, kw_only=True, eq=False)
class EvolveRequest(Measurement):
    """Which trainings `evolve` measures, on which images, and how."""

    runs: Mapping[str, Path | str] | Sequence[Path | str] | Path | str = field(kw_only=False)
    data: Any = field(default=None, kw_only=False)
    model: Any = None
    analyses: Analyses = WATCHED
    limit: int | None = with_default(DataOptions, "limit", 256)


@arguments_of(EvolveRequest)
def evolve(request: EvolveRequest) -> Study:  # noqa: D417 (fields of the request)
    """Measure the checkpoints of trainings on the same images: what changes when.

    Each run is a folder of checkpoints, which are measured one after the other; without `data`,
    the folder of a `Monitor`, whose studies are read. A checkpoint is a file of `visprism
    train`, Lightning or timm, any other file of a state dict, or a folder of Transformers, with
    the number of its step (or epoch) in its name. One that is damaged, or has weights that are
    not finite, is left out and listed as a failure.

    The study that is returned has the results at the last step of each run, and for each of
    their numbers, and for the main number of each block, an `Evolution` over the steps; with
    ``cka``, also the CKA of each block with itself at the last step, which shows when it has
    settled. With `out`, the study of
    each step is written into a folder of its run as soon as it exists, and the same call
    resumes.

    Cost: as for `examine` for each checkpoint; for ``cka`` about four times as much.

    Args:
        runs: folders by the name of the run, or folders that are named after themselves.
        data: the images, as `examine` takes them; None: read what a `Monitor` has measured.
        model: an ``nn.Module`` or the name of a model, whose weights the checkpoints are; not
            needed for checkpoints of `visprism train` and Transformers, which name it.
        analyses: names, classes, or instances with options.
        options: options by the name of the analysis.
        preprocessing: resize, crop and normalization; see `examine`.
        out: folder for the studies; None keeps them in memory.
        run: device, precision and seed in one; progress and deadline.
    """
    run, model = request.how(), request.model
    if request.minutes is not None:
        run = run.ending_by(time.monotonic() + 60.0 * request.minutes)
    out = None if request.out is None else Path(request.out)
    chosen = ANALYSES.chosen(request.analyses, request.options, request.effort)
    folders, images = _folders(request.runs), request.images
    known = request.preprocessing or normalization_given(images)
    if out is not None:
        check_out(out, [slug(name) for name in folders])
    data, train_data = (  # read once, since another pass may give none, or others
        of
        if isinstance(of, str | None)
        else images_of(of, images, seed=run.seed, preprocessing=known)
        for of in (request.data, request.train_data)
    )
    given: dict[str, Any] = {
        **vars(images),
        "effort": request.effort,
        "train_data": train_data,
        "preprocessing": request.preprocessing,
        "fresh": request.fresh,
        "run": replace(run, progress=None, deadline=None),
        "listener": silent,
    }
    similar = [analysis for analysis in chosen if isinstance(analysis, CKA)]
    by_run: dict[str, dict[int, Study]] = {}
    settling: dict[str, Evolution | None] = {}
    failures: list[Failure] = []
    for name, folder in folders.items():
        if data is None:
            by_run[name] = {s: Study.load(p) for s, p in steps_of_run(folder).items()}
            if not by_run[name]:
                raise InputError(
                    f"data must be images for the checkpoints in {folder}, got none, and there "
                    "are no studies of a monitor. Name the data."
                    + "".join(f" Its alarms: {alarm}" for alarm in alarms_of_run(folder))
                )
            if request.analyses is not WATCHED:
                raise InputError(
                    f"analyses must be left out without data, as the studies of the monitor in "
                    f"{folder} are shown. Name the data to measure the checkpoints."
                )
            continue
        files, damaged = of_one_network(checkpoints_in(folder), model)
        failures += [Failure(name, f"step {step}", why) for step, why in damaged.items()]
        by_run[name] = {}
        to_last: dict[int, Study] = {}
        tracked = replace(run, deadline=None).track(files.items(), f"checkpoints of {name}")
        for step, path in tracked:
            if run.seconds_left < 0:
                left = f"the time limit was reached before step {step}. {LATE}"
                failures += [Failure(name, a.name, left, "no time") for a in chosen]
                break
            into = None if out is None else out / slug(name) / f"step-{step:08d}"
            now = loaded_checkpoint(path, model)
            by_run[name][step] = examine({name: now}, data, analyses=chosen, out=into, **given)
            if similar and step < max(files):
                to_last[step] = examine(
                    {name: now, _LAST: loaded_checkpoint(files[max(files)], model)},
                    data,
                    analyses=similar,
                    out=into and into / "cka",
                    **given,
                )
        settling[name] = _settling(to_last)
    made = {n: studies for n, studies in by_run.items() if studies}
    if not made:
        raise InputError("the time limit must leave time for a checkpoint, got none measured")
    raised = {name: alarms_of_run(folder) for name, folder in folders.items()}
    study = joined(made, failures, settling, raised)
    if out is not None:
        study.save(out)
    return study


def _folders(runs: Any) -> dict[str, Path]:
    if isinstance(runs, Mapping):
        named = {str(name): Path(folder) for name, folder in runs.items()}
    else:
        listed = [runs] if isinstance(runs, str | Path) else list(runs)
        paths = [Path(folder) for folder in listed]
        resolved = [path.resolve() for path in paths]
        names = [_run_name(path) for path in resolved]
        named = {
            (name if names.count(name) == 1 else str(path)): path
            for name, path in zip(names, paths, strict=True)
        }
    missing = next((path for path in named.values() if not path.is_dir()), None)
    if missing is not None or not named:
        raise InputError(f"runs must be folders of checkpoints, got {missing or 'none'}")
    if len({*map(slug, named)}) < len(named):  # in which their studies are written
        names = ", ".join(map(repr, named))
        raise InputError(f"runs must have different file names, got {names}")
    return named


def _run_name(folder: Path) -> str:
    """The last part of a path that does not only say that checkpoints are in it."""
    parts = [part for part in folder.parts if part.lower() not in _PLAIN_NAMES]
    return parts[-1] if parts else folder.name


def joined(
    runs: Mapping[str, Mapping[int, Study]],
    failures: Iterable[Failure] = (),
    settling: Mapping[str, Evolution | None] | None = None,
    raised: Mapping[str, Sequence[Alarm]] | None = None,
) -> Study:
    """One study of the last steps of runs, with the evolution of what each step measured.

    `raised` has the alarms of each run that its folder holds.
    """
    last = {name: studies[max(studies)] for name, studies in runs.items()}
    entries = [
        entry
        for name, studies in runs.items()
        for entry in _entries(name, studies, (settling or {}).get(name))
    ]
    headers, alarms = [study.header for study in last.values()], raised or {}
    weights = {name: next(iter(s.header["weights"].values())) for name, s in last.items()}
    failed = [failure for name, studies in runs.items() for failure in _failed(name, studies)]
    untrained = [name for name, study in last.items() if study.header.get("untrained")]
    seconds = sum(s.header.get("seconds", 0.0) for of in runs.values() for s in of.values())
    header: Header = {**headers[0], "weights": weights, "seconds": seconds}
    header["untrained"] = untrained
    header["notes"] = {name: next(iter(s.notes.values()), []) for name, s in last.items()}
    header.pop("step", None)
    header.pop("begin", None)
    header.pop("metrics", None)
    header.pop("outputs", None)
    ends = {name: f"step {max(of)}" for name, of in runs.items()}
    texts = [f"{step} of {name}" for name, step in ends.items()]
    at = texts if len({*ends.values()}) > 1 else sorted({*ends.values()})
    header["alarms"] = [
        f"Numbers without a step are of {', '.join(at)}.",
        *chain.from_iterable(
            _alarms(name, of, alarms.get(name, ())) for name, of in runs.items()
        ),
    ]
    if len({h.get("images") for h in headers}) > 1:
        raise InputError(
            "runs must be measured on the same images, and their studies have other images. "
            "Evolve them one by one."
        )
    return Study(tuple(runs), tuple(entries), (*failed, *failures), header)


def _failed(run: str, studies: Mapping[int, Study]) -> Iterator[Failure]:
    """What gave no result at the last step, and what failed at an earlier one, said once."""
    last = max(studies)
    yield from (replace(f, model=run) for f in studies[last].failures)
    said = {f.analysis for f in studies[last].failures}
    for step, study in sorted(studies.items()):
        for failure in study.failures:
            if failure.kind == "failed" and failure.analysis not in said:
                said.add(failure.analysis)
                where = f"{failure.analysis} at step {step}"
                yield replace(failure, model=run, analysis=where)


def alarms_of_run(folder: Path) -> list[Alarm]:
    """The alarms that a training, or its monitor, has stored."""
    return [*stored_alarms(folder), *stored_alarms(folder / "monitor")]


def _alarms(run: str, studies: Mapping[int, Study], raised: Sequence[Alarm]) -> Iterator[str]:
    """A sentence for each alarm that a monitor raised, with the first and the last step."""
    found: dict[str, list[tuple[int, str]]] = {}
    for step, study in sorted(studies.items()):
        for text in study.header.get("alarms", ()):
            code = text.rpartition("[")[2].removesuffix("]")
            found.setdefault(code, []).append((step, text))
    for alarm in raised:
        found.setdefault(alarm.code, [(alarm.step, f"{alarm.text} [{alarm.code}]")])
    for code, ((first, text), *others) in found.items():
        again = f", last after step {others[-1][0]}" if others else ""
        meaning = CODES[code].meaning if code in CODES else ""
        yield f"{run}, alarm after step {first}{again}: {text}. {meaning}"


def _losses(studies: Mapping[int, Study], origin: Provenance) -> Iterator[Evolution]:
    """The loss that the training reported, if it did at several steps."""
    losses = {s: of.header.get("metrics", {}).get("loss") for s, of in sorted(studies.items())}
    rows = [(step, "", loss, nan, nan) for step, loss in losses.items() if loss is not None]
    if len(rows) > 1:
        yield _curve(rows, "Loss, as the training reports it", "", origin)


def _settling(to_last: Mapping[int, Study]) -> Evolution | None:
    """CKA of each block with itself at the last step, where studies of both have it."""
    rows: list[tuple] = []
    pairs = {
        step: result
        for step, study in to_last.items()
        for entry in study.entries
        for result in entry.results
        if isinstance(result, Similarity) and result.other_model
    }
    for step, pair in pairs.items():
        for i in np.flatnonzero((pair.block == pair.other) & np.isfinite(pair.cka)):
            cka = pair.cka[i]
            rows.append((step, pair.block[i], cka, cka.low, cka.high))
    if not rows:
        return None
    origin = next(iter(pairs.values())).provenance
    return _curve(rows, "CKA of a block with itself at the last step", "", origin)


def _curve(
    rows: Iterable[tuple[int, str, float, float, float]],
    quantity: str,
    unit: str,
    origin: Provenance,
) -> Evolution:
    """Rows of a step, a part of the model, a value and both ends of its interval."""
    step, part, value, low, high = zip(*rows, strict=True)
    return Evolution(
        step=np.array(step),
        part=np.array(part),
        value=Estimated(value, low, high),
        quantity=quantity,
        unit=unit,
        provenance=origin,
    )


def _entries(
    run: str, studies: Mapping[int, Study], settling: Evolution | None
) -> Iterator[Entry]:
    """The last entry of each analysis, with the evolution of its answers."""
    by_analysis: dict[str, dict[int, Entry]] = {}
    for step, study in sorted(studies.items()):
        for entry in study.entries:
            if len(entry.models) == 1:
                by_analysis.setdefault(entry.analysis, {})[step] = entry
    beside = "calibration" if "calibration" in by_analysis else next(iter(by_analysis), "")
    for entries in by_analysis.values():
        entry = entries[max(entries)]
        by_step = {step: other.results for step, other in entries.items()}
        results = [*(_over_steps(r, by_step) for r in entry.results), *_evolutions(by_step)]
        if settling is not None and entry.analysis == CKA.name:
            results.append(settling)
        if entry.analysis == beside:
            results += _losses(studies, entry.results[0].provenance)
        yield _of_run(run, entry, results)


def _of_run(run: str, entry: Entry, results: Iterable[Result]) -> Entry:
    """An entry under the name of its run, which may begin with the weights of another."""
    named = tuple(result.with_provenance(model=run) for result in results)
    return replace(entry, models=(run,), results=named, key=key_of(run=run, key=entry.key))


def _over_steps(result: Result, by_step: Mapping[int, Sequence[Result]]) -> Result:
    """The result; of the curvature, whose rows name their step, the rows of all steps."""
    if not isinstance(result, CurvatureDuringTraining):
        return result
    series = [
        r for rs in by_step.values() for r in rs if isinstance(r, CurvatureDuringTraining)
    ]
    columns = [name for name, values in vars(result).items() if isinstance(values, np.ndarray)]
    rows: Any = {name: np.concatenate([getattr(r, name) for r in series]) for name in columns}
    return replace(result, **rows)


def _evolutions(by_step: Mapping[int, Sequence[Result]]) -> Iterator[Evolution]:
    """The evolution of each quantity that the results answer, or have for each block."""
    curves: dict[tuple[str, str], list[tuple]] = {}
    for step, results in by_step.items():
        for result in results:
            for answer in result.answers():
                key = answer.measure or answer.quantity, answer.unit
                row = step, answer.subject, answer.value, answer.low, answer.high
                curves.setdefault(key, []).append(row)
            if isinstance(result, ScalarPerBlock):
                info = result.value_info()
                rows = zip(result.block.tolist(), result.values, *result.intervals, strict=True)
                named = f"{info.label}, by block", info.unit
                curves.setdefault(named, []).extend((step, *row) for row in rows)
    origin = next(iter(by_step.values()))[0].provenance
    for (quantity, unit), rows in curves.items():
        yield _curve(rows, quantity, unit, origin)

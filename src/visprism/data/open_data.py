"""Loading: from what the user wrote, as ``shapes?size=64`` or ``folder:photos``, to images."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from visprism.core.errors import InputError
from visprism.data.image_set import ImageSet, balanced
from visprism.data.registry import DATA
from visprism.data.subsets import stratified

Progress = Callable[[Iterable[int]], Iterable[int]]

_NAMED = 3  # how many unreadable images an error names; it counts them all


def load_data(
    spec: str,
    *,
    split: str | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
    side: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    accept: Callable[[ImageSet], None] | None = None,
) -> ImageSet:
    """The images that `spec`, ``NAME[:PLACE][?OPTION=VALUE&...]``, names.

    Every data set takes the option ``subset=0.1``, a fraction of each class; see `stratified`.
    Every file is read through once, so that a damaged one is found before the time for a
    measurement is spent. `limit` takes at most so many images, as many of each class as of any
    other, drawn at random by `seed`; `side` is that of images that can be drawn at any size,
    where `spec` names none; `progress` wraps the loop over the files; `accept` is
    shown the images before their files are read, and may refuse them.

    Raises:
        InputError: if there is no such data or split, an option is wrong, or an image cannot be
            read; with `skip_bad` only if none can.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}; wants at least 1 image")
    spec, fraction = _subset(spec)
    images = _reader(spec, side)(split)
    if fraction is not None:
        joint = "&" if "?" in images.source else "?"
        images = replace(
            stratified(images, fraction, seed=seed),
            source=f"{images.source}{joint}subset={fraction:g}",
        )
    if limit is not None:
        images = images.subset(balanced(images.targets, limit, seed=seed))
    if accept is not None:
        accept(images)
    return _readable(images, skip_bad=skip_bad, progress=progress or iter)


def _subset(spec: str) -> tuple[str, float | None]:
    """The specification without the option that every data set takes, and its value."""
    body, _, query = spec.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    values = [value for key, value in options if key == "subset"]
    if not values:
        return spec, None
    if len(values) > 1:
        raise InputError(f"data {spec!r} names the option 'subset' twice")
    try:
        fraction = float(values[0])
    except ValueError:
        raise InputError(
            f"data {spec!r}: subset is {values[0]!r}; wants a fraction, as 0.1"
        ) from None
    rest = "&".join(part for part in query.split("&") if not part.startswith("subset="))
    return f"{body}?{rest}" if rest else body, fraction


def _reader(spec: str, side: int | None) -> Callable[[str | None], ImageSet]:
    body, _, query = spec.partition("?")
    name, colon, place = body.partition(":")
    if name not in set(DATA) and Path(body).expanduser().exists():
        kind = "parquet" if body.endswith(".parquet") else "folder"
        raise InputError(f"unknown data {spec!r}; to read that path, write {kind}:{body}")
    function = DATA[name]
    parameters = inspect.signature(function).parameters.values()
    wants_place = any(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    if wants_place and not place:
        raise InputError(f"data {spec!r} does not say where; write {name}:PLACE")
    if colon and not wants_place:
        raise InputError(f"data {spec!r} has no place to read from; write {name}")
    kinds = {
        p.name: p.annotation
        for p in parameters
        if p.kind is p.KEYWORD_ONLY and p.name != "split"
    }
    options: dict[str, int | str] = {}
    if side is not None and "size" in kinds and "size" not in dict(parse_qsl(query)):
        spec = f"{spec}{'&' if query else '?'}size={side}"
        options["size"] = side
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in options:
            raise InputError(f"data {spec!r} names the option {key!r} twice")
        if key not in kinds:
            known = ", ".join([*kinds, "subset"])
            raise InputError(
                f"data {spec!r} has an unknown option {key!r}; {name} takes {known}"
            )
        options[key] = _number(value, f"{spec!r}: {key}") if kinds[key] is int else value
    return lambda split: replace(
        function(*[place] * wants_place, split=split, **options), source=spec
    )


def _number(value: str, what: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise InputError(f"data {what} is {value!r}; wants a whole number") from None


def _readable(images: ImageSet, *, skip_bad: bool, progress: Progress) -> ImageSet:
    """The images whose files are sound: all of them, unless the user lets some be skipped."""
    faults = [images.fault(i) for i in progress(range(len(images)))]
    bad = tuple(fault for fault in faults if fault is not None)
    if not bad:
        return images
    named = ", ".join(bad[:_NAMED]) + (", ..." if len(bad) > _NAMED else "")
    counted = f"{len(bad)} of {len(images)} images of {images.name} cannot be read: {named}"
    if len(bad) == len(images):
        raise InputError(counted)
    if not skip_bad:
        raise InputError(f"{counted}; repair them, or leave them out with --skip-bad")
    sound = np.array([i for i, fault in enumerate(faults) if fault is None])
    return replace(images.subset(sound), skipped=bad)

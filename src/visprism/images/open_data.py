"""Data by name: from text such as ``shapes?size=64`` or ``folder:photos`` to an image set."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from visprism.core.errors import InputError
from visprism.core.files import exists
from visprism.core.run import Progress
from visprism.images.image_set import DATA, ImageSet, balanced, stratified

_MAX_NAMES = 3  # of unreadable images in an error, which counts all of them


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
    """The images with the name `spec`, ``NAME[:PATH][?OPTION=VALUE&...]``.

    Every data set has the option ``subset=0.1``, a fraction of each class; see `stratified`.
    Every file is read once, so that a damaged file is reported before a measurement starts.

    Args:
        spec: the data.
        split: by default the first of test, val, ... train that exists.
        limit: largest number of images, balanced over the classes and selected at random.
        skip_bad: whether images that cannot be read are left out instead of raising.
        side: side in pixels of generated images, if `spec` has none.
        seed: of the random selection.
        progress: shows how many files are checked.
        accept: receives the images before their files are read, and may raise.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit must be positive, got {limit}")
    images, fraction = _opened(spec, split, side)
    if fraction is not None:
        images = stratified(images, fraction, seed=seed)
    if limit is not None:
        images = images.subset(balanced(images.targets, limit, seed=seed))
    if accept is not None:
        accept(images)
    return _readable(images, skip_bad=skip_bad, progress=progress)


def _opened(spec: str, split: str | None, side: int | None) -> tuple[ImageSet, float | None]:
    """The image set, and the value of the option ``subset``."""
    body, _, query = spec.partition("?")
    name, colon, place = body.partition(":")
    if name not in set(DATA) and exists(Path(body).expanduser()):
        kind = "parquet" if body.endswith(".parquet") else "folder"
        raise InputError(f"unknown data {spec!r}. To read that path, write {kind}:{body}.")
    function = DATA[name]
    parameters = inspect.signature(function).parameters.values()
    takes_path = any(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    if takes_path and not place:
        raise InputError(f"data {name} must have a path, got {spec!r}. Write {name}:PATH.")
    if colon and not takes_path:
        raise InputError(f"data {name} must have no path, got {spec!r}. Write {name}.")
    kinds = {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY}
    kinds = {key: kind for key, kind in kinds.items() if key != "split"} | {"subset": float}
    options: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in options:
            raise InputError(f"data must name the option {key} once, got {spec!r}")
        if key not in kinds:
            raise InputError(
                f"options of data {name} must be of {', '.join(kinds)}, got {key!r} in {spec!r}"
            )
        try:
            options[key] = kinds[key](value) if kinds[key] in (int, float) else value
        except ValueError:
            what = "an integer" if kinds[key] is int else "a fraction such as 0.1"
            raise InputError(f"{key} must be {what}, got {value!r} in {spec!r}") from None
    fraction = options.pop("subset", None)
    source = [part for part in query.split("&") if part and not part.startswith("subset=")]
    if side is not None and "size" in kinds and "size" not in options:
        options["size"] = side
        source.append(f"size={side}")
    source += [] if fraction is None else [f"subset={fraction:g}"]
    images = function(*[place] * takes_path, split=split, **options)
    return replace(images, source="?".join(filter(None, [body, "&".join(source)]))), fraction


def _readable(images: ImageSet, *, skip_bad: bool, progress: Progress | None) -> ImageSet:
    """The images whose files can be read: all of them, unless `skip_bad`."""
    indices = range(len(images))
    tracked = progress(indices, "checking images") if progress else indices
    faults = [images.fault(i) for i in tracked]
    bad = tuple(fault for fault in faults if fault is not None)
    if not bad:
        return images
    named = ", ".join(bad[:_MAX_NAMES]) + (", ..." if len(bad) > _MAX_NAMES else "")
    counted = f"{len(bad)} of {len(images)} images of {images.name} cannot be read: {named}"
    if len(bad) == len(images):
        raise InputError(counted)
    if not skip_bad:
        raise InputError(f"{counted}. Repair them, or set skip_bad=True to leave them out.")
    readable = np.array([i for i, fault in enumerate(faults) if fault is None])
    return replace(images.subset(readable), skipped=bad)

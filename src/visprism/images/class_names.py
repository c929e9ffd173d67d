"""Names of classes on both sides: which output of a model stands for which class."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Int64

from visprism.core.class_names import ModelClasses
from visprism.images.images import Images

_SHOWN = 3  # pairs or names in a sentence
_WORDNET = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class MatchedClasses:
    """Images whose targets are outputs of a model, and what is said about it."""

    images: Images = field(repr=False)
    note: str = ""  # for the plan and the page
    reason: str = ""  # why targets cannot be compared with outputs


def matched_outputs(
    model: Sequence[Sequence[str]], data: Sequence[str]
) -> Int64[np.ndarray, " k"]:
    """The output that stands for each class of the data, or -1.

    Names are compared exactly, then by WordNet identifier, then by their letters and digits in
    lower case, synonyms included. A name that several outputs have matches the output with
    the same index, or none.

    Example:
        >>> matched_outputs([["cat"], ["tree frog, Hyla"], ["dog"]], ["Dog", "tree_frog"])
        array([2, 1])
    """
    levels: list[dict[str, set[int]]] = [{}, {}, {}]
    for output, names in enumerate(model):
        for level, key in _keys(names):
            levels[level].setdefault(key, set()).add(output)
    outputs = []
    for index, name in enumerate(data):
        places = (levels[level].get(key, set()) for level, key in _keys([name]))
        of_class = next(filter(None, places), set())
        fits = {index} if index in of_class else of_class
        outputs.append(fits.pop() if len(fits) == 1 else -1)
    repeated = {o for o in outputs if outputs.count(o) > 1}
    return np.array([-1 if o in repeated else o for o in outputs], dtype=np.int64)


def _keys(names: Sequence[str]) -> list[tuple[int, str]]:
    """Keys of a class by level: exact names, WordNet identifiers, normalized synonyms."""
    words = [word for name in names for word in (name, *name.split(","))]
    exact = [(0, name) for name in names]
    identifiers = [(1, i) for name in names for i in _WORDNET.findall(name)]
    plain = (re.sub(r"[\W_]", "", word.casefold()) for word in words)
    return [*exact, *identifiers, *((2, word) for word in dict.fromkeys(plain) if word)]


def matched(images: Images, classes: ModelClasses, outputs: int) -> MatchedClasses:
    """The images with targets that are outputs of the model, where names state which.

    Args:
        images: with the classes of the data.
        classes: names of the model's outputs.
        outputs: number of outputs; names of another number are not used.
    """
    names = classes.names if len(classes.names) == outputs else ()
    if images.targets is None or images.textures is not None or not outputs:
        return MatchedClasses(images)
    numbers = all(name.isdigit() for name in images.class_names)
    if numbers and not all(n.isdigit() for synonyms in names for n in synonyms[:1]):
        data: Sequence[str] = ()  # numbers of classes, which are no names
    else:
        data = images.class_names
    if not names or not data:
        known = data or [n[0] for n in names]
        return MatchedClasses(images, _pairs_text(known, by_model=not data))
    of_class = matched_outputs(names, data)
    if (of_class == np.arange(len(data))).all() and len(data) == outputs:
        return MatchedClasses(images)
    missing = [name for name, output in zip(data, of_class, strict=True) if output < 0]
    if missing and (classes.stated or len(missing) < len(data)):
        return MatchedClasses(images, reason=_refusal(images.name, missing, data, names))
    if missing:
        return MatchedClasses(images, _pairs_text(data, by_model=False))
    return _with_outputs(images, of_class, [n[0] for n in names])


def _with_outputs(
    images: Images, of_class: Int64[np.ndarray, " k"], names: Sequence[str]
) -> MatchedClasses:
    assert images.targets is not None
    data, whole = images.class_names, images.image_set
    subset = tuple(sorted(of_class.tolist())) if len(of_class) < len(names) else ()
    mapped = replace(
        images,
        targets=of_class[images.targets],
        num_classes=len(names),
        class_names=tuple(names),
        class_subset=subset,
        image_set=whole and replace(whole, targets=of_class[whole.targets]),
        digest=images.fingerprint(),
    )
    moved = [i for i, output in enumerate(of_class.tolist()) if i != output] or [0]
    pairs = "; ".join(f"{data[i]} is output {of_class[i]}" for i in moved[:_SHOWN])
    part = f", {len(of_class)} of the model's {len(names)}" if subset else ""
    return MatchedClasses(mapped, f"classes are matched by name{part}: {pairs}")


def _pairs_text(names: Sequence[str], *, by_model: bool) -> str:
    """What the outputs stand for, where only one side has names."""
    if not names:
        return ""
    pairs = ", ".join(f"output {i} = {name}" for i, name in enumerate(names[:_SHOWN]))
    source = "the model, the data names none" if by_model else "the data, the model names none"
    more = ", ..." if len(names) > _SHOWN else ""
    return f"classes in the order of {source}: {pairs}{more}"


def _refusal(
    data: str, missing: Sequence[str], every: Sequence[str], names: Sequence[Sequence[str]]
) -> str:
    others = ", ".join(missing[:_SHOWN]) + ", ..." * (len(missing) > _SHOWN)
    first = ", ".join(n[0] for n in names[:_SHOWN])
    return (
        f"{len(missing)} of the {len(every)} classes of {data} must be classes of the model, "
        f"got {others}; the model has {first}, .... Rename or leave out these classes, or name "
        "the outputs: MODEL?classes=FILE with a name in each line, or model.class_names = [...]"
    )

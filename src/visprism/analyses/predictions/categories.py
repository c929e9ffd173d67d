"""Categories of the cue-conflict images as classes of ImageNet.

Source: Geirhos et al. (2018), Generalization in humans and deep neural networks, app. C, with
the indices of the authors' repository.
"""

from collections.abc import Sequence

from visprism.core.errors import InputError

_CLASSES = 1000  # of ImageNet

# First and last index of each run of classes.
_RUNS: dict[str, tuple[tuple[int, int], ...]] = {
    "airplane": ((404, 404),),
    "bear": ((294, 297),),
    "bicycle": ((444, 444), (671, 671)),
    "bird": (
        (8, 8), (10, 16), (18, 20), (22, 24), (80, 83), (87, 96), (98, 100), (127, 133),
        (135, 145),
    ),
    "boat": ((472, 472), (554, 554), (625, 625), (814, 814), (914, 914)),
    "bottle": ((440, 440), (720, 720), (737, 737), (898, 899), (901, 901), (907, 907)),
    "car": ((436, 436), (511, 511), (817, 817)),
    "cat": ((281, 286),),
    "chair": ((423, 423), (559, 559), (765, 765), (857, 857)),
    "clock": ((409, 409), (530, 530), (892, 892)),
    "dog": (
        (152, 191), (193, 203), (205, 226), (228, 241), (243, 250), (252, 257), (259, 259),
        (261, 263), (265, 268),
    ),
    "elephant": ((385, 386),),
    "keyboard": ((508, 508), (878, 878)),
    "knife": ((499, 499),),
    "oven": ((766, 766),),
    "truck": (
        (555, 555), (569, 569), (656, 656), (675, 675), (717, 717), (734, 734), (864, 864),
        (867, 867),
    ),
}  # fmt: skip

SIXTEEN = {
    name: tuple(c for first, last in runs for c in range(first, last + 1))
    for name, runs in _RUNS.items()
}


def classes_of(categories: Sequence[str], num_classes: int) -> list[tuple[int, ...]]:
    """The classes of a model that belong to each category.

    A model of the 1000 classes of ImageNet has several for each of the 16 categories; one with
    as many classes as there are categories has them in the same order.
    """
    if num_classes == len(categories):
        return [(i,) for i in range(num_classes)]
    unknown = [name for name in categories if name not in SIXTEEN]
    if num_classes == _CLASSES and not unknown:
        return [SIXTEEN[name] for name in categories]
    got = f"categories {', '.join(unknown[:3])}" if num_classes == _CLASSES else num_classes
    raise InputError(
        f"num_classes must be {len(categories)}, the number of categories, or {_CLASSES} with "
        f"the 16 categories of Geirhos et al. (airplane, bear, ..., truck), got {got}"
    )

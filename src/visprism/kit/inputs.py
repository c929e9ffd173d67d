"""From what a user passes as models and data to subjects, of a study or of one analysis."""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.trace.forward import without_replicas
from visprism.core.class_names import CLASS_NAMES, ModelClasses
from visprism.core.devices import default_device
from visprism.core.errors import InputError, printable
from visprism.core.files import slug
from visprism.core.preprocessing import (
    NORMALIZATIONS,
    OUTPUT,
    TENSORS_NOT_STATED,
    Preprocessing,
)
from visprism.core.request import DataOptions
from visprism.core.run import DEFAULT_RUN, Run
from visprism.images.class_names import matched
from visprism.images.image_set import ImageSet, MissingSplitError
from visprism.images.images import Images, ordered, tensor_images
from visprism.images.open_data import (
    check_name,
    class_names_of,
    image_set_of,
    in_order,
    load_data,
    normalization_of,
)
from visprism.kit.model_on_images import (
    BATCH_SIZE,
    Subject,
    check_images_differ,
    dissected,
    num_outputs,
    preprocessing_of,
)
from visprism.kit.task_of_data import task_of

DataName = str | PathLike
_TRAIN = "train"
_CHECKED = 5000  # files that are read before a study starts, which may measure fewer


def normalization_given(options: DataOptions) -> Preprocessing | None:
    """The normalization that the user gives, in any size."""
    if options.mean is not None and options.std is not None:
        return Preprocessing((1, 1), options.mean, options.std)
    if options.normalization == "stated":
        return None
    return Preprocessing((1, 1), *NORMALIZATIONS[options.normalization])


@dataclass(frozen=True)
class Candidate:
    """A model that a study is asked to measure, before it has seen an image."""

    model: nn.Module
    label: str  # short, for tables and figures
    spec: str = ""  # how the user names it; "" for a module
    preprocessing: Preprocessing | None = None  # None: nothing says
    trained: bool = True
    recipe: Mapping[str, Any] = field(default_factory=dict)  # of its training
    anatomy: Anatomy | None = None  # where the user has dissected it already


def ungrouped(models: Any) -> tuple[Any, dict[str, list[str]]]:
    """Models by name, and the names of the models of each group.

    A mapping may hold sequences, the seeds of one architecture: ``{"cnn": [a, b]}`` becomes
    ``{"cnn 1": a, "cnn 2": b}`` and ``{"cnn": ["cnn 1", "cnn 2"]}``. Without a sequence there
    are no groups.
    """
    if not isinstance(models, Mapping):
        return models, {}
    if not any(isinstance(of, list | tuple) for of in models.values()):
        return models, {}
    named: dict[str, Any] = {}
    groups: dict[str, list[str]] = {}
    for group, of_group in models.items():
        members = of_group if isinstance(of_group, list | tuple) else [of_group]
        names = [f"{group} {i}" for i in range(1, len(members) + 1)]
        names = names if len(members) > 1 else [str(group)]
        named |= dict(zip(names, members, strict=True))
        groups[str(group)] = names
    return named, groups


def candidates_of(
    models: Any,
    *,
    pretrained: bool | None = None,
    output: str | None = None,
    run: Run = DEFAULT_RUN,
) -> dict[str, Candidate]:
    """Models by name: a module, an anatomy, a loaded model, a name, a sequence or a mapping."""
    if isinstance(models, Mapping):
        made = [_candidate(model, pretrained, run) for model in models.values()]
        named = dict(zip(map(str, models), made, strict=True))
    else:
        single = not isinstance(models, Iterable) or isinstance(
            models, str | nn.Module | Anatomy
        )
        listed = [models] if single else list(models)
        made = [_candidate(model, pretrained, run) for model in listed]
        labels = [model.label for model in made]
        titles = [(m.spec if labels.count(m.label) > 1 else "") or m.label for m in made]
        repeated = {title for title in titles if titles.count(title) > 1}
        if repeated:
            raise InputError(
                f"models must have different names, got {min(repeated)!r} twice. "
                "Name each model once; in Python, a mapping names the models."
            )
        named = dict(zip(titles, made, strict=True))
    for candidate in named.values() if output is not None else ():
        setattr(candidate.model, OUTPUT, str(output))
    if not named:
        raise InputError("models must name at least one model, got none")
    for name in named:
        if name != printable(name):
            raise InputError(f"names of models must have printable characters, got {name!r}")
    files = [slug(name) for name in named]
    same = [name for name, file in zip(named, files, strict=True) if files.count(file) > 1]
    if same:
        raise InputError(
            f"models must have different file names, got {', '.join(map(repr, same))}"
        )
    return named


def check_names(data: Any, train_data: Any, options: DataOptions) -> None:
    """Raise if data is given by a name that does not exist; cheap, before models are built."""
    for name, split in ((data, options.split), (train_data, _TRAIN)):
        if isinstance(name, DataName):
            check_name(str(name), split)


def subjects_of(
    models: Mapping[str, Candidate],
    data: Any,
    train_data: Any,
    options: DataOptions,
    *,
    preprocessing: Any,
    run: Run,
) -> list[Subject]:
    """A subject for each model, all on the same images."""
    if options.split is not None and not isinstance(data, DataName):
        raise InputError(
            f"split selects a part of data that is given by name, got {options.split!r} and a "
            f"{type(data).__name__}. Pass the images of that split as data."
        )
    given, preprocessing = normalization_given(options), _preprocessing_of_user(preprocessing)
    if preprocessing is not None and given is not None:
        raise InputError(
            "preprocessing or a normalization must be given, got both: "
            f"{preprocessing} and {given.normalization}"
        )
    stated = {name: _stated(m, preprocessing, options.size) for name, m in models.items()}
    unknown = None if options.size is None else max(options.size)
    sides = (_side(way) for way in stated.values() if way is not None)
    side = max(sides, default=unknown)
    known = preprocessing or given  # of tensors
    images = images_of(data, options, side=side, seed=run.seed, preprocessing=known)
    training = _training_images(data, train_data, images, options, side, run.seed, known)
    subjects = [
        _subject(name, model, images, training, stated[name], options, run)
        for name, model in models.items()
    ]
    for subject in subjects:
        check_images_differ(images, subject.preprocessing)
    return subjects


def subject_of(
    model: Any,
    data: Any,
    *,
    preprocessing: Any = None,
    run: Run = DEFAULT_RUN,
    name: str = "",
    task: Any = None,
) -> Subject:
    """The subject of one analysis outside of a study: all images, in their own order."""
    preprocessing = _preprocessing_of_user(preprocessing)
    given, options = _candidate(model, None, run), DataOptions(task=task)
    stated = preprocessing or given.preprocessing
    side = None if stated is None else _side(stated)
    images = images_of(data, options, side=side, seed=None, preprocessing=preprocessing)
    return _subject(name or given.label, given, images, images, stated, options, run)


def images_of(
    data: Any,
    options: DataOptions,
    *,
    side: int | None = None,
    seed: int | None = 0,
    preprocessing: Preprocessing | None = None,
) -> Images:
    """The images from whatever a user passes, in `nested_order`; without a seed as read."""
    if isinstance(data, Images):
        return data
    images = _images_of(data, options, side, seed, preprocessing)
    return replace(images, limit=options.limit)


def _images_of(
    data: Any,
    options: DataOptions,
    side: int | None,
    seed: int | None,
    preprocessing: Preprocessing | None,
) -> Images:
    drawn = seed or 0  # which images, where there is a limit
    # A limit selects the first images of the order, which they are then in.
    order = seed if options.limit is None else None
    if isinstance(data, DataName):
        read = load_data(
            str(data),
            split=options.split,
            limit=options.limit,
            skip_bad=options.skip_bad,
            checked=_CHECKED,
            side=side,
            seed=drawn,
        )
        return ordered(read, seed=order)
    if isinstance(data, ImageSet):
        return ordered(data, seed=seed, limit=options.limit)
    inner = getattr(data, "loader", data)  # timm's loader normalizes what another one reads
    if isinstance(inner, DataLoader):
        way, limit = preprocessing or normalization_of(inner.dataset), options.limit
        loader, indices = in_order(inner, limit, seed=drawn)
        if inner is not data:
            whole = copy(data)
            whole.loader, loader = loader, whole
        images = tensor_images(
            loader,
            limit=limit,
            preprocessing=way,
            seed=seed if indices is None else order,
            class_names=class_names_of(data.dataset),
        )
        return (
            images if indices is None else replace(images, positions=indices[images.positions])
        )
    if hasattr(data, "__getitem__") and not isinstance(data, IterableDataset | Mapping):
        pictures = image_set_of(data, limit=options.limit, seed=drawn)
        if pictures is not None:
            return ordered(pictures, seed=seed, limit=options.limit)
    if isinstance(data, Dataset) and not _gives_batches(data):
        loader = DataLoader(data, batch_size=options.batch_size or BATCH_SIZE)
        return _images_of(loader, options, side, seed, preprocessing)
    if isinstance(data, Iterable):
        return tensor_images(data, limit=options.limit, preprocessing=preprocessing, seed=seed)
    raise InputError(
        "data must be an iterable of batches, a DataLoader, a Dataset, an ImageSet or a name, "
        f"got {type(data).__name__}"
    )


def _gives_batches(data: Dataset) -> bool:
    """Whether an iterable data set gives batches of images instead of single images."""
    if not isinstance(data, IterableDataset):
        return False
    item = next(iter(data), None)
    images = item[0] if isinstance(item, tuple | list) and item else item
    return getattr(images, "ndim", 0) == 4


def _training_images(
    data: Any,
    train_data: Any,
    images: Images,
    options: DataOptions,
    side: int | None,
    seed: int,
    preprocessing: Preprocessing | None,
) -> Images:
    """The training images: those given, the training split of named data, or `images`."""
    if train_data is not None:
        split = replace(options, split=_TRAIN if isinstance(train_data, DataName) else None)
        read = images_of(train_data, split, side=side, seed=seed, preprocessing=preprocessing)
        return replace(read, split=_TRAIN) if read.image_set is None else read
    other = images.split not in ("", _TRAIN) and options.split is None
    if isinstance(data, DataName) and other:
        try:
            return images_of(data, replace(options, split=_TRAIN), side=side, seed=seed)
        except MissingSplitError:  # the provenance says which split it is
            return images
    return images


def _subject(
    name: str,
    model: Candidate,
    images: Images,
    training: Images,
    stated: Preprocessing | None,
    options: DataOptions,
    run: Run,
) -> Subject:
    way, given = images.preprocessing(stated), normalization_given(options)
    if way is not None and given is not None:
        way = replace(way, mean=given.mean, std=given.std, stated=True)
    if options.size is not None:
        way = _resized(way, images, options.size)
    anatomy = model.anatomy or dissected(model.model, images, way, run, name)
    classes, outputs = _classes_of(model.model), num_outputs(anatomy)
    matches = matched(images, classes, outputs)
    trained_on = matches if training is images else matched(training, classes, outputs)
    both = [matches.images, trained_on.images]
    of_data = task_of(options.task, anatomy, both, way, run)
    subject = Subject(
        name=name,
        anatomy=anatomy,
        images=of_data.images[0],
        training_images=of_data.images[1],
        task=of_data.task,
        without_outcome=of_data.reason,
        classes=classes,
        notes=tuple(filter(None, (*images.notes, matches.note, _frozen_text(model.model)))),
        unmatched=matches.reason or trained_on.reason,
        preprocessing=way,
        tensors="" if images.image_set is not None else _tensors_text(images, way, stated),
        spec=model.spec,
        trained=model.trained,
        weight_decay=model.recipe.get("weight_decay"),
        decayed=str(model.recipe.get("decay_params", "all")),
        batch_size=options.batch_size or BATCH_SIZE,
        output_batch_size=options.batch_size,
    )
    subject.release()
    return subject


def _tensors_text(
    images: Images, way: Preprocessing | None, stated: Preprocessing | None
) -> str:
    """How tensors are normalized: as the data state, or else as the model does."""
    if way is None:
        return TENSORS_NOT_STATED
    text = f"{way.size[0]}x{way.size[1]} tensors, {way.normalization}"
    if images.normalization is None:
        return f"{text}, as the model states"
    if stated is None or not stated.stated or stated.normalization == way.normalization:
        return text
    return f"{text}, but the model states {stated.normalization}"


def _resized(
    way: Preprocessing | None, images: Images, size: tuple[int, int]
) -> Preprocessing | None:
    if images.image_set is None:
        shape = images.image_shape
        if shape[-2:] != tuple(size):
            raise InputError(
                f"size must be the tensors' size, {'x'.join(map(str, shape[-2:]))}, got "
                f"{'x'.join(map(str, size))}. Resize the images in the data, or pass images "
                "that are not tensors."
            )
        return way
    return None if way is None else replace(way, size=size, crop=1.0)


def _candidate(model: Any, pretrained: bool | None, run: Run) -> Candidate:
    if isinstance(model, Anatomy):
        way = preprocessing_of(model.model)
        return Candidate(model.model, type(model.model).__name__, "", way, anatomy=model)
    if isinstance(model, nn.Module):
        model = without_replicas(model)
        written = getattr(model, "_orig_mod", model)  # what torch.compile was given
        return Candidate(model, type(written).__name__, preprocessing=preprocessing_of(written))
    from visprism.models.loading import LoadedModel, load_model

    if isinstance(model, str):
        model = load_model(model, pretrained=pretrained, seed=run.seed)
        if run.compute.device is None:
            model.model.to(default_device())
    if isinstance(model, LoadedModel):
        way = model.preprocessing if model.preprocessing_stated else None
        return Candidate(model.model, model.label, model.name, way, model.trained, model.recipe)
    raise InputError(
        "a model must be an nn.Module, an Anatomy, a LoadedModel or a name, got "
        f"{type(model).__name__}"
    )


def _frozen_text(model: nn.Module) -> str:
    """Which parameters curvature is about, of a model in which some are frozen."""
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters()]
    number, trained = sum(n for n, _ in sizes), sum(n for n, grad in sizes if grad)
    if trained in (0, number):
        return ""
    return (
        f"curvature is about the {trained:,} of {number:,} parameters with requires_grad; "
        "--parameters all takes the frozen ones too"
    )


def _classes_of(model: nn.Module) -> ModelClasses:
    """The names of a model's outputs; of a module without such attributes at no cost."""
    if not {CLASS_NAMES, "config", "pretrained_cfg"} & set(dir(model)):
        return ModelClasses()
    from visprism.models.class_names import classes_of  # imports timm: seconds

    return classes_of(model)


def _preprocessing_of_user(given: Any) -> Preprocessing | None:
    if isinstance(given, Preprocessing | None):
        return given
    from visprism.models.data_configs import preprocessing_from  # imports timm: seconds

    return preprocessing_from(given)


def _side(way: Preprocessing) -> int:
    """The side of images that lose nothing when they are resized for the crop."""
    return int(max(way.size) / way.crop)


def _stated(
    model: Candidate, given: Preprocessing | None, size: tuple[int, int] | None
) -> Preprocessing | None:
    way = given or model.preprocessing
    return replace(way, size=size, crop=1.0) if way is not None and size is not None else way

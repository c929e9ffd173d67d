"""Loading: any vision model, from one line of text."""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from visprism.core.class_names import CLASS_NAMES
from visprism.core.errors import InputError, shortage
from visprism.core.files import exists, is_file
from visprism.core.preprocessing import OUTPUT, Preprocessing
from visprism.core.run import stream
from visprism.models.author_checkpoints import from_authors
from visprism.models.checkpoints import load_state, read_metadata
from visprism.models.class_names import read_class_names
from visprism.models.data_configs import states_preprocessing
from visprism.models.pretrained import default_card, with_pretrained_weights
from visprism.models.sources import RANDOM, SOURCES, check_listed, stored_model_name
from visprism.models.spec import ModelSpec
from visprism.models.state_dicts import read_state_dict

_PUBLISHED = ("timm", "torchvision", "hf")  # sources whose published weights are the default


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode, and the preprocessing of its images."""

    model: nn.Module = field(repr=False)
    preprocessing: Preprocessing
    name: str  # as the user wrote it, and what its weights are
    label: str  # the same, short: for the title of a figure
    trained: bool = True  # False: the weights are random
    preprocessing_stated: bool = True  # False: nothing states the preprocessing
    recipe: Mapping[str, Any] = field(default_factory=dict)  # of its training, if it is known


def load_model(text: str, *, pretrained: bool | None = None, seed: int = 0) -> LoadedModel:
    """Load a model by name; see `visprism.models.spec` for the names.

    The weights come from the checkpoint or tag in `text` (``resnet20@FILE``,
    ``resnet20.cifar10``). Without one, models of timm, torchvision and Hugging Face have their
    published weights, and models of the zoo and of Python files random weights, drawn from
    `seed`. `pretrained` True also loads the default weights of a model of the zoo, and False
    asks for random weights, as ``?pretrained=False`` in `text` does. The preprocessing in a
    checkpoint is used. A checkpoint that names its model, as `visprism train` writes,
    needs no model name if that is a model of the zoo, timm, torchvision or Hugging Face:
    metadata never run code. The four checkpoints of the authors of "How do vision transformers
    work?" load under the zoo's name of the network, as ``resnet50_32@FILE``.
    """
    named = ModelSpec.parse(model_name(text))
    arguments = dict(named.arguments)
    if named.source != "file" and "pretrained" in arguments:
        pretrained = arguments.pop("pretrained")
        if not isinstance(pretrained, bool):
            raise InputError(f"pretrained must be True or False, got {pretrained!r}")
    output, classes = arguments.pop("output", None), arguments.pop("classes", None)
    if named.source == "hf" and classes is not None and "template" in arguments:
        return _with_text_head(named, arguments, Path(str(classes)), pretrained)
    named = replace(named, arguments=arguments)
    spec = with_pretrained_weights(named, pretrained=pretrained is True)
    published = spec.source in _PUBLISHED if pretrained is None else pretrained
    stored = _Stored.read(spec)
    spec = replace(spec, arguments={**stored.arguments, **spec.arguments})
    with _wrap_build_errors(spec), torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(stream(seed, "weights").get_state())
        model, preprocessing, weights = SOURCES[spec.source](
            spec, pretrained=published and spec.checkpoint is None
        )
    if spec.checkpoint is not None:
        load_state(model, stored.state, spec.checkpoint)
        preprocessing = stored.preprocessing or preprocessing
        if stored.class_names:
            setattr(model, CLASS_NAMES, stored.class_names)
        card = None if named.checkpoint else default_card(named.name)
        weights = f"pretrained {card.tag}" if card else ""
    if classes is not None:
        setattr(model, CLASS_NAMES, read_class_names(Path(str(classes))))
    if output is not None:
        setattr(model, OUTPUT, str(output))
    remark = f" ({weights})" if weights else ""
    stated = spec.source != "file" or stored.preprocessing is not None
    stated = stated or states_preprocessing(model, spec.arguments)
    if stated:
        model.preprocessing = preprocessing  # pyrefly: ignore (the module states it itself)
    return LoadedModel(
        model.eval(),
        preprocessing,
        text + remark,
        named.label + remark,
        trained=weights != RANDOM,
        preprocessing_stated=stated,
        recipe=stored.recipe,
    )


def _with_text_head(
    named: ModelSpec, arguments: dict[str, Any], classes: Path, pretrained: bool | None
) -> LoadedModel:
    """CLIP or SigLIP with the names in a file as classes; see `text_heads`."""
    from visprism.models.text_heads import text_classifier

    template = str(arguments.pop("template"))
    spec = replace(named, arguments=arguments)
    _, preprocessing, words = SOURCES["hf"](spec, pretrained=pretrained is not False)
    names = read_class_names(classes)
    model = text_classifier(
        str(Path(spec.name).expanduser()), names, template, pretrained=pretrained is not False
    )
    trained = words != RANDOM
    return LoadedModel(model, preprocessing, named.text, named.label, trained=trained)


def check_model(text: str) -> None:
    """Raise if there is no such model or weights, without building it; see `check_listed`."""
    spec = with_pretrained_weights(ModelSpec.parse(text), pretrained=False)
    arguments = {
        k: v for k, v in spec.arguments.items() if k not in ("output", "classes", "template")
    }
    check_listed(replace(spec, arguments=arguments))


@dataclass(frozen=True)
class _Stored:
    """What a checkpoint holds for the model that a user names with it."""

    state: Mapping[str, Tensor] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)  # that the weights ask for
    preprocessing: Preprocessing | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()

    @classmethod
    def read(cls, spec: ModelSpec) -> "_Stored":
        """Read the checkpoint of `spec`; empty if it names none."""
        path = spec.checkpoint
        if path is None:
            return cls()
        state = read_state_dict(path)
        pickled = spec.source == "zoo" and path.suffix != ".safetensors"
        theirs = from_authors(spec.name, state) if pickled else None
        if theirs is not None:
            return cls(*theirs)
        metadata = read_metadata(path)
        return cls(state, {}, metadata.preprocessing, metadata.recipe, metadata.class_names)


def model_name(text: str) -> str:
    """``MODEL@FILE``, also if only the file is named."""
    path = Path(text)
    if "/" in text and exists(path) and path.is_dir():
        raise InputError(
            f"{text} is a folder. Write hf:{text} for a model of Hugging Face in it, or "
            f"MODEL@FILE for weights, such as resnet20@{path / 'FILE'}."
        )
    stated = text.endswith(".safetensors")
    if "@" in text or not (stated or (is_file(path) and path.suffix != ".py")):
        return text
    provenance = read_metadata(text).provenance if stated else None
    if provenance is None or not provenance.model:
        raise InputError(
            f"{text} does not name its model. Write MODEL@FILE, such as resnet20@{text}."
        )
    return f"{stored_model_name(provenance.model, Path(text))}@{text}"


@contextmanager
def _wrap_build_errors(spec: ModelSpec) -> Iterator[None]:
    """Turn any error of a library or of the user's file into one sentence."""
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit, GeneratorExit) as error:  # of the user's file
        if shortage(error):
            raise
        cause = str(error).strip().partition("\n")[0].rstrip(".")
        here = spec.source == "hf" and Path(spec.name).expanduser().is_dir()
        if spec.source == "file":
            frame = traceback.extract_tb(error.__traceback__)[-1]
            cause += f" ({frame.filename}, line {frame.lineno})"
        elif isinstance(error, OSError) and not here:
            remedy = "a checkpoint, as MODEL@FILE"
            if spec.source == "hf":
                remedy = "a local folder, as hf:FOLDER"
            raise InputError(
                f"{spec.text} needs files that could not be downloaded ({cause}). Name "
                f"{remedy}, or load it with random weights: ?pretrained=False in its name, or "
                "--random-weights on the command line."
            ) from error
        raise InputError(
            f"{spec.text} cannot be built: {type(error).__name__}: {cause}"
        ) from error

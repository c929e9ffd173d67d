"""Sources of models: one function each, which builds a model and states its preprocessing.

A builder takes a `ModelSpec` and whether to ask for pretrained weights. It returns the model,
its `Preprocessing`, and a phrase for its weights (empty where only the user knows).
"""

import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from socket import create_connection
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import nn

from visprism.core.class_names import CLASS_NAMES
from visprism.core.errors import InputError
from visprism.core.preprocessing import NORMALIZATIONS, Preprocessing
from visprism.models.data_configs import from_attributes, from_image_processor, from_torchvision
from visprism.models.spec import ModelSpec, Source, explain_unknown_argument, unknown_model
from visprism.models.zoo_registry import MODELS, image_size

_REGISTERED = re.compile(r"[\w.-]+")  # a name of the zoo, timm or torchvision
_REPOSITORY = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # OWNER/NAME of the Hugging Face Hub
_WORD = re.compile(r"[\w.+-]*")  # such as "gelu"; it cannot name a folder
# Options by which libraries load weights or code, none of which describes an architecture.
LOADING_OPTIONS = frozenset(
    {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir"}
    | {"weights", "weights_backbone", "trust_remote_code", "code_revision", "gguf_file"}
    | {"use_kernels", "allow_all_kernels", "attn_implementation", "model_args"}
)


def stored_model_name(text: str, path: Path) -> str:
    """The architecture that the metadata of `path` name, if it is safe to build.

    A checkpoint in the name is left out: the weights come from `path`.

    Example:
        >>> stored_model_name("resnet20?num_classes=100@start.pt", Path("best.safetensors"))
        'resnet20?num_classes=100'
    """
    try:
        spec = ModelSpec.parse(text)
    except InputError as error:
        raise _refused(text, path, "that is not a model name") from error
    if spec.source == "file":
        raise _refused(text, path, "metadata must not name code")
    allowed = _REPOSITORY if spec.source == "hf" else _REGISTERED
    if not allowed.fullmatch(spec.name) or ".." in spec.name:
        raise _refused(text, path, "metadata must not name a path")
    for name, value in spec.arguments.items():
        if name in LOADING_OPTIONS or name.startswith("_"):
            raise _refused(text, path, f"metadata must not set {name}")
        if not is_plain(value):
            raise _refused(
                text, path, f"{name} must be a number, a boolean, a string or a list of these"
            )
    return text.partition("@")[0]


def check_configuration(values: Mapping[str, Any], source: str) -> None:
    """Check that a Hugging Face configuration selects an architecture and no code.

    Attention kernels of the Hub are code; the wrapper of timm passes on any argument.
    """
    kernel = values.get("attn_implementation") or ""
    architecture = values.get("architecture") or ""
    arguments = values.get("model_args") or {}
    loading = isinstance(arguments, Mapping) and sorted(LOADING_OPTIONS & set(arguments))
    fault = None
    if not isinstance(kernel, str) or "/" in kernel:
        fault = f"attn_implementation={kernel!r} would load code"
    elif not isinstance(architecture, str) or ":" in architecture:
        fault = f"architecture={architecture!r} is not a name of timm"
    elif (
        not isinstance(arguments, Mapping)
        or loading
        or not all(map(is_plain, arguments.values()))
    ):
        fault = f"model_args={arguments!r} must be numbers, flags and words of an architecture"
    if fault:
        raise InputError(f"the configuration of {source} is refused: {fault}")


def is_plain(value: object) -> bool:
    """Whether an option is a number, a boolean, a string, None, or a list of these."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None
    return value is None or isinstance(value, bool | int | float)


def _refused(text: str, path: Path, reason: str) -> InputError:
    stated = text if len(text) <= 200 else f"{text[:200]}..."
    return InputError(
        f"the metadata of {path} name the model {stated!r}, which is refused: {reason}. "
        f"Name the model before the file, as file.py:function@{path}."
    )


_log = logging.getLogger(__name__)
RANDOM = "random weights"
_PATIENCE = 2.0  # seconds
Built = tuple[nn.Module, Preprocessing, str]


def names_elsewhere() -> list[str]:
    """Every model that timm and torchvision list, with its prefix."""
    import timm
    from torchvision import models

    torchvision = models.list_models(module=models)
    return [f"timm:{n}" for n in timm.list_models()] + [f"torchvision:{n}" for n in torchvision]


def check_listed(spec: ModelSpec) -> None:
    """Raise if the zoo, timm or torchvision lists no such model, or the zoo no such option."""
    import timm
    from torchvision import models

    match spec.source:
        case "timm" if not timm.is_model(spec.name):
            raise unknown_model(spec, [f"timm:{name}" for name in timm.list_models()])
        case "torchvision" if spec.name not in (names := models.list_models(module=models)):
            raise unknown_model(spec, [f"torchvision:{name}" for name in names])
        case "zoo" if spec.name not in MODELS:
            raise unknown_model(spec, [*MODELS, *names_elsewhere()])
        case "zoo":
            build = MODELS[spec.name]
            with explain_unknown_argument(spec, build):
                inspect.signature(build).bind(**spec.arguments)


def _timm(spec: ModelSpec, *, pretrained: bool) -> Built:
    import timm

    _check_architecture_only(spec)
    name, tag = spec.name, ""
    stored = name.startswith(("hf-hub:", "hf_hub:"))
    if stored:
        name = _architecture_of(name.partition(":")[2])
    elif "/" in name:
        raise InputError(
            f"{spec.text} must be a name of timm. A repository of the Hugging Face Hub is "
            f"hf:{name}, and timm:hf-hub:{name} if it holds a model of timm."
        )
    else:
        check_listed(spec)
        config = timm.get_pretrained_cfg(name)
        tag = config.tag if config else ""
        pretrained = pretrained and bool(config and config.has_weights)
    explained = explain_unknown_argument(spec, timm.model_entrypoint(name))
    with explained, _hub(stored or pretrained):
        model = timm.create_model(spec.name, pretrained=pretrained, **spec.arguments)
    words = f"pretrained {tag}".strip() if pretrained else RANDOM
    return model, from_attributes(model, spec.arguments), words


def _architecture_of(repository: str) -> str:
    """The network of timm that a repository of the Hugging Face Hub holds."""
    from timm.models import load_model_config_from_hf

    _require_hub(repository)
    with _hub(True):
        _, architecture, arguments = load_model_config_from_hf(repository)
    check_configuration({"architecture": architecture, "model_args": arguments}, repository)
    return architecture


def _torchvision(spec: ModelSpec, *, pretrained: bool) -> Built:
    from torchvision import models

    check_listed(spec)
    _check_architecture_only(spec)
    weights = models.get_model_weights(spec.name)["DEFAULT"] if pretrained else None
    explained = explain_unknown_argument(spec, models.get_model_builder(spec.name))
    with explained, torch.device("meta"):  # options that are wrong need no network
        models.get_model(spec.name, **spec.arguments)
    if weights:
        file = Path(torch.hub.get_dir(), "checkpoints", weights.url.rpartition("/")[2])
        if not (file.exists() or _answers(weights.url)):
            raise OSError("no network")
    model = models.get_model(spec.name, weights=weights, **spec.arguments)
    words = f"pretrained {weights.name}" if weights else RANDOM
    if weights and "categories" in weights.meta:
        setattr(model, CLASS_NAMES, weights.meta["categories"])
    return model, from_torchvision(spec.name, spec.arguments), words


def _check_architecture_only(spec: ModelSpec) -> None:
    """Check that no option would make a library read weights: it would not check the file."""
    loading = sorted(LOADING_OPTIONS & set(spec.arguments))
    if loading:
        raise InputError(
            f"{spec.text} takes no argument {loading[0]!r}: its options describe the "
            f"architecture. Name a checkpoint as {spec.source}:{spec.name}@FILE."
        )


def _hugging_face(spec: ModelSpec, *, pretrained: bool) -> Built:
    """An image classifier or a backbone; of a model of images and text, its part for images.

    A folder without weights gets random ones, as a name does without `pretrained`. Python code
    in the folder or repository runs only with ``?trust_remote_code=True``.
    """
    folder = Path(spec.name).expanduser()
    if not folder.is_dir():
        if folder.is_absolute() or spec.name.count("/") > 1:
            raise InputError(f"the folder {spec.name} of {spec.text} must exist")
        _require_hub(spec.name)
    try:
        from transformers import AutoConfig
    except ImportError as error:
        raise InputError(
            "hf: models need the package transformers. Install it with pip "
            "install 'visprism[hf]'."
        ) from error
    source = str(folder) if folder.is_dir() else spec.name
    options = dict(spec.arguments)
    trusted = options.pop("trust_remote_code", False)
    if not isinstance(trusted, bool):
        raise InputError(f"trust_remote_code must be True or False, got {trusted!r}")
    code = {"trust_remote_code": trusted}
    with _code_refused(spec, source, trusted=trusted), _hub(not folder.is_dir()):
        loaded: Any = AutoConfig.from_pretrained(
            source, return_unused_kwargs=True, **code, **options
        )
        config, unknown = loaded  # a pair, with `return_unused_kwargs`
        unknown = {k: v for k, v in unknown.items() if k != "trust_remote_code"}
        if unknown:
            raise InputError(
                f"{spec.text} takes no argument {', '.join(map(repr, unknown))}. It takes the "
                f"arguments of {type(config).__name__}."
            )
        config, auto = _architecture(config)
        if not trusted:
            kernel = getattr(config, "_attn_implementation", None)  # which `to_dict` leaves out
            check_configuration(config.to_dict() | {"attn_implementation": kernel}, source)
        stored = [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]
        if stored or (pretrained and not folder.is_dir()):
            with _quiet():  # lists all weights of the part for texts
                model, report = auto.from_pretrained(
                    source, config=config, output_loading_info=True, **code
                )
            missing = sorted(report["missing_keys"])
            if 2 * len(missing) > len(model.state_dict()):
                raise InputError(
                    f"{source} must have the weights of a {type(model).__name__}, and "
                    f"{len(missing)} tensors are missing, such as {missing[0]}"
                )
            if missing:
                _log.warning("%s lacks %s, which is random", source, ", ".join(missing))
            words = "" if stored else "pretrained"
        else:
            model = auto.from_config(config, **code)
            words = RANDOM
        processor = _image_processor(source, **code)
    if processor:
        return model.float(), from_image_processor(processor, options), words
    return model.float(), from_attributes(model, options), words


@contextmanager
def _quiet() -> Iterator[None]:
    from transformers.utils import logging as transformers_logging

    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def _architecture(config: Any) -> tuple[Any, Any]:
    """The configuration of what takes the images, and the class that builds it."""
    from transformers import AutoModel, AutoModelForImageClassification
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES as CLASSIFIERS,
    )

    code = [name for name in getattr(config, "auto_map", None) or () if name != "AutoConfig"]
    named = [*(config.architectures or ()), *code]
    if any("ImageClassification" in name for name in named) or (
        not named and config.model_type in CLASSIFIERS
    ):
        return config, AutoModelForImageClassification
    config = getattr(config, "vision_config", config)
    if getattr(config, "backbone_config", None) or getattr(config, "backbone", None):
        raise InputError(
            "hf: models must be image classifiers or backbones, and the configuration of a "
            f"{config.model_type} names another model that it loads"
        )
    return config, AutoModel


def _require_hub(repository: str) -> None:
    """Require that the configuration of a repository is cached, or that the Hub answers."""
    from huggingface_hub import constants, try_to_load_from_cache

    cached = try_to_load_from_cache(repository, "config.json")
    if not (isinstance(cached, str) or _answers(constants.ENDPOINT)):
        raise OSError("no network")


@contextmanager
def _hub(needed: bool) -> Iterator[None]:
    """Inside, only cached files of the Hugging Face Hub are used if the Hub does not answer.

    Libraries would repeat their requests for a minute.
    """
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE
    if needed and not offline and not _answers(constants.ENDPOINT):
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline


def _answers(url: str) -> bool:
    """Whether the host of a URL, or the proxy for it, accepts a connection within 2 s."""
    address = urlsplit(getproxies().get("https") or url)
    reached = Event()

    def connect() -> None:
        with suppress(OSError):
            port = address.port or (80 if address.scheme == "http" else 443)
            create_connection((address.hostname, port), timeout=_PATIENCE).close()
            reached.set()

    thread = Thread(target=connect, daemon=True)  # a look-up of a name has no time limit
    thread.start()
    thread.join(_PATIENCE)
    return reached.is_set()


@contextmanager
def _code_refused(spec: ModelSpec, source: str, *, trusted: bool) -> Iterator[None]:
    """Explain how code in a folder or repository can be allowed to run."""
    try:
        yield
    except ValueError as error:
        if trusted or "trust_remote_code" not in str(error):
            raise
        joint = "&" if spec.arguments else "?"
        raise InputError(
            f"{source} contains Python code, which is not run. Read it, and if you trust it "
            f"name the model as {spec.text}{joint}trust_remote_code=True."
        ) from error


def _image_processor(source: str, *, trust_remote_code: bool) -> Mapping[str, Any]:
    """The configuration of a model's image processor; empty if it has none."""
    from transformers import AutoImageProcessor

    try:
        return AutoImageProcessor.from_pretrained(
            source, trust_remote_code=trust_remote_code
        ).to_dict()
    except (OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise
        return {}


def _zoo(spec: ModelSpec, *, pretrained: bool) -> Built:
    check_listed(spec)
    model = MODELS[spec.name](**spec.arguments)
    side = image_size(spec.name)
    default = Preprocessing((side, side), *NORMALIZATIONS["none"], stated=False)
    return model, from_attributes(model, spec.arguments, default=default), RANDOM


def _file(spec: ModelSpec, *, pretrained: bool) -> Built:
    with named_in_file(spec.name) as builder, explain_unknown_argument(spec, builder):
        model = builder(**spec.arguments)
    if not isinstance(model, nn.Module):
        raise InputError(
            f"{spec.name} must return a torch.nn.Module, got one of type {type(model).__name__}"
        )
    return model, from_attributes(model, spec.arguments), ""


@contextmanager
def named_in_file(text: str) -> Iterator[Callable[..., Any]]:
    """The function ``FILE.py:NAME`` of the user, with the file's neighbors importable."""
    path, _, name = text.rpartition(":")
    with _imported(Path(path).expanduser()) as names:
        function = names.get(name)
        if not callable(function):
            ours = [k for k, v in names.items() if callable(v) and not k.startswith("_")]
            raise InputError(f"{path} has no function {name!r}. It has {', '.join(ours)}.")
        yield function


@contextmanager
def _imported(path: Path) -> Iterator[Mapping[str, Any]]:
    """The names in a Python file; it may import its neighbors, also inside its functions.

    Neighbors are forgotten, so that a file in another folder gets its own of the same name.
    """
    if not path.is_file():
        raise InputError(
            f"the file {path} must exist. Run the command in the folder that it is relative to"
        )
    name = f"visprism_file_{path.stem}"
    module_spec = spec_from_file_location(name, path)
    assert module_spec is not None  # a name that ends in .py is always importable
    assert module_spec.loader is not None
    module = sys.modules[name] = module_from_spec(module_spec)
    folder, before = path.parent.resolve(), set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        module_spec.loader.exec_module(module)
        yield vars(module)
    finally:
        sys.path.pop(0)
        for new in sys.modules.keys() - before:
            top = new.partition(".")[0]
            if top not in before and (
                (folder / f"{top}.py").exists() or (folder / top).is_dir()
            ):
                del sys.modules[new]


SOURCES: Mapping[Source, Callable[..., Built]] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "hf": _hugging_face,
    "zoo": _zoo,
    "file": _file,
}

"""Loading: any vision model, from one line of text."""

import logging
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.core.run import stream
from visprism.models.author_formats import AuthorFormat
from visprism.models.author_networks import author_format
from visprism.models.checkpoints import load_state
from visprism.models.data_configs import states_preprocessing
from visprism.models.metadata import read_metadata
from visprism.models.pretrained import default_card, with_pretrained_weights
from visprism.models.sources import RANDOM, SOURCES
from visprism.models.spec import ModelSpec
from visprism.models.state_dicts import read_named_state_dict
from visprism.models.stored_names import stored_model_name

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode, and the preprocessing of its images."""

    model: nn.Module = field(repr=False)
    preprocessing: Preprocessing
    name: str  # as the user wrote it, and what its weights are
    label: str  # the same, short: for the title of a figure
    trained: bool = True  # False: the weights are random
    preprocessing_stated: bool = True  # False: nothing states the preprocessing
    recipe: Mapping[str, Any] = field(
        default_factory=dict
    )  # of its training, where it is known


def load_model(text: str, *, pretrained: bool = False, seed: int = 0) -> LoadedModel:
    """Load a model by name; see `visprism.models.spec` for the names.

    Weights are random, drawn from `seed`, unless `text` names a checkpoint, a tag of the zoo's
    pretrained weights (``resnet20.cifar10``) or a Hugging Face folder that holds weights, or
    `pretrained` asks the zoo, timm, torchvision or Hugging Face. The preprocessing stored in a
    checkpoint is used. A checkpoint that names its model, as those of `visprism train` do,
    needs no model name if that is a model of the zoo, timm, torchvision or Hugging Face:
    metadata never run code. Checkpoints of the code of "How do vision transformers work?" load
    under the zoo's name of the network, as ``resnet50_32@FILE``.
    """
    named = ModelSpec.parse(_with_model(text))
    spec = with_pretrained_weights(named, pretrained=pretrained)
    load_published = pretrained and spec.checkpoint is None
    stored = _Stored.read(spec)
    spec = replace(spec, arguments={**stored.arguments, **spec.arguments})
    with _wrap_build_errors(spec), torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(stream(seed, "weights").get_state())
        model, preprocessing, weights = SOURCES[spec.source](spec, pretrained=load_published)
    if spec.checkpoint is not None:
        load_state(model, stored.for_model(model, spec.checkpoint), spec.checkpoint)
        preprocessing = stored.preprocessing or preprocessing
        weights = "" if named.checkpoint else _default_weights(named)
    remark = f" ({weights})" if weights else ""
    stated = spec.source != "file" or stored.preprocessing is not None
    return LoadedModel(
        model.eval(),
        preprocessing,
        text + remark,
        named.label + remark,
        trained=weights != RANDOM,
        preprocessing_stated=stated or states_preprocessing(model, spec.arguments),
        recipe=stored.recipe,
    )


def _default_weights(named: ModelSpec) -> str:
    """Which pretrained weights of the zoo these are, where the name does not say."""
    card = default_card(named.name)
    return f"pretrained {card.tag}" if card else ""


@dataclass(frozen=True)
class _Stored:
    """What a checkpoint holds for the model that a user names with it."""

    state: Mapping[str, Tensor] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)  # that the weights ask for
    preprocessing: Preprocessing | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    author: AuthorFormat | None = None

    @classmethod
    def read(cls, spec: ModelSpec) -> "_Stored":
        """Read the checkpoint of `spec`; empty if it names none."""
        if spec.checkpoint is None:
            return cls()
        state, name = read_named_state_dict(spec.checkpoint)
        pickled = spec.checkpoint.suffix != ".safetensors"
        author = author_format(spec.name, state) if spec.source == "zoo" and pickled else None
        if author is None:
            metadata = read_metadata(spec.checkpoint)
            return cls(state, {}, metadata.preprocessing, metadata.recipe)
        author.check(state, name, spec.checkpoint)
        if "_mcdo" in name and not spec.arguments.get("mc_dropout"):
            _log.warning(
                "%s is of %s, which keeps dropout active in evaluation mode; it is loaded "
                "without dropout. The option mc_dropout=RATE of the model adds it",
                *(spec.checkpoint, name),
            )
        preprocessing = author.preprocessing(state, spec.name)
        return cls(state, author.options(state), preprocessing, author=author)

    def for_model(self, model: nn.Module, path: Path) -> Mapping[str, Tensor]:
        """The state under the names of `model`, which is prepared for it."""
        if self.author is None:
            return self.state
        self.author.prepare(model)
        return self.author.translated(self.state, model, path)


def _with_model(text: str) -> str:
    """``MODEL@FILE``, where the file alone is named."""
    if not text.endswith(".safetensors") or "@" in text:
        return text
    provenance = read_metadata(text).provenance
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
    except Exception as error:
        cause = _first_line(error)
        if spec.source == "file":
            frame = traceback.extract_tb(error.__traceback__)[-1]
            cause += f" ({frame.filename}, line {frame.lineno})"
        elif isinstance(error, OSError):
            raise InputError(
                f"{spec.text} needs files that could not be downloaded "
                f"({cause}). {_remedy(spec)}"
            ) from error
        raise InputError(
            f"{spec.text} cannot be built: {type(error).__name__}: {cause}"
        ) from error


def _remedy(spec: ModelSpec) -> str:
    if spec.source == "hf":
        return "Name a local folder, as hf:FOLDER."
    return "Load it without pretrained for random weights, or name a checkpoint, as MODEL@FILE."


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")

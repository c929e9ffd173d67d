"""The pool: models and images that live panels hold, each once, within a limit of memory."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.blocks.attention import attentions
from visprism.anatomy.run.ablations import Ablation, block_ablations
from visprism.anatomy.trace.forward import forward
from visprism.app.forms import ModelForm, data_name, model_name, stated
from visprism.app.settings import Settings
from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.core.request import DataOptions
from visprism.core.run import DEFAULT_RUN
from visprism.kit.inputs import Candidate, candidates_of, subjects_of
from visprism.kit.model_on_images import Subject
from visprism.passes.batches import on_device
from visprism.passes.perturbed import PixelSpace

_Key = tuple[str, str, bool | None]  # model, data, whether with published weights
_MOST_IMAGES = 4  # of one request
_SMALL_MACS = 200e6
_MOST_MACS = 20e9  # of one image: about a second on two cores


@dataclass(frozen=True)
class Specimen:
    """A model with the images that a panel shows it."""

    candidate: Candidate
    subject: Subject
    class_names: Sequence[str]

    @property
    def anatomy(self) -> Anatomy:
        """The anatomy of the model."""
        return self.subject.anatomy

    @cached_property
    def ablations(self) -> Mapping[str, Ablation]:
        """Blocks that can be ablated, by name."""
        return {a.blocks[0].name: a for a in block_ablations(self.anatomy)}

    @cached_property
    def macs(self) -> float:
        """Multiply-accumulates of one image."""
        graph = self.anatomy.graph
        return float(graph.macs(range(graph.output + 1)))

    @property
    def is_small(self) -> bool:
        """Whether a pass takes about as long as its overhead."""
        return self.macs < _SMALL_MACS

    @cached_property
    def has_attention(self) -> bool:
        """Whether attention weights can be read."""
        return bool(attentions(self.anatomy))

    @property
    def preprocessing(self) -> Preprocessing:
        """Size and normalization of the images."""
        return self.subject.known_preprocessing

    def pixels(self, indices: Sequence[int]) -> UInt8[Tensor, "b 3 h w"]:
        """Pixels of images in eight bits."""
        images = self.subject.images
        most = len(images)
        if not 1 <= len(indices) <= _MOST_IMAGES:
            raise InputError(f"images must be 1 to {_MOST_IMAGES}, got {len(indices)}")
        for index in indices:
            if not 0 <= index < most:
                raise InputError(f"an image must be between 0 and {most - 1}, got {index}")
        parts = [images.pixels(self.preprocessing, index, index + 1) for index in indices]
        return torch.cat(parts)

    def normalized(self, pixels: Tensor) -> Float[Tensor, "b 3 h w"]:
        """Images as the model takes them, from pixels of eight bits or in 0 ... 1."""
        fractions = pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels
        return PixelSpace(self.preprocessing.mean, self.preprocessing.std).normalized(fractions)

    def logits(self, images: Tensor) -> Float[Tensor, "b k"]:
        """Logits of the model as it is, on the CPU."""
        compute = Compute().on(self.anatomy.model)
        with torch.no_grad():
            return forward(self.anatomy.model, on_device(images, compute)).cpu()


class _Chosen(msgspec.Struct):
    model: ModelForm
    data: str
    pretrained: bool | None = None  # None leaves it to `load_model`


@dataclass
class Pool:
    """Specimens by model and data. The one that was used longest ago is dropped first.

    Used by one thread only.
    """

    settings: Settings
    _specimens: OrderedDict[_Key, Specimen] = field(default_factory=OrderedDict)
    _threads: int = field(default_factory=torch.get_num_threads)

    def specimen(self, values: Mapping[str, Any]) -> Specimen:
        """The model and the data that a request names; loaded where they are not yet."""
        chosen = stated(_Chosen, values)
        name = model_name(chosen.model, self.settings)
        key = (name, data_name(chosen.data, self.settings), chosen.pretrained)
        if key not in self._specimens:
            self._specimens[key] = self._loaded(*key)
            while len(self._specimens) > 1 and self._used() > self.settings.limits.model_bytes:
                self._specimens.popitem(last=False)
        self._specimens.move_to_end(key)
        specimen = self._specimens[key]
        # Threads wait for each other at each layer: a small network is faster on one.
        torch.set_num_threads(1 if specimen.is_small else self._threads)
        return specimen

    def _loaded(self, name: str, data: str, pretrained: bool | None) -> Specimen:
        candidate = self._candidate(name, pretrained)
        size = _bytes(candidate.model)
        most = self.settings.limits.model_bytes
        if size > most:
            raise InputError(
                f"model must have at most {most / 1e6:.0f} MB of weights for live panels, got "
                f"{size / 1e6:.0f} MB. Start a study of it instead."
            )
        options = DataOptions(limit=self.settings.limits.live_images)
        (subject,) = subjects_of(
            {candidate.label: candidate},
            data,
            None,
            options,
            preprocessing=None,
            run=DEFAULT_RUN,
        )
        specimen = Specimen(candidate, subject, _class_names(name, subject))
        if specimen.macs > _MOST_MACS:
            raise InputError(
                f"model must have at most {_MOST_MACS:.0e} multiply-accumulates for live "
                f"panels, got {specimen.macs:.2g}. Start a study of it instead."
            )
        return specimen

    def _candidate(self, name: str, pretrained: bool | None) -> Candidate:
        """The model, once for all data sets."""
        for (other, _, weights), specimen in self._specimens.items():
            if (other, weights) == (name, pretrained):
                return specimen.candidate
        (candidate,) = candidates_of(name, pretrained=pretrained).values()
        return candidate

    def _used(self) -> int:
        models = {id(s.anatomy.model): s.anatomy.model for s in self._specimens.values()}
        return sum(map(_bytes, models.values()))


def _bytes(model: torch.nn.Module) -> int:
    return sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))


def _class_names(name: str, subject: Subject) -> Sequence[str]:
    """Names of the model's classes: from its card, or from data with as many classes."""
    from visprism.models.pretrained import pretrained_cards

    card = pretrained_cards().get(name.partition("@")[0])
    names = subject.images.class_names if card is None else card.class_names
    return names if len(names) == subject.num_classes else ()

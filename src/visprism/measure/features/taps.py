"""Views: what probes see of a forward pass, feature maps or attention."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from visprism.anatomy import Anatomy, Attention, Block, Weights, attend, attentions, watch
from visprism.core.errors import InputError
from visprism.measure.features.probe import Probe


@dataclass(frozen=True)
class View:
    """Some probes, and what they keep of each thing that they see, by its name."""

    probes: Sequence[Probe]
    things: Mapping[str, Block | Attention]
    kept: dict[str, list[Tensor]]

    def extracts(self) -> dict[Block | Attention, list[Tensor]]:
        """What each probe kept of the latest forward pass, in forward order.

        Raises:
            InputError: if the pass went another way than the dissected one.
        """
        for name in self.things:
            if name not in self.kept:
                raise InputError(
                    f"block {name!r} did not run for these images as it did when the model was "
                    "dissected; dissect the model as it is now, with images like these"
                )
        return {thing: [e.cpu() for e in self.kept[n]] for n, thing in self.things.items()}


def _of_feature_maps(anatomy: Anatomy, probes: Sequence[Probe], stack: ExitStack) -> View:
    def extract(x: Tensor) -> list[Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            return [probe.extract(_precise(x)) for probe in probes]

    blocks = {block.name: block for block in anatomy if block.layout is not None}
    return View(probes, blocks, stack.enter_context(watch(anatomy, _eager(extract))))


def _of_attention(anatomy: Anatomy, probes: Sequence[Probe], stack: ExitStack) -> View:
    def extract(weights: Weights) -> list[Tensor]:
        with torch.autocast(weights.values.device.type, enabled=False):
            precise = replace(weights, values=_precise(weights.values))
            return [probe.extract(precise) for probe in probes]

    kept = attend(anatomy, _eager(extract))
    things = {attention.name: attention for attention in attentions(anatomy)}
    return View(probes, things, stack.enter_context(kept))


_VIEWS = {"feature maps": _of_feature_maps, "attention": _of_attention}


def views(anatomy: Anatomy, probes: Sequence[Probe], stack: ExitStack) -> list[View]:
    """What these probes see of each forward pass until `stack` is closed."""
    return [
        view(anatomy, some, stack)
        for sees, view in _VIEWS.items()
        if (some := [probe for probe in probes if probe.sees == sees])
    ]


def _precise(x: Tensor) -> Tensor:
    """In float32 or better, whatever the precision of the forward pass."""
    return x if x.dtype == torch.float64 else x.float()


def _eager(extract: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
    """What a compiled model must not compile too."""
    return torch.compiler.disable(extract) if "torch._dynamo" in sys.modules else extract

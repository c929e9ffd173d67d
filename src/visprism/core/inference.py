"""Inference settings: how forward passes without derivatives in the parameters run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Inference:
    """How forward passes without derivatives in the parameters run.

    The settings change speed and rounding, never the quantity. The default is the model as it
    is written, in batches as they are given.

    Example:
        >>> Inference(64, channels_last=True, folds=(("conv1", "bn1"),)).sentence()
        'channels-last, 1 BatchNorm layer folded'
    """

    batch_size: int | None = None  # images of a forward pass; None: batches as they are given
    channels_last: bool = False  # memory format of images and kernels
    folds: tuple[tuple[str, str], ...] = ()  # convolutions and BatchNorms that become one
    reason: str = ""  # why the model runs as it is written; "" otherwise

    def sentence(self) -> str:
        """What is not as the model is written, or why nothing is; "" if neither."""
        number = len(self.folds)
        parts = [
            "channels-last" if self.channels_last else "",
            f"{number} BatchNorm layer{'s' if number > 1 else ''} folded" if number else "",
            f"as written ({self.reason})" if self.reason else "",
        ]
        return ", ".join(filter(None, parts))

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON holds them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Inference":
        """The settings that `to_json` returned."""
        folds = tuple((convolution, norm) for convolution, norm in values["folds"])
        given = {name: value for name, value in values.items() if name != "folds"}
        return cls(**given, folds=folds)

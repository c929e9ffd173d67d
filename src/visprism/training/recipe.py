"""Recipes: how a model is trained, as numbers that can be written down."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from visprism.core.errors import InputError
from visprism.core.registry import Registry
from visprism.data.augmentation import Augmentation
from visprism.training.names import check_name

RECIPES = Registry("recipe")

_LONGEST = 10**6  # epochs


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: everything but the model, the images and the machine.

    Raises:
        InputError: if a field is out of range, or two cannot go together.
    """

    epochs: int  # those of the warm-up included
    batch_size: int  # images of an update, over all processes and parts together
    lr: float  # at the end of the warm-up
    images: int | None = None  # at most so many of the training set, balanced; None: all
    augmentation: Augmentation = field(default_factory=Augmentation)
    optimizer: str = (
        "adamw"  # "adamw", "sgd", "muon" (for matrices inside of blocks), or timm's
    )
    momentum: float = 0.9  # of SGD and what resembles it
    beta2: float = 0.999  # of AdamW
    weight_decay: float = 0.05
    decay: Literal["matrices", "all"] = "matrices"  # not biases, norms and tokens, or all
    schedule: Literal["cosine", "cosine by epoch", "step", "constant"] = "cosine"
    warmup: float = 0.0  # epochs in which the learning rate rises from 0
    milestones: tuple[int, ...] = ()  # of "step": epochs after the warm-up
    factor: float = 0.2  # of "step": by which the learning rate falls at each
    clip: float = 0.0  # largest norm of the gradient of all parameters; 0: no limit
    parts: int = 1  # in which a batch goes through the model, where it does not fit at once
    ema: float = 0.0  # decay of the moving average of the weights; 0: none is kept
    drop_path: float = 0.0  # stochastic depth, given to the model as its drop_path_rate
    sam: float = 0.0  # rho of sharpness-aware minimisation; 0: none
    adaptive: bool = False  # ASAM in SAM's place
    distil: Literal["none", "soft", "hard"] = "none"
    distil_weight: float = 0.5  # of the teacher's part of the loss
    temperature: float = 3.0  # of soft distillation
    evaluate: int = 1  # every so many epochs, and after the last
    snapshots: int = (
        0  # weights are kept at the beginning, after the warm-up, every so many epochs
    )
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16: for what autocast lowers
    channels_last: bool = False  # how images and kernels lie in memory
    compile: bool = False  # by torch.compile
    seed: int = 0  # of the order, the augmentation and dropout

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"recipe: {name} is {value}; wants a finite number")
        for name in ("epochs", "batch_size", "lr", "parts", "evaluate", "temperature"):
            if not getattr(self, name) > 0:
                raise InputError(f"recipe: {name} is {getattr(self, name)}; wants more than 0")
        if self.epochs > _LONGEST:
            raise InputError(f"recipe: epochs is {self.epochs}; wants at most a million")
        check_name(self.optimizer)
        for name in ("weight_decay", "warmup", "clip", "sam", "snapshots"):
            if not getattr(self, name) >= 0:
                raise InputError(f"recipe: {name} is {getattr(self, name)}; wants 0 or more")
        for name in ("ema", "drop_path", "beta2", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                value = getattr(self, name)
                raise InputError(f"recipe: {name} is {value}; wants a part from 0 to below 1")
        if self.images is not None and self.images < 1:
            raise InputError(f"recipe: images is {self.images}; wants 1 or more, or none: all")
        if not 0 <= self.distil_weight <= 1:
            raise InputError(
                f"recipe: distil_weight is {self.distil_weight}; wants a part from 0 to 1"
            )
        if self.warmup >= self.epochs:
            raise InputError(
                f"recipe: warmup is {self.warmup:g} of {self.epochs} epochs; wants fewer, so "
                "that some are left, such as --set warmup=0"
            )
        if self.parts > self.batch_size:
            raise InputError(
                f"recipe: parts is {self.parts} for a batch of {self.batch_size}; wants at "
                "most one part for each image"
            )
        if not 0 < self.factor <= 1:
            raise InputError(f"recipe: factor is {self.factor}; wants above 0 and at most 1")
        if any(a >= b for a, b in pairwise((0, *self.milestones))):
            raise InputError(
                f"recipe: milestones are {', '.join(map(str, self.milestones))}; wants whole "
                "epochs above 0, in ascending order"
            )
        late = [m for m in self.milestones if m + self.warmup >= self.epochs]
        if self.schedule == "step" and late:
            raise InputError(
                f"recipe: milestones are {', '.join(map(str, self.milestones))} after "
                f"{self.warmup:g} of warm-up, but training ends after {self.epochs} epochs; "
                "wants them before that"
            )
        if self.schedule == "step" and not self.milestones:
            raise InputError(
                "recipe: schedule is 'step' without milestones; name the epochs at which the "
                "learning rate falls, as in milestones=60,120,160"
            )
        for name, wants in unread(vars(self)).items():
            value, usual = getattr(self, name), getattr(Recipe, name)
            if value != usual:
                raise InputError(
                    f"recipe: {name} is {_text(value)} and would do nothing; it is for "
                    f"{wants}, without which it stays {_text(usual)}"
                )


def unread(values: Mapping[str, Any]) -> dict[str, str]:
    """The fields that others leave without effect, and what each is for."""
    adamw = values["optimizer"] in ("adamw", "muon")
    stepped = values["schedule"] == "step"
    read_for = {
        "milestones": (stepped, "schedule=step"),
        "factor": (stepped, "schedule=step"),
        "momentum": (not adamw, "optimizer=sgd, or another that has one"),
        "beta2": (adamw, "optimizer=adamw"),
        "adaptive": (values["sam"] > 0, "SAM, as sam=0.5"),
        "distil_weight": (values["distil"] != "none", "a teacher, and distil=soft or hard"),
        "temperature": (values["distil"] == "soft", "distil=soft"),
    }
    return {name: wants for name, (is_read, wants) in read_for.items() if not is_read}


def _text(value: object) -> str:
    """As ``--set`` takes it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "empty"
    return str(value).lower()

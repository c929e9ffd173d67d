"""Recipes: how a model is trained, as numbers that can be written down."""

from dataclasses import dataclass
from typing import Literal

from visprism.errors import InputError
from visprism.registry import Registry

RECIPES = Registry("recipe")


@dataclass(frozen=True)
class Recipe:
    """AdamW or Muon, with a linear warm-up and a cosine decay to 0, both per step."""

    images: int  # of the training set
    epochs: int
    batch_size: int
    lr: float  # at the end of the warm-up
    weight_decay: float = 0.05  # on matrices and kernels; not on biases, norms and tokens
    optimizer: Literal["adamw", "muon"] = "adamw"  # muon: for the matrices inside of blocks
    beta2: float = 0.999  # of AdamW
    warmup: float = 0.1  # part of all steps
    label_smoothing: float = 0.0
    clip: float = 1.0  # largest norm of the gradient of all parameters
    precision: str = "fp32"  # or "bf16", for what autocast lowers
    seed: int = 0  # of the order of the images

    def __post_init__(self) -> None:
        for name in ("images", "epochs", "batch_size", "lr"):
            if getattr(self, name) <= 0:
                raise InputError(f"recipe: {name} is {getattr(self, name)}; wants more than 0")
        if not 0 <= self.warmup < 1:
            raise InputError(f"recipe: warmup is {self.warmup}; wants a part from 0 to below 1")

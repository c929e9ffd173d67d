"""Recipes: the hyperparameters of a training run."""

import difflib
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from visprism.core.errors import InputError
from visprism.core.options import check_values
from visprism.core.registry import Registry
from visprism.images.augmentation import Augmentation
from visprism.images.augmentation import unused_fields as unused_augmentation_fields

RECIPES = Registry("recipe")
OPTIMIZERS = ("adamw", "sgd", "muon")  # without timm

_MAX_EPOCHS = 10**6
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: everything but the model, the images and the machine."""

    epochs: int  # with those of the warm-up
    batch_size: int  # images of one update, over all processes and accumulation steps
    lr: float  # learning rate at the end of the warm-up
    limit: int | None = (
        None  # maximum number of training images, balanced over classes; None: all
    )
    augmentation: Augmentation = field(default_factory=Augmentation)
    optimizer: str = "adamw"  # "adamw", "sgd", "muon", or the name of an optimizer of timm
    momentum: float = 0.9  # of SGD and of timm's optimizers
    beta2: float = 0.999  # of AdamW
    weight_decay: float = 0.05
    # Parameters with weight decay: matrices and kernels only, or also biases, norms and tokens.
    decay_params: Literal["matrices", "all"] = "matrices"
    schedule: Literal["cosine", "cosine by epoch", "step", "constant"] = "cosine"
    warmup: float = 0.0  # epochs in which the learning rate rises linearly from 0
    milestones: tuple[int, ...] = ()  # of the schedule "step": epochs after the warm-up
    lr_decay: float = 0.2  # of the schedule "step": factor of the learning rate at a milestone
    clip: float = 0.0  # largest norm of the gradient of all parameters; 0: no clipping
    grad_accum_steps: int = 1  # forward and backward passes of one update
    ema: float = 0.0  # decay of the exponential moving average of the weights; 0: no average
    drop_path: float = 0.0  # stochastic depth, the model's option drop_path_rate
    sam_rho: float = 0.0  # radius of sharpness-aware minimization; 0: without
    adaptive: bool = False  # adaptive SAM (ASAM)
    distillation: Literal["none", "soft", "hard"] = "none"
    distillation_weight: float = 0.5  # of the teacher's term of the loss
    temperature: float = 3.0  # of soft distillation
    eval_every: int = 1  # epochs between evaluations; the last epoch is always evaluated
    # Epochs between snapshots of the weights, which are also written at the start and after
    # the warm-up; 0: no snapshots.
    snapshot_every: int = 0
    # Updates between measurements of the leading Hessian eigenvalue of the training loss, on
    # the first images of the first epoch as they are augmented there; 0: no measurements.
    curvature_every: int = 0
    curvature_images: int = 256  # of each measurement
    curvature_k: int = 1  # number of eigenvalues of each measurement
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16: automatic mixed precision
    channels_last: bool = False  # memory format of images and kernels
    compile: bool = False  # by torch.compile
    seed: int = 0  # of the order of the images, the augmentation and dropout

    def __post_init__(self) -> None:
        check_values(self)
        for name in (
            "epochs", "batch_size", "lr", "grad_accum_steps", "eval_every", "temperature",
            "curvature_images", "curvature_k",
        ):  # fmt: skip
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive, got {getattr(self, name)}")
        if self.epochs > _MAX_EPOCHS:
            raise InputError(f"epochs must be at most {_MAX_EPOCHS}, got {self.epochs}")
        _check_optimizer_name(self.optimizer)
        for name in (
            "weight_decay", "warmup", "clip", "sam_rho", "snapshot_every", "curvature_every"
        ):  # fmt: skip
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("ema", "drop_path", "beta2", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        if self.limit is not None and self.limit < 1:
            raise InputError(f"limit must be positive or None, got {self.limit}")
        if not 0 <= self.distillation_weight <= 1:
            raise InputError(
                f"distillation_weight must be in [0, 1], got {self.distillation_weight}"
            )
        if self.warmup >= self.epochs:
            raise InputError(
                f"warmup must be less than epochs ({self.epochs}), got {self.warmup:g}. "
                "Set warmup=0 to train without."
            )
        if self.grad_accum_steps > self.batch_size:
            raise InputError(
                f"grad_accum_steps must be at most batch_size ({self.batch_size}), got "
                f"{self.grad_accum_steps}"
            )
        if not 0 < self.lr_decay <= 1:
            raise InputError(f"lr_decay must be in (0, 1], got {self.lr_decay}")
        self._check_milestones()
        for name, purpose in unused_fields(vars(self)).items():
            value, default = getattr(self, name), getattr(Recipe, name)
            if value != default:
                raise InputError(
                    f"{name} must be {_text(default)} without {purpose}, got {_text(value)}, "
                    "which would have no effect"
                )

    def _check_milestones(self) -> None:
        stated = ",".join(map(str, self.milestones))
        if any(a >= b for a, b in pairwise((0, *self.milestones))):
            raise InputError(f"milestones must be positive and ascending, got {stated}")
        if self.schedule != "step":
            return
        if not self.milestones:
            raise InputError(
                "milestones must not be empty for schedule='step'. Name the epochs after the "
                "warm-up at which the learning rate falls, such as milestones=60,120,160."
            )
        if self.milestones[-1] + self.warmup >= self.epochs:
            raise InputError(
                f"milestones must be less than epochs - warmup "
                f"({self.epochs - self.warmup:g}), got {stated}"
            )

    def replace(self, **changes: Any) -> "Recipe":
        """The recipe with other values for some fields, also of its augmentation.

        A value may be text, such as ``"1e-3"``, ``"60,120,160"`` or ``"none"``, and is
        converted to the type of its field. A field that has no effect after the changes, such
        as `milestones` of another schedule, is reset to its default. If there are no more
        epochs than the warm-up had, the warm-up is scaled with them.

        Example:
            >>> Recipe(epochs=2, batch_size=8, lr=0.1).replace(lr="1e-3", mixup=0.8).lr
            0.001
        """
        types_outer, types_inner = get_type_hints(Recipe), get_type_hints(Augmentation)
        outer: dict[str, Any] = {}
        inner: dict[str, Any] = {}
        for name, value in changes.items():
            bare = name.removeprefix("augmentation.")
            if bare in types_inner:
                inner[bare] = _converted(value, types_inner[bare], name)
            elif name in types_outer and name != "augmentation":
                outer[name] = _converted(value, types_outer[name], name)
            else:
                names = [n for n in types_outer if n != "augmentation"] + list(types_inner)
                close = difflib.get_close_matches(name.lower(), names) or names
                raise InputError(
                    f"a recipe has no field {name!r}. Did you mean {', '.join(close)}?"
                )
        reset = {name: getattr(Recipe, name) for name in unused_fields(vars(self) | outer)}
        unused = unused_augmentation_fields(vars(self.augmentation) | inner)
        reset_inner = {name: getattr(Augmentation, name) for name in unused}
        augmentation = replace(self.augmentation, **(reset_inner | inner))
        epochs = outer.get("epochs", self.epochs)
        if "warmup" not in outer and 0 < epochs <= self.warmup < self.epochs:
            outer["warmup"] = self.warmup * epochs / self.epochs
        return replace(self, **(reset | outer), augmentation=augmentation)


def unused_fields(values: Mapping[str, Any]) -> dict[str, str]:
    """The fields that have no effect, and the setting that each one belongs to."""
    adamw = values["optimizer"] in ("adamw", "muon")
    stepped = values["schedule"] == "step"
    measured = values["curvature_every"] > 0
    used = {
        "milestones": (stepped, "schedule=step"),
        "lr_decay": (stepped, "schedule=step"),
        "momentum": (not adamw, "optimizer=sgd or one of timm with momentum"),
        "beta2": (adamw, "optimizer=adamw"),
        "adaptive": (values["sam_rho"] > 0, "SAM, such as sam_rho=0.5"),
        "distillation_weight": (values["distillation"] != "none", "distillation=soft or hard"),
        "curvature_images": (measured, "curvature measurements (curvature_every=50)"),
        "curvature_k": (measured, "curvature measurements (curvature_every=50)"),
        "temperature": (values["distillation"] == "soft", "distillation=soft"),
    }
    return {name: purpose for name, (is_used, purpose) in used.items() if not is_used}


def _check_optimizer_name(optimizer: str) -> None:
    """Require an optimizer of `OPTIMIZERS`, or a first-order one of timm."""
    if optimizer in OPTIMIZERS:
        return
    import timm.optim  # takes a second, and `OPTIMIZERS` do not need it

    names = [str(name) for name in timm.optim.list_optimizers()]
    if optimizer not in names:
        close = difflib.get_close_matches(optimizer.lower(), [*OPTIMIZERS, *names])
        raise InputError(
            f"optimizer must be adamw, sgd, muon or one of timm, got {optimizer!r}. "
            f"Did you mean {', '.join(close or ['adamw'])}?"
        )
    if timm.optim.get_optimizer_info(optimizer).second_order:
        raise InputError(
            f"optimizer must need first derivatives only, got {optimizer!r}, which needs "
            "second derivatives. Choose another, such as adamw."
        )


def _text(value: object) -> str:
    """A value as text that `Recipe.replace` reads."""
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "empty"
    return str(value).lower()


def _converted(value: Any, kind: Any, name: str) -> Any:
    """The value in the type of its field."""
    options = get_args(kind)
    if get_origin(kind) is Literal:
        if value in options:
            return value
        raise InputError(f"{name} must be one of {', '.join(map(str, options))}, got {value!r}")
    if get_origin(kind) in (Union, types.UnionType):
        if value is None or str(value).lower() in ("none", "null", ""):
            return None
        return _converted(value, options[0], name)
    if get_origin(kind) is tuple:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            items = [items]
        return tuple(_converted(item, options[0], name) for item in items if item != "")
    if kind is bool:
        if str(value).lower() in (*_TRUE, *_FALSE):
            return str(value).lower() in _TRUE
        raise InputError(f"{name} must be true or false, got {value!r}")
    if kind is str:
        if not isinstance(value, str):
            raise InputError(f"{name} must be text, got {value!r}")
        return value
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if "_" in str(value):
        number = None  # Python would read it
    if number is None or isinstance(value, bool) or (kind is int and str(number) != str(value)):
        what = "an integer" if kind is int else "a number"
        raise InputError(f"{name} must be {what}, got {value!r}")
    return number

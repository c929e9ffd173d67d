"""Recipes: the hyperparameters of a training run."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from visprism.core.errors import InputError
from visprism.core.files import read_fields, yaml_text
from visprism.core.options import (
    Option,
    check_options,
    check_used,
    option,
    options_of,
    unused,
)
from visprism.core.registry import Registry
from visprism.images.augmentation import Augmentation
from visprism.images.augmentation import unused_fields as unused_augmentation_fields

RECIPES = Registry("recipe", "visprism.training.recipes")
OPTIMIZERS = ("adamw", "sgd", "muon")  # without timm


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: everything but the model, the images and the machine."""

    epochs: int = option(MISSING, "epochs, including the warm-up", minimum=1)
    batch_size: int = option(
        MISSING, "images of one update, over all processes and accumulation steps", minimum=1
    )
    lr: float = option(MISSING, "learning rate at the end of the warm-up", above=0)
    limit: int | None = option(
        None, "maximum number of training images, a stratified sample", minimum=1
    )
    augmentation: Augmentation = field(default_factory=Augmentation)
    optimizer: str = option("adamw", "adamw, sgd, muon, an optimizer of timm, or FILE.py:NAME")
    momentum: float = option(
        0.9, "momentum of SGD and of timm's optimizers", minimum=0, below=1
    )
    beta2: float = option(0.999, "beta2 of AdamW", minimum=0, below=1)
    weight_decay: float = option(0.05, "weight decay", minimum=0)
    decay_params: Literal["matrices", "all"] = option(
        "matrices",
        "parameters with weight decay: matrices and kernels, or also biases and norms",
    )
    layer_decay: float = option(
        1.0,
        "factor of the learning rate from each block to the one before it; 1: the same for all",
        above=0,
        maximum=1,
    )
    freeze: tuple[str, ...] = option(
        (),
        "parameters and modules that do not train, by name, such as layer1; body: all but the "
        "last layer",
    )
    loss: str = option(
        "cross-entropy", "cross-entropy, bce, or FILE.py:NAME, see docs/training.md"
    )
    class_weights: str = option(
        "none",
        "weight of each class in the loss: none, balanced (inversely to its images), or a "
        "number for each class",
    )
    schedule: Literal["cosine", "cosine by epoch", "step", "constant"] = option(
        "cosine", "schedule of the learning rate"
    )
    warmup: float = option(
        0.0, "epochs in which the learning rate rises linearly from first_lr", minimum=0
    )
    first_lr: float = option(0.0, "learning rate at the start of the warm-up", minimum=0)
    last_lr: float = option(0.0, "learning rate at the end of a cosine", minimum=0)
    milestones: tuple[float, ...] = option(
        (), "milestones of the schedule step, in epochs after the warm-up", above=0
    )
    lr_decay: float = option(
        0.2, "factor of the learning rate at a milestone", above=0, maximum=1
    )
    clip: float = option(0.0, "largest norm of the gradient; 0: no clipping", minimum=0)
    grad_accum_steps: int = option(1, "forward and backward passes of one update", minimum=1)
    ema: float = option(
        0.0, "decay of the moving average of the weights; 0: no average", minimum=0, below=1
    )
    drop_path: float = option(0.0, "stochastic depth of the model", minimum=0, below=1)
    pretrained: bool = option(False, "start from published weights")
    sam_rho: float = option(
        0.0, "radius of sharpness-aware minimization; 0: without", minimum=0
    )
    adaptive: bool = option(False, "adaptive SAM (ASAM)")
    distillation: Literal["none", "soft", "hard"] = option("none", "kind of distillation")
    distillation_weight: float = option(
        0.5, "weight of the teacher's term of the loss", minimum=0, maximum=1
    )
    temperature: float = option(3.0, "temperature of soft distillation", above=0)
    patience: int = option(
        0,
        "evaluations without a higher accuracy after which the training ends; 0: it never ends "
        "early",
        minimum=0,
    )
    eval_every: int = option(
        1, "epochs between evaluations; the last epoch is always evaluated", minimum=1
    )
    snapshot_every: int = option(
        0,
        "epochs between snapshots of the weights, also at the start and after the warm-up; 0: "
        "no snapshots",
        minimum=0,
    )
    precision: Literal["fp32", "bf16"] = option("fp32", "precision; bf16 is automatic mixed")
    channels_last: bool = option(False, "memory format of images and kernels")
    compile: bool = option(False, "compilation by torch.compile")
    seed: int = option(0, "seed of the order of the images, the augmentation and dropout")

    def __post_init__(self) -> None:
        check_options(self)
        _check_optimizer_name(self.optimizer)
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
        last, room = max(self.milestones, default=None), self.epochs - self.warmup
        if self.schedule == "step" and (last is None or last >= room):
            stated = ",".join(f"{m:g}" for m in self.milestones) or "none"
            raise InputError(
                f"milestones must be below epochs - warmup ({room:g}) for schedule='step', got "
                f"{stated}. Name the epochs after the warm-up at which the learning rate "
                "falls, such as milestones=60,120,160."
            )
        check_used(self, unused_fields(vars(self)))

    def replace(self, **changes: Any) -> "Recipe":
        """The recipe with other values for some fields, also of its augmentation.

        A value may be text, such as ``"1e-3"``, ``"60,120,160"`` or ``"none"``, and is
        converted to the type of its field. A field that has no effect after the changes, such
        as `milestones` of another schedule, is reset to its default. If there are no more
        epochs than the warm-up had, the warm-up is scaled with them, and so are milestones
        that would come after the last epoch.

        Example:
            >>> Recipe(epochs=2, batch_size=8, lr=0.1).replace(lr="1e-3", mixup=0.8).lr
            0.001
        """
        options, augmenting = options_of(Recipe), options_of(Augmentation)
        outer: dict[str, Any] = {}
        inner: dict[str, Any] = {}
        for name, value in changes.items():
            bare = name.removeprefix("augmentation.")
            if bare in augmenting:
                inner[bare] = _converted(augmenting[bare], value)
            elif name in options:
                outer[name] = _converted(options[name], value)
            else:
                names = [*options, *augmenting]
                close = [SYNONYMS[bare]] if bare in SYNONYMS else closest(bare, names)
                raise InputError(
                    f"a recipe has no field {name!r}. Did you mean {', '.join(close)}? "
                    "`visprism recipes NAME` prints all fields."
                )
        reset = {name: options[name].default for name in unused_fields(vars(self) | outer)}
        unused = unused_augmentation_fields(vars(self.augmentation) | inner)
        reset_inner = {name: augmenting[name].default for name in unused}
        augmentation = replace(self.augmentation, **(reset_inner | inner))
        epochs = outer.get("epochs", self.epochs)
        if "warmup" not in outer and 0 < epochs <= self.warmup < self.epochs:
            outer["warmup"] = self.warmup * epochs / self.epochs
        before, room = self.epochs - self.warmup, epochs - outer.get("warmup", self.warmup)
        if "milestones" not in outer and max(self.milestones, default=0) >= room > 0:
            outer["milestones"] = tuple(m * room / before for m in self.milestones)
        return replace(self, **(reset | outer), augmentation=augmentation)


SYNONYMS = {  # what other trainers call a field
    other: field
    for field, others in {
        "lr": "learning_rate base_lr lr_max",
        "optimizer": "opt optim",
        "weight_decay": "wd decay l2",
        "batch_size": "b bs train_batch_size per_device_train_batch_size",
        "epochs": "max_epochs num_epochs num_train_epochs",
        "precision": "amp fp16 bf16 half",
        "schedule": "sched scheduler lr_scheduler lr_scheduler_type",
        "warmup": "warmup_epochs warmup_steps lr_warmup_epochs",
        "first_lr": "warmup_lr lr_start",
        "last_lr": "min_lr lr_min eta_min",
        "lr_decay": "gamma decay_rate lr_gamma",
        "clip": "clip_grad clip_grad_norm max_grad_norm gradient_clip_val",
        "grad_accum_steps": "accumulate_grad_batches gradient_accumulation_steps accum_iter",
        "ema": "model_ema model_ema_decay ema_decay",
        "smoothing": "label_smoothing label_smoothing_factor",
        "mixup": "mixup_alpha",
        "cutmix": "cutmix_alpha",
        "drop_path": "drop_path_rate stochastic_depth",
        "rand_augment": "aa auto_augment autoaugment",
        "patience": "early_stopping early_stopping_patience",
        "loss": "criterion bce_loss",
        "compile": "torchcompile torch_compile",
    }.items()
    for other in others.split()
}


def closest(name: str, names: Iterable[str]) -> list[str]:
    """The three names that are most like a name."""
    return difflib.get_close_matches(name.lower(), [*names], n=3, cutoff=0.0)


def unused_fields(values: Mapping[str, Any]) -> dict[str, str]:
    """The fields that have no effect, and the setting that each one belongs to."""
    adamw, own = values["optimizer"] in ("adamw", "muon"), ".py:" in values["optimizer"]
    stepped = values["schedule"] == "step"
    used = {
        "milestones": (stepped, "schedule=step"),
        "last_lr": (values["schedule"].startswith("cosine"), "schedule=cosine"),
        "first_lr": (values["warmup"] > 0, "warmup above 0"),
        "lr_decay": (stepped, "schedule=step"),
        "momentum": (not adamw and not own, "optimizer=sgd or one of timm with momentum"),
        "beta2": (adamw, "optimizer=adamw"),
        "layer_decay": (values["optimizer"] != "muon", "another optimizer than muon"),
        "adaptive": (values["sam_rho"] > 0, "SAM, such as sam_rho=0.5"),
        "distillation_weight": (values["distillation"] != "none", "distillation=soft or hard"),
        "temperature": (values["distillation"] == "soft", "distillation=soft"),
    }
    return unused(used)


def _check_optimizer_name(optimizer: str) -> None:
    """Require an optimizer of `OPTIMIZERS`, or a first-order one of timm."""
    if optimizer in OPTIMIZERS or ".py:" in optimizer:
        return
    import timm.optim  # takes a second, and `OPTIMIZERS` do not need it

    names = [str(name) for name in timm.optim.list_optimizers()]
    if optimizer not in names:
        close = difflib.get_close_matches(optimizer.lower(), {*OPTIMIZERS, *names})
        raise InputError(
            f"optimizer must be adamw, sgd, muon, one of timm or FILE.py:NAME, got "
            f"{optimizer!r}. "
            f"Did you mean {', '.join(close or ['adamw'])}?"
        )
    if timm.optim.get_optimizer_info(optimizer).second_order:
        raise InputError(
            f"optimizer must need first derivatives only, got {optimizer!r}, which needs "
            "second derivatives. Choose another, such as adamw."
        )


def _converted(declared: Option, value: Any) -> Any:
    """The value in the type of its field; numbers may be text, and YAML has lists."""
    if declared.type == tuple[int, ...] and not isinstance(value, list | tuple):
        value = str(value) or ()
    if isinstance(value, str):
        return declared.parse(value)
    given: Any = tuple(value) if isinstance(value, list) else value
    declared.check(given)
    return float(given) if declared.type is float else given


PLACEHOLDER = Recipe(epochs=10**6, batch_size=10**6, lr=1.0)  # of fields that must be given


def load_recipe(text: str) -> Recipe:
    """The registered recipe of this name, or the recipe in this YAML file."""
    if text.endswith((".yaml", ".yml")):
        return read_recipe(Path(text))
    return RECIPES[text]()


def recipe_fields(recipe: Recipe) -> dict[str, Any]:
    """All fields by name, with the augmentation's on the same level; tuples as lists."""
    return flat_fields(asdict(recipe))


def flat_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by name, as `recipe_fields`, from the metadata of a checkpoint."""
    values = dict(stored)
    augmentation = values.pop("augmentation", None)
    values |= augmentation if isinstance(augmentation, Mapping) else {}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def recipe_from_fields(stored: Mapping[str, Any]) -> Recipe:
    """The recipe with these fields, as in a checkpoint; other fields have their defaults."""
    values = flat_fields(stored)
    missing = [name for name in ("epochs", "batch_size", "lr") if name not in values]
    if missing:
        raise InputError(f"a recipe must have epochs, batch_size and lr, got no {missing[0]}")
    return PLACEHOLDER.replace(**values)


def read_recipe(path: Path) -> Recipe:
    """The recipe in a YAML file of ``field: value`` lines.

    With ``base: NAME`` the fields change a registered recipe.
    """
    values = read_fields(path, "the recipe", "lr: 1e-3")
    base = values.pop("base", None)
    if base is not None:
        return RECIPES[str(base)]().replace(**values)
    try:
        return recipe_from_fields(values)
    except InputError as error:
        raise InputError(f"the recipe {path} is not valid: {error}") from error


def as_yaml(recipe: Recipe) -> str:
    """The recipe as text that `read_recipe` reads, with every field."""
    return yaml_text(recipe_fields(recipe))

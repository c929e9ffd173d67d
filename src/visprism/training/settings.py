"""Settings: a recipe as YAML or ``name=value``, and back, with every value's type checked."""

import difflib
import types
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from visprism.core.errors import InputError
from visprism.data.augmentation import Augmentation
from visprism.data.augmentation.settings import unread as unread_inside
from visprism.training.recipe import RECIPES, Recipe, unread

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def load_recipe(text: str) -> Recipe:
    """The recipe of this name, or in this YAML file.

    Raises:
        InputError: if there is none, or the file is no recipe.
    """
    if text.endswith((".yaml", ".yml")):
        return read_recipe(Path(text))
    return RECIPES[text]()


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with other values for some fields, those of its augmentation included.

    A value may be text, as ``"1e-3"``, ``"60,120,160"`` or ``"none"``, and becomes what its
    field is. Fields that the changes leave without effect, as the milestones of another
    schedule, become what they usually are. Of fewer epochs than the warm-up has, the same part
    is warm-up as before.

    Raises:
        InputError: if there is no such field, or the value is not of its type.

    Example:
        >>> changed(Recipe(epochs=2, batch_size=8, lr=0.1), {"lr": "1e-3", "mixup": 0.8}).lr
        0.001
    """
    own, augmentation = get_type_hints(Recipe), get_type_hints(Augmentation)
    outer: dict[str, Any] = {}
    inner: dict[str, Any] = {}
    for name, value in changes.items():
        bare = name.removeprefix("augmentation.")
        if bare in augmentation:
            inner[bare] = _typed(value, augmentation[bare], name)
        elif name in own and name != "augmentation":
            outer[name] = _typed(value, own[name], name)
        else:
            known = [n for n in own if n != "augmentation"] + list(augmentation)
            close = difflib.get_close_matches(name.lower(), known) or known
            raise InputError(
                f"recipes have no field {name!r}; did you mean {', '.join(close)}?"
            )
    # What the recipe had for a schedule or an optimiser that it has no longer, goes with it.
    idle = {name: getattr(Recipe, name) for name in unread(vars(recipe) | outer)}
    own_inner = vars(recipe.augmentation) | inner
    idle_inner = {name: getattr(Augmentation, name) for name in unread_inside(own_inner)}
    augmentation = replace(recipe.augmentation, **(idle_inner | inner))
    epochs = outer.get("epochs", recipe.epochs)
    if "warmup" not in outer and 0 < epochs <= recipe.warmup < recipe.epochs:
        outer["warmup"] = recipe.warmup * epochs / recipe.epochs
    return replace(recipe, **(idle | outer), augmentation=augmentation)


def flat(recipe: Recipe) -> dict[str, Any]:
    """All fields by name, those of the augmentation among them; tuples as lists."""
    values = asdict(recipe)
    values |= values.pop("augmentation")
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def read_recipe(path: Path) -> Recipe:
    """The recipe in a YAML file: ``field: value`` lines, and ``base: NAME`` to begin with one.

    Raises:
        InputError: if there is no such file, it is not such a file, or a field is wrong.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise InputError(f"the recipe {path} holds an alias; wants each value written out")
        values = yaml.safe_load(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)  # a dictionary would keep the last
    except OSError as error:
        raise InputError(f"the recipe {path} cannot be read ({error.strerror})") from error
    except InputError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(
            f"the recipe {path} is no YAML ({error})".replace("\n", " ")
        ) from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise InputError(f"the recipe {path} holds no fields; wants lines such as lr: 1e-3")
    counts = Counter(key.value for key, _ in root.value)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise InputError(f"the recipe {path} holds {', '.join(twice)} twice; wants it once")
    base = values.pop("base", None)
    if base is not None:
        if not isinstance(base, str):
            raise InputError(f"the recipe {path} has base: {base}; wants the name of a recipe")
        return changed(RECIPES[base](), values)
    needed = ("epochs", "batch_size", "lr")
    missing = [name for name in needed if name not in values]
    if missing:
        raise InputError(
            f"the recipe {path} lacks {', '.join(missing)}; name them, or base: with a recipe"
        )
    return changed(Recipe(epochs=10**6, batch_size=10**6, lr=1.0), values)


def as_yaml(recipe: Recipe) -> str:
    """What `read_recipe` reads, every field in its place."""
    import yaml

    return yaml.safe_dump(flat(recipe), sort_keys=False)


def _typed(value: Any, kind: Any, name: str) -> Any:  # noqa: ANN401 (of any field)
    """The value as its field wants it."""
    options = get_args(kind)
    if get_origin(kind) is Literal:
        if value in options:
            return value
        raise InputError(f"{name} is {value!r}; wants one of {', '.join(map(str, options))}")
    if get_origin(kind) in (Union, types.UnionType):
        if value is None or str(value).lower() in ("none", "null", ""):
            return None
        return _typed(value, options[0], name)
    if get_origin(kind) is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            parts = [parts]
        return tuple(_typed(part, options[0], name) for part in parts if part != "")
    if kind is bool:
        if str(value).lower() in (*_TRUE, *_FALSE):
            return str(value).lower() in _TRUE
        raise InputError(f"{name} is {value!r}; wants true or false")
    if kind is str:
        if not isinstance(value, str):
            raise InputError(f"{name} is {value!r}; wants one word")
        return value
    try:
        number = kind(value)
    except (TypeError, ValueError):
        number = None
    if "_" in str(value):
        number = None  # Python would read it
    if number is None or isinstance(value, bool) or (kind is int and str(number) != str(value)):
        what = "a whole number" if kind is int else "a number"
        raise InputError(f"{name} is {value!r}; wants {what}")
    return number

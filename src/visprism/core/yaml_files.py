"""YAML files that users write: a mapping of fields, read without running anything."""

from collections import Counter
from pathlib import Path
from typing import Any

from visprism.core.errors import InputError


def read_fields(path: Path, what: str, example: str) -> dict[str, Any]:
    """The fields in a YAML file of ``field: value`` lines.

    Args:
        path: of the file.
        what: the file in an error, such as "the recipe".
        example: a line that such a file may hold.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise InputError(f"{what} {path} must not use YAML aliases. Write each value out.")
        values = yaml.safe_load(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)  # a dictionary would keep the last
    except OSError as error:
        raise InputError(f"{what} {path} cannot be read ({error.strerror})") from error
    except InputError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(
            f"{what} {path} is not valid YAML ({error})".replace("\n", " ")
        ) from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise InputError(f"{what} {path} must hold lines such as {example}")
    counts = Counter(key.value for key, _ in root.value)
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise InputError(f"{what} {path} must name each field once, got {repeated[0]} twice")
    return values


def yaml_text(fields: dict[str, Any]) -> str:
    """Fields as text that `read_fields` reads, in their order."""
    import yaml

    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)

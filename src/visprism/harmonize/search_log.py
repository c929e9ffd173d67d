"""Log: the accuracies of a search in a file, a line each, as soon as they are known."""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import SupportsFloat

import torch
from torch import nn

from visprism.core.errors import InputError
from visprism.core.files import atomic_write


class Log:
    """The accuracies that are known of each placement and seed.

    The file begins with a line that says of which search it is. A last line that was cut short
    by a crash does not count, and is written anew.

    Args:
        path: of the file; None keeps nothing.
        model: that the search begins with.
        settings: that change what a candidate is.

    Raises:
        InputError: if the file is of another search, or no log.
    """

    def __init__(
        self, path: Path | str | None, model: nn.Module, settings: Mapping[str, object]
    ) -> None:
        self.path = path = None if path is None else Path(path)
        self._known: dict[tuple[tuple[str, ...], int], float] = {}
        first = {"model": _fingerprint(model), **json.loads(json.dumps(dict(settings)))}
        if path is None:
            return
        lines = _whole_lines(path)
        if lines:
            self._read(lines, first)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as scratch:
            scratch.write_text("".join(lines) or json.dumps(first) + "\n")

    def find(self, placement: Sequence[str], seed: int) -> float | None:
        """The accuracy, if it is known."""
        return self._known.get((tuple(placement), seed))

    def keep(self, placement: Sequence[str], seed: int, accuracy: object) -> float:
        """Write an accuracy down.

        Raises:
            InputError: if it is no fraction.
        """
        if not isinstance(accuracy, SupportsFloat) or not 0 <= float(accuracy) <= 1:
            raise InputError(
                f"train returned {accuracy}; wants the accuracy in validation, from 0 to 1"
            )
        accuracy = float(accuracy)
        self._known[tuple(placement), seed] = accuracy
        if self.path is not None:
            row = {"placement": list(placement), "seed": seed, "accuracy": accuracy}
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
        return accuracy

    def _read(self, lines: Sequence[str], first: Mapping[str, object]) -> None:
        try:
            head, *rows = [json.loads(line) for line in lines]
            other = [name for name in first if head[name] != first[name]]
            for row in rows:
                self._known[tuple(row["placement"]), row["seed"]] = float(row["accuracy"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self.path} is no log of a search ({error}); delete it, or name another file"
            ) from error
        if other:
            raise InputError(
                f"{self.path} is of another search (another {' and '.join(other)}); go on with "
                "what it was begun with, delete it, or name another file"
            )


def _whole_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines(keepends=True) if line[-1] == "\n"]


def _fingerprint(model: nn.Module) -> str:
    digest = blake2b(type(model).__name__.encode(), digest_size=16)
    for name, tensor in model.state_dict().items():
        raw = tensor.detach().cpu().contiguous().flatten()
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(raw.view(torch.uint8).numpy().data)
    return digest.hexdigest()

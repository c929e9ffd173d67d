"""Joining: the process group of what ``torchrun`` started, made once and kept."""

import atexit
import os
from collections import Counter

from torch import distributed


class Joined:
    """The process group that was made, kept from one use to the next."""

    def __init__(self) -> None:
        self.inside = False
        self._like: tuple | None = None  # of what group there is: where, and its backend
        self._stores: dict[tuple, distributed.Store] = {}
        self._made: Counter[tuple] = Counter()  # groups, by place

    @property
    def ours(self) -> bool:
        """Whether the group that there is was made here."""
        return self._like is not None

    def enter(self, backend: str | None) -> None:
        """Join the processes that the environment names, unless they are joined."""
        names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
        place = tuple(os.environ.get(name) for name in names)
        if self._like != (place, backend):
            self.part()
            if place not in self._stores:
                self._stores[place], _, _ = next(distributed.rendezvous("env://"))
            # Each under a name of its own: of one that was left, others find its addresses.
            self._made[place] += 1
            store = distributed.PrefixStore(
                f"visprism/{self._made[place]}", self._stores[place]
            )
            own, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            distributed.init_process_group(backend, store=store, rank=own, world_size=world)
            self._like = place, backend
        self.inside = True

    def part(self) -> None:
        """Leave the processes, if they are joined."""
        if self.ours and distributed.is_initialized():
            distributed.destroy_process_group()
        self._like = None


JOINED = Joined()
atexit.register(JOINED.part)

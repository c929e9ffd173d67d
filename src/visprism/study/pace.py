"""Pace: how much longer the measurements of a study take than was planned."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_TRUST = 0.07  # of the plan: until so much is measured, it counts more than the clock


class Pace:
    """Measured over planned seconds, which later plans and the time left are multiplied by.

    The ratio of few seconds says little, so that its logarithm is weighted by the part of the
    plan that is measured: half as long and twice as long are equally far from the plan.

    Args:
        planned: seconds of the whole plan.
        clock: the time in seconds.

    Example:
        >>> pace = Pace(planned=10.0)
        >>> pace.factor
        1.0
        >>> pace.note(expected=10.0, taken=20.0)
        >>> 1.8 < pace.factor < 2
        True
    """

    def __init__(self, planned: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._planned, self._clock = planned, clock
        self._expected = self._taken = 0.0  # seconds of measurements that are complete

    @property
    def factor(self) -> float:
        """Expected seconds of what is left, over those that the first plan states for it."""
        if not self._expected:
            return 1.0
        weight = self._expected / (self._expected + _TRUST * self._planned)
        return (max(self._taken, 1e-9) / self._expected) ** weight

    def note(self, *, expected: float, taken: float) -> None:
        """Take a measurement into account: seconds of the first plan, and of the clock."""
        self._expected, self._taken = self._expected + expected, self._taken + taken

    @contextmanager
    def measuring(self, expected: float) -> Iterator[None]:
        """Take what runs within into account, whether it ends or fails."""
        begin = self._clock()
        try:
            yield
        finally:
            self.note(expected=expected, taken=self._clock() - begin)

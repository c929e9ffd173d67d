"""The time that a study still takes, as a terminal shows it."""

import pytest
from results_by_hand.feature_maps import variances

from visprism import Entry, Failure, Finished, Plan, Planned, Started, Step, Stopped
from visprism.study.console import TimeLeft

STEPS = {"variance": (4.0, 8.0), "hessian": (10.0, 20.0), "landscape": (30.0, 18.0)}
MODELS = ("a", "b")


class Clock:
    """A clock that is advanced by hand."""

    now = 100.0

    def __call__(self):
        return self.now


def played(factor, until):
    """`TimeLeft` where parts take `factor` times what is planned, and what is really left."""
    clock = Clock()
    left = TimeLeft(clock)
    steps = (Step(n, (), 8, dict(zip(MODELS, s, strict=True))) for n, s in STEPS.items())
    left.note(Planned(Plan(tuple(steps)), ()))
    parts = [(m, n, s[i]) for n, s in STEPS.items() for i, m in enumerate(MODELS)]
    total = sum(seconds for *_, seconds in parts)
    passed = 0.0
    for model, analysis, seconds in parts:
        after = total - passed - seconds
        left.note(Started(model, (analysis,), 8, seconds, after))
        begun = passed + seconds
        if begun > until * total:
            clock.now += factor * (until * total - passed)
            return left, factor * (1 - until) * total
        clock.now += factor * seconds
        passed = begun
        if model == "a":
            entry = Entry((model,), analysis, (variances(),), {}, 8, seconds, "key")
            left.note(Finished(entry, resumed=False))
        else:
            left.note(Stopped(Failure(model, analysis, "out of memory", "failed")))
    return left, 0.0


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_after_a_third_the_time_left_is_right_within_30_percent(factor):
    left, true = played(factor, until=1 / 3)
    assert left.seconds == pytest.approx(true, rel=0.3)
    assert str(left) == f"All analyses: about {left.seconds:.0f} s left"

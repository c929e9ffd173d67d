"""Laws of plans: what fits into a time budget, and in which order it is measured."""

import dataclasses
from contextlib import nullcontext
from dataclasses import replace
from math import floor

import pytest
import torch
from torch import nn

from visprism import ANALYSES, Cost, DataOptions, Plan, Planned, Started, Step, examine
from visprism.analyses.base import Timing
from visprism.core.run import DEFAULT_RUN
from visprism.study.pace import Pace
from visprism.study.plan import Shortage, minutes_with_room, plan_of
from visprism.study.subjects import candidates_of, subjects_of
from visprism.study.workload import Workload, timing_of


@pytest.fixture
def subjects(net, loader):
    models = {"fast": net(0), "slow": net(1)}
    return subjects_of(
        candidates_of(models, pretrained=False, seed=0),
        loader,
        None,
        DataOptions(),
        preprocessing=None,
        run=DEFAULT_RUN,
    )


def analysis_that_costs(brightness, cost, name="brightness", share=1.0):
    """An analysis of a stated cost."""
    namespace = {"name": name, "share": share, "cost": lambda *_: cost}
    return dataclasses.dataclass(frozen=True)(type("Priced", (type(brightness),), namespace))()


def pace_is(factor, monkeypatch):
    """Let measurements take `factor` times the seconds of the plan, whatever the clock says."""

    def measuring(self, expected):
        return nullcontext(self.note(expected=expected, taken=factor * expected))

    monkeypatch.setattr(Pace, "measuring", measuring)


def workload_of(subjects, analyses, timings):
    names = frozenset(s.name for s in subjects)
    return Workload(subjects, {a.name: names for a in analyses}, timings)


def test_expected_seconds_are_units_times_their_measured_seconds():
    timing = Timing(forward=1.0, load=0.5, evaluation=2.0, gradient=10.0, product=100.0)
    cost = Cost(
        per_image=3, fixed=7, seconds_per_image=0.25, evaluations=4, gradients=5, products=6
    )
    seconds = 3 * 1.0 + 0.25 + 4 * 2.0 + 5 * 10.0 + 6 * 100.0 + 0.5
    assert cost.seconds(11, timing) == pytest.approx(11 * seconds + 7 * 1.0)


def test_units_without_a_measurement_are_counted_in_forward_passes():
    cost = Cost(evaluations=1, gradients=1, products=1)
    assert cost.seconds(2, Timing(forward=0.1)) == pytest.approx(2 * 0.1 * (1 + 3 + 6))


def test_the_slowest_model_decides_the_number_of_images_of_all(subjects, brightness):
    analysis = analysis_that_costs(brightness, Cost(per_image=2))
    timings = {"fast": Timing(0.01), "slow": Timing(0.09)}
    budget = 3.0
    (step,) = plan_of(workload_of(subjects, [analysis], timings), [analysis], budget).steps
    fitting = floor(0.8 * budget / (2 * (0.01 + 0.09)))
    assert step.images == fitting < 20
    assert step.seconds == pytest.approx(
        {"fast": 2 * 0.01 * fitting, "slow": 2 * 0.09 * fitting}
    )


def test_a_pass_that_analyses_share_is_counted_once(subjects):
    analyses = [ANALYSES["fourier"](), ANALYSES["variance"](), ANALYSES["cka"]()]
    timings = {"fast": Timing(0.01, load=0.002), "slow": Timing(0.01)}
    workload = workload_of(subjects, analyses, timings)
    alone = [workload.seconds([a], 10)["fast"] for a in analyses]
    together = workload.seconds(analyses, 10)["fast"]
    # Each alone pays the pass and the loading of 10 images.
    assert together == pytest.approx(sum(alone) - 2 * 10 * (0.01 + 0.002))


@pytest.mark.parametrize(
    ("models", "pairs"),
    [
        (1, []),
        (2, [(0, 1)]),
        (3, [(0, 1), (0, 2), (1, 2)]),
        (4, [(0, 1), (0, 2), (0, 3)]),
    ],
)
def test_comparisons_are_a_part_of_the_plan(subjects, brightness, models, pairs):
    subjects = [replace(subjects[0], name=f"model {i}") for i in range(models)]
    analysis = analysis_that_costs(brightness, Cost(per_image=2))
    compared = type(
        "Compared", (type(analysis),), {"comparison_cost": lambda *_: Cost(per_image=5)}
    )()
    timings = {s.name: Timing(10.0**i) for i, s in enumerate(subjects)}
    workload = workload_of(subjects, [compared], timings)
    (step,) = plan_of(workload, [compared], None).steps
    seconds = 20 * 5 * sum(10.0**i + 10.0**j for i, j in pairs)
    assert step.comparing == pytest.approx(seconds)
    assert step.total == pytest.approx(20 * 2 * sum(10.0**i for i in range(models)) + seconds)
    limited = plan_of(workload, [compared], 0.5 * step.total / 0.8).steps
    assert limited[0].images == 10


def test_what_is_read_without_images_takes_no_time_to_load():
    assert Cost().seconds(100, Timing(forward=1.0, load=1.0)) == 0
    assert Cost(fixed=2).seconds(100, Timing(forward=1.0, load=1.0)) == 2


def test_each_part_of_a_plan_is_announced_with_what_comes_after_it(net, loader, monkeypatch):
    pace_is(1.0, monkeypatch)
    events = []
    study = examine(
        {"a": net(), "b": net(1)}, loader, analyses=["cka", "landscape"], minutes=None,
        options={"landscape": {"points": 3}}, listener=events.append,
    )  # fmt: skip
    assert not study.failures
    (plan,) = [e.plan for e in events if isinstance(e, Planned)]
    started = [e for e in events if isinstance(e, Started)]
    assert ("a and b", ("cka",)) in [(e.model, e.analyses) for e in started]
    left = plan.seconds
    for event in started:
        left -= event.seconds
        assert event.seconds_after == pytest.approx(left)
    assert left == pytest.approx(0, abs=1e-9)


def test_a_pace_multiplies_all_expected_seconds(subjects):
    analyses = [ANALYSES["fourier"](), ANALYSES["cka"]()]
    workload = workload_of(
        subjects, analyses, {"fast": Timing(0.01), "slow": Timing(0.02, 0.1)}
    )
    (plain,) = plan_of(workload, analyses, None).steps
    (slower,) = plan_of(replace(workload, pace=3.0), analyses, None).steps
    assert plain.comparing > 0
    assert slower.comparing == pytest.approx(3 * plain.comparing)
    assert slower.seconds == pytest.approx({m: 3 * s for m, s in plain.seconds.items()})


@pytest.mark.parametrize("factor", [0.25, 1.0, 4.0])
def test_what_follows_is_planned_at_the_pace_of_what_was_measured(
    net, loader, brightness, factor, monkeypatch
):
    pace_is(factor, monkeypatch)
    timing = Timing(1.0)
    monkeypatch.setattr("visprism.study.workload.timing_of", lambda *_, **__: timing)
    first = analysis_that_costs(brightness, Cost(per_image=1), "first")
    second = analysis_that_costs(brightness, Cost(per_image=10), "second")
    events = []
    examine(net(), loader, analyses=[first, second], minutes=2, listener=events.append)
    images = {e.analyses[0]: e.images for e in events if isinstance(e, Started)}
    # At first 20 s for all 20 images; then 0.8 of 120 s, in which an image takes `pace` x 10 s.
    pace = factor ** (20 / (20 + 0.07 * (20 + 70)))
    assert images == {"first": 20, "second": min(20, int(0.8 * 120 / (10 * pace)))}


def test_an_analysis_without_room_is_left_out_with_the_budget_it_needs(subjects, brightness):
    analysis = analysis_that_costs(brightness, Cost(per_image=100))
    workload = workload_of(subjects, [analysis], {"fast": Timing(1.0), "slow": Timing(1.0)})
    plan = plan_of(workload, [analysis], 60.0)
    assert plan.steps == ()
    assert "2 images would take about 400 s" in str(plan.too_slow["brightness"])
    minutes = minutes_with_room(workload, [analysis], 60.0)["brightness"]
    assert minutes >= 400 / 60
    assert plan_of(workload, [analysis], 60.0 * minutes).steps[0].images >= 2


def test_a_budget_with_room_includes_what_is_not_for_measurements(subjects, brightness):
    analysis = analysis_that_costs(brightness, Cost(per_image=100))
    workload = workload_of(subjects, [analysis], {"fast": Timing(1.0), "slow": Timing(1.0)})
    minutes = minutes_with_room(workload, [analysis], 60.0, 900.0)["brightness"]
    assert minutes >= (400 + 900) / 60
    assert plan_of(workload, [analysis], 60.0 * minutes - 900).steps[0].images >= 2


def test_what_an_expensive_analysis_cannot_use_goes_to_the_others(subjects, brightness):
    # Each has half of 80 s at first: one needs at least 400 s, the other 60 s for 30 images.
    dear, cheap = (
        analysis_that_costs(brightness, Cost(per_image=cost), name)
        for cost, name in ((100, "dear"), (1, "cheap"))
    )
    workload = workload_of(subjects, [dear, cheap], {"fast": Timing(1.0), "slow": Timing(1.0)})
    plan = plan_of(workload, [dear, cheap], 100.0)
    (step,) = plan.steps
    assert (step.names, step.images) == ({"cheap"}, subjects[0].num_images)
    assert plan.too_slow["dear"].allowance <= 80


def test_analyses_that_always_run_leave_half_of_the_budget_to_others(subjects, brightness):
    always = analysis_that_costs(brightness, Cost(per_image=10), "always", share=0.0)
    other = analysis_that_costs(brightness, Cost(per_image=10), "other")
    timings = {"fast": Timing(1.0), "slow": Timing(1.0)}
    workload = workload_of(subjects, [always, other], timings)
    plan = plan_of(workload, [always, other], 200.0)
    assert [step.images for step in plan.steps] == [4, 4]  # 160 s at 20 s for each image
    (alone,) = plan_of(workload, [always], 200.0).steps
    assert alone.images == 8


def test_a_plan_that_fits_has_all_images(subjects, brightness):
    costs = (0.1, 0.3, 0.7)
    analyses = [
        analysis_that_costs(brightness, Cost(per_image=cost), f"a{cost}", share=0.0)
        for cost in costs
    ]
    workload = workload_of(subjects, analyses, {"fast": Timing(0.1), "slow": Timing(0.3)})
    full = sum(costs) * 0.4 * subjects[0].num_images
    plan = plan_of(workload, analyses, 1.0001 * full / 0.8)
    assert {step.images for step in plan.steps} == {subjects[0].num_images}


def test_the_cheapest_analysis_is_measured_first(net, loader, brightness):
    dear = analysis_that_costs(brightness, Cost(per_image=50), name="dear")
    cheap = analysis_that_costs(brightness, Cost(per_image=1), name="cheap")
    order = []

    def listen(event):
        if isinstance(event, Started):
            order.extend(event.analyses)

    study = examine(net(), loader, analyses=[dear, cheap], listener=listen)
    assert order == ["cheap", "dear"]
    # Entries keep the order in which the analyses were named.
    assert [entry.analysis for entry in study.entries] == ["dear", "cheap"]


def test_times_of_the_loss_are_measured_where_it_can_be_differentiated_twice(subjects):
    timing = timing_of(subjects[0], DEFAULT_RUN, of_loss=True)
    assert min(timing.evaluation, timing.gradient, timing.product) > 0
    assert timing_of(subjects[0], DEFAULT_RUN).product is None


class _Once(torch.autograd.Function):
    """The identity, whose derivative has no derivative."""

    @staticmethod
    def forward(_, x):
        return x * 1

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(_, gradient):
        return gradient * 1


class _OnceDifferentiable(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return _Once.apply(self.net(x))


def test_a_loss_without_second_derivatives_has_no_times_and_no_error(net, loader):
    (subject,) = subjects_of(
        candidates_of(_OnceDifferentiable(net()).eval(), pretrained=False, seed=0),
        loader,
        None,
        DataOptions(),
        preprocessing=None,
        run=DEFAULT_RUN,
    )
    timing = timing_of(subject, DEFAULT_RUN, of_loss=True)
    assert timing.forward > 0
    assert timing.evaluation is timing.gradient is timing.product is None


def step(seconds):
    return Step("total", (), 8, {"a": seconds})


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (
            Plan(budget=12.0, spent=5.2),
            "total  0.0 s expected for measurements; of the budget of 12 s, loading, timing "
            "and files take 5 s",
        ),
        (
            Plan(budget=12.0, spent=0.4),
            "total  0.0 s expected for measurements; the budget is 12 s",
        ),
        (
            Plan((step(0.24),)),
            "total  0.2 s expected for measurements; loading, timing and files are not "
            "included",
        ),
        (
            Plan((step(24.4),), budget=6e10),
            "total  24 s expected for measurements; the budget is 1000000000 min",
        ),
    ],
)
def test_the_plan_says_what_is_not_for_measurements(plan, line):
    assert plan.lines()[-1] == line


@pytest.mark.parametrize(
    ("allowance", "text"),
    [
        (1.2, "1 s of the time budget is left"),
        (0.5, "0.5 s of the time budget is left"),
        (7.0, "7 s of the time budget are left"),
    ],
)
def test_a_shortage_says_what_is_left_in_the_right_number(allowance, text):
    assert text in str(Shortage(16, 100.0, allowance))

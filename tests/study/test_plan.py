"""Laws of plans: sizes follow from what is declared and counted, never from a clock."""

import itertools
import json
import time
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import visprism as vp
from visprism import ANALYSES, Cost, DataOptions, Planned, Sizes, Started, examine
from visprism.core.options import EFFORTS
from visprism.kit.inputs import candidates_of, subjects_of
from visprism.study.exports import json_of
from visprism.study.plan import Speed, number_of_images, ordered_steps


@pytest.fixture
def subjects(net, loader):
    models = candidates_of({"a": net(0), "b": net(1)})
    return subjects_of(models, loader, None, DataOptions(), preprocessing=None, run=vp.Run())


def priced(brightness, cost=None, images=None, name="brightness", rank=2):
    """An analysis of a stated cost."""
    cost, images = cost or Cost(per_image=1), images or Sizes()
    namespace = {"name": name, "rank": rank, "images": images, "cost": lambda *_: cost}
    return dataclass(frozen=True)(type("Priced", (type(brightness),), namespace))()


def test_expected_seconds_are_passes_times_their_seconds():
    cost = Cost(per_image=7, fixed=7, seconds_per_image=0.25, gradients=5, products=6)
    passes = 3 + 4 + 3 * 5 + 7 * 6
    assert cost.seconds(11, 2.0, 0.5) == pytest.approx(11 * (2 * passes + 0.75) + 7 * 2.0)
    assert Cost(fixed=2).seconds(100, 1.0, load=1.0) == 2  # no image is loaded


def test_an_effort_pays_for_images_by_their_arithmetic(subjects, brightness):
    analysis = priced(brightness, Cost(per_image=3e7), Sizes(work=2))
    macs = 4 * 27 * 64 + 20  # a convolution of 3 to 4 channels and 8x8 places, five logits
    assert number_of_images(analysis, subjects, "quick") == (int(2 * 8e11 / (3e7 * macs)), "")
    assert number_of_images(analysis, subjects, "standard") == (20, "")  # all
    few = replace(subjects[0], limit=3)  # the fewest images of a model are those of all
    assert number_of_images(analysis, [few, subjects[1]], "full") == (3, "")


def test_declared_numbers_are_upper_ends_and_the_fewest_are_a_condition(subjects, brightness):
    sizes = Sizes(fewest=4, quick=6, standard=10)
    cheap = priced(brightness, images=sizes)
    assert [number_of_images(cheap, subjects, e)[0] for e in EFFORTS] == [6, 10, 20]
    dear = priced(brightness, Cost(per_image=1e8), sizes)
    number, beyond = number_of_images(dear, subjects, "quick")
    assert number == 4
    assert "Effort standard measures it, and so does naming it" in beyond
    assert number_of_images(dear, subjects, "full") == (20, "")


def test_what_is_beyond_the_effort_is_left_out_unless_it_is_named(net, loader, monkeypatch):
    monkeypatch.setattr(ANALYSES["calibration"], "cost", lambda *_: Cost(per_image=1e9))
    monkeypatch.setattr(type(ANALYSES), "__iter__", lambda _: iter(["calibration", "variance"]))
    study = examine(net(), loader)
    assert [(f.analysis, f.kind) for f in study.failures] == [("calibration", "effort")]
    assert study.analyses == ("variance",)
    assert examine(net(), loader, analyses="calibration").analyses == ("calibration",)


def test_options_have_their_values_at_the_effort_unless_they_are_given():
    def points(effort, **options):
        (analysis,) = ANALYSES.chosen("landscape", {"landscape": options}, effort)
        return analysis.points

    assert [*map(points, EFFORTS)] == [11, 21, 21]
    assert points("quick", points=15) == 15
    instance = ANALYSES["landscape"]()
    assert ANALYSES.chosen(instance, effort="quick") == [instance]


def test_steps_are_in_the_order_of_rank_and_arithmetic(subjects, brightness):
    dear, late, cheap = (
        priced(brightness, Cost(per_image=cost), name=name, rank=rank)
        for cost, name, rank in ((9, "dear", 2), (1, "late", 3), (2, "cheap", 2))
    )
    shared = [ANALYSES["fourier"](), ANALYSES["variance"]()]
    analyses = [late, dear, *shared, cheap]
    steps = ordered_steps(analyses, dict.fromkeys([a.name for a in analyses], 8), subjects)
    assert [step.label for step in steps] == ["fourier, variance", "cheap", "dear", "late"]


def test_a_pass_that_analyses_share_is_counted_once(subjects):
    analyses = [ANALYSES[name]() for name in ("fourier", "variance", "cka")]
    alone = sum(Speed(0.01, 0.002).seconds([a], subjects[0]) for a in analyses)
    together = Speed(0.01, 0.002).seconds(analyses, subjects[0])
    assert together == pytest.approx(alone - 2 * 20 * (0.01 + 0.002))


def test_each_part_of_a_plan_is_announced_with_what_comes_after_it(net, loader):
    events, analyses = [], ["cka", "variance", "anatomy"]
    examine({"a": net(), "b": net(1)}, loader, analyses=analyses, listener=events.append)
    (plan,) = [e.plan for e in events if isinstance(e, Planned)]
    started = [e for e in events if isinstance(e, Started)]
    left = plan.seconds
    for event in started:
        left -= event.seconds
        assert event.seconds_after == pytest.approx(left)
    assert [e.model for e in started] == ["a", "b"] * 2
    assert left == pytest.approx(sum(step.comparing for step in plan.steps))


def test_a_slow_machine_measures_the_same(net, loader, monkeypatch):
    """Each look at a clock takes 1000 s."""
    models = {"a": net(0), "b": net(1)}

    def measured():
        study = examine(models, loader, analyses=["variance", "calibration", "sharpness"])
        content = json.loads(json_of(study))
        for timed in (content, *content["analyses"]):
            timed.pop("seconds")
        content["questions"] = [q for q in content["questions"] if "rounds" not in str(q)]
        return content

    quiet = measured()
    for clock in ("monotonic", "perf_counter"):
        monkeypatch.setattr(time, clock, itertools.count(0.0, 1000.0).__next__)
    assert measured() == quiet


def test_a_time_limit_leaves_out_and_never_measures_less(net, loader, brightness):
    slow = priced(brightness, Cost(seconds_per_image=100.0), name="slow", rank=1)
    study = examine(net(), loader, analyses=[slow, brightness], effort="full", minutes=1)
    (failure,) = study.failures
    assert (failure.analysis, failure.kind) == ("slow", "no time")
    assert "20 images would take about 2000 s" in failure.reason
    (entry,) = study.entries
    assert (entry.analysis, entry.images) == ("brightness", 20)


def test_a_study_keeps_its_sizes_when_a_larger_model_joins(net, loader, brightness, tmp_path):
    costs = {"a": 1.0, "b": 1e8}
    analysis = type(
        "ByModel", (type(brightness),), {"cost": lambda _, s: Cost(per_image=costs[s.name])}
    )()
    first = examine({"a": net(0)}, loader, analyses=[analysis], out=tmp_path)
    models = {"a": net(0), "b": net(1)}
    both = examine(models, loader, analyses=[analysis], out=tmp_path)
    assert [e.images for e in both.entries] == [20, 20]
    assert both.entries[0] == first.entries[0]
    assert [e.images for e in examine(models, loader, analyses=[analysis]).entries] == [2, 2]


class Wide(nn.Module):
    """Takes 2 MiB for each image, and 16 MiB of weights."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.weight = nn.Parameter(torch.zeros(2**22))

    def forward(self, x):
        wide = x.new_ones(len(x), 2**19)
        return self.conv(x).mean((2, 3)) + wide.mean(1, keepdim=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_peak_memory_is_that_of_a_batch_with_the_weights():
    study = vp.examine(Wide().eval().cuda(), [torch.rand(16, 3, 8, 8)], analyses="anatomy")
    memory = study.header["speed"]["Wide"]["memory"]
    assert memory == pytest.approx((16 * 2 + 16) * 2**20, rel=0.2)


def test_a_limit_holds_for_what_needs_one_pass_and_a_larger_one_contains_it():
    few, more = (
        vp.examine(
            "resnet20.shapes",
            "shapes",
            analyses=["calibration", "variance", "ablation"],
            limit=limit,
        )
        for limit in (300, 600)
    )
    for study, limit in ((few, 300), (more, 600)):
        sizes = {a: study["resnet20.shapes"][a].provenance.images for a in study.analyses}
        assert sizes["calibration"] == sizes["variance"] == limit
        assert sizes["ablation"] <= 128  # ten passes
    positions = [study.header["positions"] for study in (few, more)]
    assert positions[0] == positions[1][:300]

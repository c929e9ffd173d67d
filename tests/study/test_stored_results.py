"""A stored result is used again only for the code and the folder that it belongs to."""

import json
import os
from dataclasses import replace

import pytest
import torch
from PIL import Image
from torch import nn

from visprism import (
    Cost,
    DistributionShift,
    Finished,
    InputError,
    ModeConnectivity,
    OutOfDistribution,
    Planned,
    Stopped,
    Study,
    Variance,
    examine,
    load_model,
)
from visprism.study.exports import json_of
from visprism.study.identity import code_of, fingerprint_of


class Scaled(nn.Module):
    """A network whose logits say nothing about its blocks: the head is zero."""

    def __init__(self, scale=1.0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.stem = nn.Conv2d(3, 4, 3, padding=1)
            self.branch = nn.Conv2d(4, 4, 3, padding=1)
            self.head = nn.Linear(4, 5)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.scale = scale

    def forward(self, x):
        x = self.stem(x)
        x = x + self.scale * self.branch(x)
        return self.head(x.mean((2, 3)))


class Rolled(Scaled):
    """The same weights in another order of operations."""

    def forward(self, x):
        x = self.stem(x)
        x = x + self.scale * self.branch(x).roll(3, 1)
        return self.head(x.mean((2, 3)))


def resumed(model, loader, out, analyses="variance", **options):
    """Whether each result is that of an earlier run."""
    events = []
    options |= {"analyses": analyses, "out": out, "listener": events.append}
    examine({"m": model}, loader, **options)
    return [e.resumed for e in events if isinstance(e, Finished)]


def test_a_model_of_other_code_with_the_same_weights_and_logits_is_measured(loader, tmp_path):
    models = Scaled(), Scaled(), Scaled(-5.0), Rolled()
    again = [resumed(model.eval(), loader, tmp_path) for model in models]
    assert again == [[False], [True], [False], [False]]


def test_another_weight_decay_of_the_recipe_is_measured(tmp_path):
    loaded = load_model("resnet20.shapes")
    options = {"analyses": "sharpness", "limit": 4}
    options["options"] = {"sharpness": {"directions": 1}}
    for decay, again in ((0.0, False), (0.5, False), (0.5, True)):
        model = replace(loaded, recipe={"weight_decay": decay})
        assert resumed(model, "shapes", tmp_path, **options) == [again]


def test_a_checkpoint_of_the_same_name_with_other_weights_is_measured(net, loader, tmp_path):
    file, again = tmp_path / "last.pt", []
    for seed in (1, 1, 2):
        torch.save(net(seed).state_dict(), file)
        analysis = ModeConnectivity(points=3, checkpoints=(file,))
        again += resumed(net(), loader, tmp_path / "study", analysis)
    assert again == [False, True, False]


def test_a_folder_of_the_same_name_with_other_images_is_measured(tmp_path):
    def contents():
        data = f"folder:{tmp_path}"
        yield OutOfDistribution.content({"ood_data": data, "ood_split": None})
        yield DistributionShift.content({"sets": [data]})
        yield DistributionShift.content({"sets": [f"imagenet_c:{tmp_path}"]})

    for name in ("a", "b"):
        (tmp_path / "fog/1" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "fog/1" / name / "1.png")
    first, same = list(contents()), list(contents())
    (tmp_path / "fog/2/a").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(tmp_path / "fog/2/a/1.png")
    assert first == same
    assert all(one != other for one, other in zip(first, contents(), strict=True))


def test_the_place_of_a_method_in_its_file_does_not_matter():
    def code(text):
        namespace = {"__name__": "models"}
        exec(text, namespace)
        return code_of(namespace["A"])

    source = "class A:\n    def forward(self, x):\n        return x + {}\n"
    first, moved = code(source.format(1)), code("\n\n\n" + source.format(1))
    other = code(source.format(2))
    assert first == moved
    assert first != other
    assert fingerprint_of(Scaled()) == fingerprint_of(Scaled())


def test_a_folder_that_another_run_writes_to_is_refused(net, loader, brightness, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(InputError, match="out must not be in use, and another run writes to"):
        examine(net(), loader, analyses=[brightness], out=tmp_path)
    os.close(descriptor)
    study = examine(net(), loader, analyses=[brightness], out=tmp_path)
    assert Study.load(tmp_path) == study


@pytest.mark.parametrize("error", [KeyError("x"), InputError("it must be nice")])
@pytest.mark.parametrize("method", ["measure", "inapplicable"])
def test_an_error_of_any_type_in_one_model_does_not_cost_the_other(
    error, method, net, loader, brightness
):
    def failing(self, subject, *rest):
        if subject.name == "a":
            raise error
        return getattr(super(Failing, self), method)(subject, *rest)

    class Failing(type(brightness)):
        pass

    setattr(Failing, method, failing)

    models, events = {"a": net(0), "b": net(1)}, []
    study = examine(models, loader, analyses=[Failing()], listener=events.append)
    (failure,) = study.failures
    assert (failure.model, failure.kind) == ("a", "failed")
    assert failure.reason in ("KeyError: 'x'", "it must be nice")
    assert [e.failure for e in events if isinstance(e, Stopped)] == [failure]
    assert [e.models for e in study.entries] == [("b",)]
    with pytest.raises(type(error)):
        examine(models, loader, analyses=[Failing()], on_error="raise")


def test_a_statistic_that_fails_costs_no_other_of_its_pass(net, loader):
    class Failing(Variance):
        name = "failing"

        def extract(self, x):
            raise ArithmeticError("no number")

    study = examine(net(), loader, analyses=[Failing(), "fourier", "variance"])
    assert [entry.analysis for entry in study.entries] == ["fourier", "variance"]
    assert [f.reason for f in study.failures] == ["ArithmeticError: no number"]


def test_what_is_stored_is_shown_whatever_the_time_limit(net, loader, brightness, tmp_path):
    class Slow(type(brightness)):
        name = "slow"

        def cost(self, subject):
            return Cost(per_image=1.0, seconds_per_image=100.0)

    models = {"a": net(0), "b": net(1)}
    analyses = [brightness, "cka", Slow()]
    options = {"analyses": analyses, "effort": "full", "out": tmp_path}
    first = examine(models, loader, **options)
    assert len(first.entries) == 7  # CKA is about both models too
    models["c"], events = net(2), []
    study = examine(models, loader, minutes=0.05, listener=events.append, **options)
    assert set(first.entries) <= set(study.entries)
    assert [(f.model, f.analysis, f.kind) for f in study.failures] == [("c", "slow", "no time")]
    (plan,) = [e.plan for e in events if isinstance(e, Planned)]
    (slow,) = [step for step in plan.steps if step.label == "slow"]
    assert "a: stored, 0 s  b: stored, 0 s  c: 2000" in slow.line()
    stored = json.loads(json_of(study))["analyses"]
    assert [(a["models"], a["analysis"]) for a in stored] == [
        (list(e.models), e.analysis) for e in study.entries
    ]


def test_analyses_and_efforts_of_earlier_runs_stay_part_of_a_study(net, loader, tmp_path):
    examine(net(), loader, analyses="variance", out=tmp_path)
    study = examine(net(), loader, analyses="fourier", effort="standard", out=tmp_path)
    assert study.analyses == ("fourier", "variance")
    assert Study.load(tmp_path).entries == study.entries


def test_a_changed_file_is_measured_again_and_said_so(net, loader, tmp_path):
    first = examine(net(), loader, analyses=["fourier", "variance"], out=tmp_path)
    (path,) = tmp_path.glob("results/*-fourier-spectrum-*.npz")
    path.write_bytes(path.read_bytes()[:100])
    events = []

    def measured(analyses):
        events.clear()
        study = examine(net(), loader, analyses=analyses, out=tmp_path, listener=events.append)
        (planned,) = [e for e in events if isinstance(e, Planned)]
        return study, any("is measured again" in text for text in planned.preparation)

    other, again = measured("variance")
    assert not again
    for study in (other, Study.load(tmp_path)):
        (failure,) = study.failures
        assert failure.analysis == "fourier"
        assert f"{path.name} was changed since it was measured. Run" in failure.reason
    study, again = measured("fourier")
    assert again
    assert study["Net"]["fourier"] == first["Net"]["fourier"]
    assert [e.resumed for e in events if isinstance(e, Finished)] == [False, True]


@pytest.mark.parametrize(
    "names",
    [["a", "b", "a-and-b"], [f"resnet50@{'folder/' * 15}{i}/best.pt" for i in range(2)]],
)
def test_names_of_models_have_files_that_they_do_not_share(names, net, loader, tmp_path):
    models = {name: net(seed) for seed, name in enumerate(names)}
    study = examine(models, loader, analyses="cka", out=tmp_path)
    assert len(study.entries) == len(names) * (len(names) + 1) / 2
    assert Study.load(tmp_path).entries == study.entries


def test_models_are_shown_in_the_order_of_the_study_and_a_pair_once(net, loader, tmp_path):
    models = {"a": net(), "b": net(1)}
    for order in ("ab", "ba"):
        named = {name: models[name] for name in order}
        study = examine(named, loader, analyses="cka", out=tmp_path)
    assert [e.models for e in study.entries] == [("b",), ("a",), ("b", "a")]


def test_an_interrupted_study_has_the_models_of_its_results(net, loader, tmp_path):
    def interrupt(event):
        if isinstance(event, Finished) and event.entry.models == ("b",):
            raise KeyboardInterrupt

    examine({"a": net()}, loader, analyses="variance", out=tmp_path)
    models = {"a": net(), "b": net(1)}
    with pytest.raises(KeyboardInterrupt):
        examine(models, loader, analyses="variance", out=tmp_path, listener=interrupt)
    assert Study.load(tmp_path).models == ("a", "b")

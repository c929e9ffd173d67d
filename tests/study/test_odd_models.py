"""Models that people write, and what examine makes of them: right numbers, or one sentence."""

import itertools

import pytest
import torch
from small_models import seeded
from torch import nn
from torch.nn import functional
from unusual_modules import Network

import visprism as vp

FEATURES = ["fourier", "variance", "calibration"]


class Around(nn.Module):
    """A network within what a model does before and after it."""

    def __init__(self, network, before=lambda x: x, after=lambda y: y):
        super().__init__()
        self.network, self.before, self.after = network, before, after

    def forward(self, x):
        return self.after(self.network(self.before(x)))


def in_place(x):
    return functional.relu_(x.sub_(0.5))


def out_of_place(x):
    return functional.relu(x - 0.5)


def numbers(study, name):
    answers = (
        a for e in study.entries if e.models == (name,) for r in e.results for a in r.answers()
    )
    return {answer.id: answer.value for answer in answers}


def test_a_model_that_changes_its_images_or_turns_gradients_on_changes_no_number(net, loader):
    models = {
        "in place": Around(net(), in_place).eval(),
        "plain": net(1),
        "gradients": net(1),
        "out of place": Around(net(), out_of_place).eval(),
    }
    models["gradients"].forward = torch.enable_grad()(models["gradients"].forward)
    study = vp.examine(models, loader, analyses=FEATURES)
    alone = vp.examine({"plain": net(1)}, loader, analyses=FEATURES)
    assert not study.failures
    assert numbers(study, "plain") == numbers(alone, "plain") == numbers(study, "gradients")
    assert numbers(study, "in place") == numbers(study, "out of place")


def test_gradients_exist_within_the_inference_mode_of_a_caller(net, loader):
    model = net()
    expected = vp.examine(model, loader, analyses="hessian")
    with torch.inference_mode():
        study = vp.examine(model, loader, analyses="hessian")
        vp.ReceptiveField()(model, loader)
    assert numbers(study, "Net") == numbers(expected, "Net") != {}


def test_a_hook_of_the_model_itself_is_part_of_its_pass(noise):
    hooked = seeded(Network)
    hooked.register_forward_pre_hook(lambda _, x: (out_of_place(x[0]),))
    models = {"hook": hooked, "code": Around(seeded(Network), out_of_place).eval()}
    data = [(noise(8, 3, 16, 16).float(), torch.arange(8) % 10)]
    study = vp.examine(models, data, analyses=[*FEATURES, "ablation"])
    assert not study.failures
    assert numbers(study, "hook") == numbers(study, "code")


ERRORS = [
    SystemExit(3),
    GeneratorExit(),
    StopIteration(),
    RecursionError(),
    MemoryError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_model_raises_is_a_failure_of_that_model(error, net, loader):
    calls = itertools.count()

    def fail_later(logits):
        if next(calls) > 12:
            raise error
        return logits

    models = {"raises": Around(net(), after=fail_later).eval(), "good": net(1)}
    study = vp.examine(models, loader, analyses=FEATURES)
    alone = vp.examine({"good": net(1)}, loader, analyses=FEATURES)
    failed = [failure for failure in study.failures if failure.model == "raises"]
    assert failed
    assert all(type(error).__name__ in f.reason or "memory" in f.reason for f in failed)
    assert numbers(study, "good") == numbers(alone, "good") != {}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_what_a_model_raises_at_first_is_one_sentence(error, net, loader):
    def fail(_):
        raise error

    memory = isinstance(error, MemoryError)  # which is not about the shape of images
    with pytest.raises(MemoryError if memory else vp.InputError) as raised:
        vp.examine(Around(net(), fail).eval(), loader, analyses="variance")
    assert memory or type(error).__name__ in str(raised.value)


def test_a_model_without_any_result_costs_the_others_no_page(net, loader, tmp_path):
    models = {"good": net(), "drawing": Around(net(), lambda x: x + torch.rand_like(x)).eval()}
    before = torch.get_rng_state()
    study = vp.examine(models, loader, analyses="variance", out=tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert {f.model for f in study.failures} == {"drawing"}
    study.write_files(tmp_path)
    assert "must be the same in every pass" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("after", [lambda y: y[:, 0], lambda y: y[:, :1].squeeze()])
def test_one_number_for_each_image_is_one_logit(net, loader, after):
    model = Around(net(), after=after).eval()
    study = vp.examine(model, loader, analyses=[*FEATURES, "attribution"])
    assert study.analyses == ("fourier", "variance")
    assert len(study.failures) == 2
    assert "task is regression" in study.failures[0].reason
    assert "the model returns one logit per image" in study.failures[1].reason


LOSSES = ["hessian", "sharpness", "calibration"]


@pytest.mark.parametrize(
    ("after", "analyses", "sentence"),
    [
        (lambda y: y + y.mean(0), FEATURES, "must not depend on other images"),
        # The first image is as it is alone.
        (lambda y: torch.cat([y[:1], y[1:] + y[:1]]), FEATURES, "not depend on other images"),
        (torch.squeeze, FEATURES, "one row for each image, and a single image"),
        (lambda y: y.softmax(1), LOSSES, "logits must not be probabilities"),
    ],
)
def test_outputs_that_are_no_logits_of_each_image_are_refused(
    net, loader, after, analyses, sentence
):
    study = vp.examine(Around(net(), after=after).eval(), loader, analyses=analyses)
    assert not study.entries
    assert all(sentence in f.reason for f in study.failures)


def test_weights_that_an_analysis_cannot_use_are_named(net, loader):
    def reasons(model, *analyses):
        kind = model.head.weight.dtype
        data = [(images.to(kind), targets) for images, targets in loader]
        study = vp.examine(model.eval(), data, analyses=analyses)
        return {f.analysis: f.reason for f in study.failures}

    infinite = net()
    nn.init.constant_(infinite.head.weight, torch.nan)
    (reason,) = reasons(infinite, "attribution", "fourier").values()
    assert "logits must be finite" in reason
    (reason,) = reasons(net().bfloat16(), "hessian", "variance").values()
    assert "parameters must be float32 for derivatives" in reason


@pytest.mark.parametrize("whole", [True, False])
def test_weights_that_are_not_in_memory_are_one_sentence(net, loader, whole):
    model = net()
    if whole:
        model = model.to("meta")
    else:
        name, _ = next(model.named_parameters())
        owner = model.get_submodule(name.rpartition(".")[0])
        setattr(owner, name.rpartition(".")[2], nn.Parameter(torch.empty(1, device="meta")))
    with pytest.raises(vp.InputError, match=r"must have its weights in memory, and .* meta"):
        vp.examine(model, loader, analyses="variance")


def test_memory_formats_and_empty_parameters_change_no_number(net, loader):
    other = net()
    other.unused = nn.Parameter(torch.empty(0))
    other.to(memory_format=torch.channels_last)
    study = vp.examine({"plain": net(), "other": other}, loader, analyses=FEATURES)
    assert not study.failures
    plain, again = numbers(study, "plain"), numbers(study, "other")
    assert plain.keys() == again.keys()
    assert plain == pytest.approx(again, rel=1e-4, abs=1e-5, nan_ok=True)


def test_a_name_that_would_change_the_terminal_is_refused(net, loader):
    with pytest.raises(vp.InputError, match=r"printable characters, got 'a.x1b\[31m'"):
        vp.examine({"a\x1b[31m": net()}, loader, analyses="variance")


def test_an_output_is_not_chosen_of_models_that_return_one_tensor(net, loader):
    several = Around(net(), after=lambda y: {"first": y, "second": y}).eval()
    with pytest.raises(vp.InputError, match="output must be None for models of one tensor"):
        vp.examine(net(), loader, analyses="variance", output="first")
    study = vp.examine(
        {"one": net(), "two": several}, loader, analyses="variance", output="first"
    )
    assert not study.failures

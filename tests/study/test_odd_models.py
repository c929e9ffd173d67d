"""Models that people write, and what examine makes of them: right numbers, or one sentence."""

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


def test_a_model_that_changes_its_images_changes_no_number(net, loader):
    models = {
        "in place": Around(net(), in_place).eval(),
        "plain": net(1),
        "out of place": Around(net(), out_of_place).eval(),
    }
    study = vp.examine(models, loader, analyses=FEATURES)
    alone = vp.examine({"plain": net(1)}, loader, analyses=FEATURES)
    assert not study.failures
    assert numbers(study, "plain") == numbers(alone, "plain")
    assert numbers(study, "in place") == numbers(study, "out of place")


def test_a_hook_of_the_model_itself_is_part_of_its_pass(noise):
    hooked = seeded(Network)
    hooked.register_forward_pre_hook(lambda _, x: (out_of_place(x[0]),))
    models = {"hook": hooked, "code": Around(seeded(Network), out_of_place).eval()}
    data = [(noise(8, 3, 16, 16).float(), torch.arange(8) % 10)]
    study = vp.examine(models, data, analyses=[*FEATURES, "ablation"])
    assert not study.failures
    assert numbers(study, "hook") == numbers(study, "code")


def test_a_model_without_any_result_costs_the_others_no_page(net, loader, tmp_path):
    models = {"good": net(), "drawing": Around(net(), lambda x: x + torch.rand_like(x)).eval()}
    before = torch.get_rng_state()
    study = vp.examine(models, loader, analyses=FEATURES, out=tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert {f.model for f in study.failures} == {"drawing"}
    study.write_files(tmp_path)
    assert "must be the same in every pass" in (tmp_path / "report.html").read_text()


def test_one_number_for_each_image_is_one_logit(net, loader):
    model = Around(net(), after=lambda y: y[:, 0]).eval()
    study = vp.examine(model, loader, analyses=FEATURES)
    assert study.analyses == ("fourier", "variance")
    (failure,) = study.failures
    assert "the model returns one logit per image" in failure.reason


@pytest.mark.parametrize(
    "mix",
    [
        lambda y: y + y.mean(0),
        lambda y: torch.cat([y[:1], y[1:] + 0.1 * y[:1]]),  # the first image is as it is alone
    ],
)
def test_an_output_that_depends_on_the_batch_is_refused(net, loader, mix):
    study = vp.examine(Around(net(), after=mix).eval(), loader, analyses=FEATURES)
    assert not study.entries
    assert all("must not depend on other images" in f.reason for f in study.failures)


def test_an_image_alone_has_a_row_of_logits(net, loader):
    study = vp.examine(Around(net(), after=torch.squeeze).eval(), loader, analyses=FEATURES)
    assert not study.entries
    assert all("one row for each image, and a single image" in f.reason for f in study.failures)


def test_probabilities_have_no_curvature(net, loader):
    model = Around(net(), after=lambda y: y.softmax(1)).eval()
    study = vp.examine(model, loader, analyses=["hessian", "sharpness", "calibration"])
    assert not study.entries
    assert all("logits must not be probabilities" in f.reason for f in study.failures)


def test_weights_that_are_not_finite_give_no_attribution(net, loader):
    model = net()
    nn.init.constant_(model.head.weight, torch.nan)
    study = vp.examine(model, loader, analyses=["attribution", "fourier"])
    assert study.analyses == ("fourier",)
    assert "logits must be finite" in study.failures[0].reason


def test_half_precision_has_no_curvature(net, loader):
    half = [(images.bfloat16(), targets) for images, targets in loader]
    study = vp.examine(net().bfloat16(), half, analyses=["hessian", "variance"])
    assert study.analyses == ("variance",)
    assert "parameters must be float32 for derivatives" in study.failures[0].reason

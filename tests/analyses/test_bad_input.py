"""What analyses cannot measure is refused in one sentence, before anything is computed."""

import pytest
import torch
from torch import nn

import visprism as vp
from visprism.kit.inputs import subject_of

IMAGES = torch.rand(24, 3, 32, 32, generator=torch.Generator().manual_seed(0))
LABELED = [(IMAGES, torch.arange(24) % 10)]
DARK = [(IMAGES - 9, LABELED[0][1])]
WAY = vp.Preprocessing((32, 32), mean=(0.0,) * 3, std=(1.0,) * 3)


@pytest.mark.parametrize(
    ("analysis", "options", "data", "sentence"),
    [
        ("attention", {}, LABELED, "no attention whose weights can be read"),
        ("ablation", {"parts": ("tokens",)}, LABELED, "has no class tokens or registers"),
        ("branch-transfer", {}, LABELED, "no residual branch with an identity"),
        ("calibration", {}, [IMAGES], "no labels in"),
        ("cka", {}, [IMAGES.to_sparse()], "must be dense tensors, got torch.sparse_coo"),
        ("class-separability", {}, [(IMAGES, torch.zeros(24).long())], "at least 2 classes"),
        ("feature-similarity", {"neighbors": 30}, LABELED, "neighbors must be below"),
        ("fourier-sensitivity", {"max_frequency": 17}, LABELED, "must be at most 15, below"),
        ("frequency-noise", {"protocol": "both", "frequencies": (0.2,)}, LABELED, "both sides"),
        ("frequency-noise", {"frequencies": (3.0,)}, LABELED, "numbers from 0 to 1, got 3"),
        ("distribution-shift", {"sets": ("imagenet_c:x",)}, LABELED, "hold corruptions"),
        ("frequency-noise", {}, DARK, "pixels must be between 0 and 1"),
        ("stability", {}, DARK, "pixels must be between 0 and 1"),
        ("hessian", {"parameters": "kind:mlp"}, LABELED, "no parameter matches kind:mlp"),
        ("out-of-distribution", {}, LABELED, "the option ood_data is not set"),
        ("patch-pca", {"background_threshold": 0.999}, [IMAGES[:1]], "must leave at least 4 p"),
        ("relative-scores", {}, LABELED, "relative"),
        ("shape-bias", {}, LABELED, "texture"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_what_cannot_be_measured_is_refused(network, analysis, options, data, sentence):
    with pytest.raises(vp.InputError, match=sentence):
        vp.ANALYSES[analysis](**options)(network(0), data, preprocessing=WAY)


@pytest.mark.parametrize(
    ("analysis", "options", "needed"),
    [
        ("adversarial", {"restarts": 2, "attacks": ("fgsm",)}, "attack pgd, apgd or apgd-t"),
        ("cka", {"bandwidth": 2.0}, "kernel rbf"),
        ("frequency-noise", {"rms": 0.2, "protocol": "paper"}, "protocol default or both"),
        ("landscape", {"grid_planes": 2, "plane": "hessian"}, "random planes"),
        ("sharpness", {"directions": 3, "measures": ("sam",)}, "measure gaussian"),
    ],
)
def test_an_option_without_effect_is_refused(analysis, options, needed):
    name = next(iter(options))
    with pytest.raises(vp.InputError, match=f"{name} must be .* without {needed}.*, got"):
        vp.ANALYSES[analysis](**options)


def test_values_of_an_effort_are_accepted_where_they_have_no_effect():
    vp.Sharpness(directions=2, measures=("sam",))
    vp.Adversarial(steps=5, attacks=("fgsm",))


@pytest.mark.parametrize("analysis", ["corruptions", "stability"])
@pytest.mark.parametrize(
    ("shape", "sentence"),
    [((1, 28, 28), "must be RGB"), ((3, 8, 8), "must have sides of at least 16 pixels")],
)
def test_images_that_cannot_be_corrupted_are_no_failure(analysis, shape, sentence):
    images = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Conv2d(shape[0], 3, 3), nn.AdaptiveMaxPool2d(1), nn.Flatten())
    way = vp.Preprocessing(shape[1:], mean=(0.0,) * shape[0], std=(1.0,) * shape[0])
    subject = subject_of(model.eval(), [(images, torch.arange(4) % 3)], preprocessing=way)
    assert sentence in vp.ANALYSES[analysis]().inapplicable(subject)


def test_equal_images_are_refused(network):
    equal = [IMAGES[:1].expand(24, 3, 32, 32)]
    with pytest.raises(vp.InputError, match="differ, and all 24 are equal"):
        vp.examine({"net": network(0)}, equal, analyses=["variance"])

"""Laws of the contrast of high and low frequencies of noise within one model."""

import pytest
import torch
from torch import nn

from visprism import InputError, PerImage, Result, dissect, frequency_noise
from visprism.analyses.predictions.frequency_noise import noise_contrasts
from visprism.images.shapes import CONTRAST
from visprism.analyses.predictions.frequency_noise import contrast_name, frequency_contrasts

GRAY = {"mean": (0.5,), "std": (0.25,)}


class HighPass(nn.Sequential):
    """Classifies an image as 1 where neighboring pixels differ more than a little."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, padding=1, bias=False),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 2),
        )
        laplace = torch.tensor([[0.0, -1, 0], [-1, 4, -1], [0, -1, 0]])
        with torch.no_grad():
            for conv in (self[0], self[3]):
                conv.weight.zero_()
            self[0].weight[0, 0], self[0].weight[1, 0] = laplace, -laplace
            self[3].weight[:2, :2, 1, 1] = torch.eye(2)
            self[7].weight.zero_()
            self[7].weight[1, :2] = 1.0
            self[7].bias.copy_(torch.tensor([0.0, -0.72]))


def images(number: int = 48):
    """Smooth images of different contrast, all of class 0."""
    generator = torch.Generator().manual_seed(0)
    ramp = torch.linspace(-1, 1, 16).expand(1, 1, 16, 16)
    x = ramp * torch.rand(number, 1, 1, 1, generator=generator)
    return [(part, torch.zeros(len(part), dtype=torch.long)) for part in x.split(16)]


@pytest.fixture(scope="module")
def measured():
    model = HighPass().eval()
    anatomy = dissect(model, images()[0][0][:1])
    return noise_contrasts(
        anatomy, images(), **GRAY, rms=0.05, paper_amplitude=0.6, protocol="both"
    )


def test_a_model_that_looks_at_high_frequencies_loses_accuracy_there(measured):
    rows, result, _ = measured
    assert rows.mixing == "conv"
    assert (result.contrast > 0.2).all()
    assert [a.reading for a in result.answers()] == ["high frequencies cost more accuracy"] * 2
    for answer, finding in zip(result.answers(), result.findings(), strict=True):
        assert (answer.claim, answer.verdict) == ("", "")  # claim C7 is about two models
        assert finding.text.count("over 48 images") == 1


def test_both_kinds_of_noise_stand_side_by_side(measured):
    rows, result, per_image = measured
    assert result.noise.tolist() == ["equal energy", "paper"]
    assert result.rms_ratio[0] == pytest.approx(1, rel=0.05)
    assert result.rms_ratio[1] > 2  # rings of high frequencies hold more of them
    for noise, contrast in zip(result.noise, result.contrast, strict=True):
        _, values = per_image.values_of(contrast_name(str(noise)))
        assert values.mean() == pytest.approx(contrast)
    for protocol, row in (("default", 0), ("paper", 1)):
        alone, _ = frequency_noise(
            HighPass().eval(),
            images(),
            **GRAY,
            rms=0.05,
            paper_amplitude=0.6,
            protocol=protocol,
        )
        assert alone.contrast == pytest.approx(result.contrast[row])
    assert rows.provenance.protocol == "default"


def test_the_paper_alone_is_named_among_the_values_of_images():
    model = HighPass().eval()
    anatomy = dissect(model, images()[0][0][:1])
    _, result, per_image = noise_contrasts(anatomy, images(), **GRAY, protocol="paper")
    assert result.noise.tolist() == ["paper"]
    assert isinstance(per_image, PerImage)
    assert contrast_name("paper") in per_image.quantities
    assert CONTRAST not in per_image.quantities


def test_bands_of_one_side_have_no_contrast():
    rows, _ = frequency_noise(HighPass().eval(), images(), **GRAY, frequencies=[0.3, 0.4])
    with pytest.raises(InputError, match=r"must have bands above and below 0\.5 π rad/pixel"):
        frequency_contrasts([rows])


def test_contrasts_are_saved_and_read(measured, tmp_path):
    measured[1].save(tmp_path / "contrasts.npz")
    assert Result.load(tmp_path / "contrasts.npz") == measured[1]

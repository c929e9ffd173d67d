"""Too little memory of a device: the batch is halved, or one sentence says what fits."""

import re
import warnings

import pytest
import torch
from measurements import SIDE, measurement
from small_models import seeded
from timm.models.vision_transformer import VisionTransformer
from unusual_modules import Network

import visprism as vp

FITS = 5


class FewImages:
    """A model of a device with memory for a few images at once."""

    most = FITS

    def forward(self, x):
        if len(x) > self.most:
            raise torch.OutOfMemoryError(f"out of memory with {len(x)} images")
        return super().forward(x)


class Limited(FewImages, Network):
    pass


class LimitedViT(FewImages, VisionTransformer):
    pass


@pytest.fixture
def limited():
    return seeded(Limited)


@pytest.fixture
def batches(noise):
    return [(noise(16, 3, SIDE, SIDE).float(), torch.arange(16) % 10)]


def test_logits_are_those_of_halves_with_a_note(limited, batches):
    with pytest.warns(UserWarning, match=r"images do not fit .* results do not depend on it"):
        predictions = vp.predict(limited, batches)
    limited.most = 16
    with warnings.catch_warnings(action="error"):
        expected = vp.predict(limited, batches)
    torch.testing.assert_close(predictions.logits, expected.logits)
    assert torch.equal(predictions.targets, expected.targets)


def vit():
    return LimitedViT(
        img_size=SIDE, patch_size=4, embed_dim=12, depth=2, num_heads=2, num_classes=10
    )


OF_ATTENTION = {"attention", "attention-maps", "position-embeddings"}
IN_HALVES = {
    "calibration", "corruptions", "distribution-shift", "fourier-sensitivity",
    "frequency-noise", "performance", "shape-bias", "stability", "trajectory",
}  # fmt: skip
FOLLOWED = {"ablation", "fourier", "hessian", "landscape"}  # what the sentence says
WITHOUT_BATCHES = {
    "anatomy", "attention-maps", "feature-maps", "patch-filters", "position-embeddings",
}  # fmt: skip


@pytest.mark.usefixtures("draws_of_python")
@pytest.mark.parametrize("name", sorted(set(vp.ANALYSES) - {"relative-scores", "sparsity"}))
def test_every_analysis_gives_a_result_or_says_what_to_lower(name, tmp_path):
    model = seeded(vit if name in OF_ATTENTION else Limited)
    reason = vp.check_unchanged(measurement(name, model, tmp_path), model, interrupt=False)
    assert (reason is None) == (name in IN_HALVES | WITHOUT_BATCHES)
    if reason is None:
        return
    lower = re.search(
        r"must hold a batch of (\d+) .* Use batches of (\d+): .*batch_size=\2", reason
    )
    assert FITS < int(lower[1]) == 2 * int(lower[2])
    if name in FOLLOWED:
        limit = FITS if name == "landscape" else None  # re-estimates BatchNorm
        measurement(name, model, tmp_path, batch_size=FITS, limit=limit)(model)


def test_no_image_fits(limited, batches):
    limited.most = 0
    with pytest.raises(vp.InputError, match="a batch of 2 images"):
        vp.Objective(limited, batches)
    with (
        pytest.raises(vp.InputError, match=r"a batch of 1 images, .*\. Use another device"),
        pytest.warns(UserWarning, match="images do not fit"),
    ):
        vp.predict(limited, batches)

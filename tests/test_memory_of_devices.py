"""Too little memory of a device: the batch is halved, or one sentence says what fits."""

import warnings

import pytest
import torch
from measurements import SIDE
from small_models import seeded
from unusual_modules import Network

import visprism as vp

FITS = 5


class Limited(Network):
    """A model of a device with memory for a few images at once."""

    most = FITS

    def forward(self, x):
        if len(x) > self.most:
            raise torch.OutOfMemoryError(f"out of memory with {len(x)} images")
        return super().forward(x)


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


MEASUREMENTS = {
    "feature maps": lambda model, data: vp.observe(
        vp.dissect(model, data[0][0][:2]), data, vp.ANALYSES["cka"]()
    ),
    "gradient": lambda model, data: vp.Objective(model, data).gradient(),
    "products": lambda model, data: vp.top_eigenvalues(vp.Objective(model, data), k=1),
}


@pytest.mark.parametrize("measure", MEASUREMENTS.values(), ids=MEASUREMENTS)
def test_what_depends_on_the_batch_says_how_many_images_fit(measure, limited, batches):
    with pytest.raises(vp.InputError, match=r"got 16 images, and 4 fit\. Use batches of 4"):
        measure(limited, batches)
    limited.most = 2  # of the trial that finds the blocks and the gradients
    with pytest.raises(vp.InputError, match="and 2 fit"):
        measure(limited, batches)


@pytest.mark.usefixtures("draws_of_python")
def test_a_model_is_given_back_when_the_memory_is_too_small(limited, batches):
    def measure(model):
        vp.top_eigenvalues(vp.Objective(model, batches), k=1)

    assert "4 fit" in vp.check_unchanged(measure, limited, interrupt=False)


def test_no_image_fits(limited, batches):
    limited.most = 0
    with (
        pytest.raises(torch.OutOfMemoryError, match="with 1 images"),
        pytest.warns(UserWarning, match="images do not fit"),
    ):
        vp.predict(limited, batches)

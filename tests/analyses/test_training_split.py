"""Curvature is that of the training loss; metrics of outputs are those of the test split."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from visprism import DataOptions, InputError, examine
from visprism.core.run import DEFAULT_RUN
from visprism.kit.inputs import candidates_of, subjects_of
from visprism.results import HessianSpectrum

SPLITS = {"hessian": "train", "sharpness": "train", "calibration": "test"}
CURVATURE = {"hessian": {"mini_batch": 8, "k": 1, "weight_decay": 0.0}}


@pytest.mark.parametrize(
    ("analysis", "split"),
    [("hessian", "train"), ("sharpness", "train"), ("calibration", "test")],
)
def test_named_data_are_the_split_of_the_quantity(measured, analysis, split):
    results = measured(analysis, **CURVATURE.get(analysis, {}))
    assert {r.provenance.split for r in results} == {split}


def test_the_nll_of_mini_batches_is_that_of_the_training_images_by_hand(network):
    # Test images are nearly black and of one class, so that their NLL is another number.
    generator = torch.Generator().manual_seed(0)
    images, targets = torch.rand(16, 3, 32, 32, generator=generator), torch.arange(16) % 10
    training = list(zip(images.split(8), targets.split(8), strict=True))
    dark = torch.rand(16, 3, 32, 32, generator=generator) / 100
    test = [(dark, torch.zeros(16, dtype=torch.long))]
    study = examine(
        {"net": network(0)}, test, train_data=training, analyses=["hessian"],
        options={"hessian": CURVATURE["hessian"]}, minutes=None, on_error="raise",
    )  # fmt: skip
    (spectrum,) = [r for r in study["net"].results("hessian") if isinstance(r, HessianSpectrum)]
    with torch.no_grad():
        expected = [functional.cross_entropy(network(0)(x), y).item() for x, y in training]
    # Both mini-batches have 8 images, in another order than the loader gives them.
    assert np.unique(spectrum.nll).mean() == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.parametrize(("mini_batch", "number", "images"), [(8, 2, 16), (32, 1, 20)])
def test_mini_batches_have_one_size(network, mini_batch, number, images):
    generator = torch.Generator().manual_seed(0)
    data = [(torch.rand(20, 3, 32, 32, generator=generator), torch.arange(20) % 10)]
    size = {"mini_batch": mini_batch}
    study = examine(
        network(0), data, analyses=["hessian", "sharpness"],
        options={"hessian": size | {"k": 1}, "sharpness": size}, minutes=None, on_error="raise",
    )  # fmt: skip
    results = study.model("Sequential")
    (spectrum,) = [r for r in results.results("hessian") if isinstance(r, HessianSpectrum)]
    assert len(np.unique(spectrum.batch)) == number
    assert spectrum.provenance.images == images
    assert results["sharpness"].provenance.images == images


def test_a_damaged_training_image_is_an_error_and_no_missing_split(network, tmp_path):
    generator = np.random.default_rng(0)
    for path in (f"{split}/cat/{i}.png" for split in ("test", "val") for i in range(2)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / path)

    def subject():
        models, data = candidates_of({"net": network(0)}), f"folder:{tmp_path}"
        options = {"preprocessing": None, "run": DEFAULT_RUN}
        return subjects_of(models, data, None, DataOptions(), **options)[0]

    without = subject()
    assert without.training_images is without.images
    (tmp_path / "val").rename(tmp_path / "train")
    assert subject().training_images.split == "train"
    (tmp_path / "train/cat/0.png").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"1 of 2 images of .* cannot be read"):
        subject()

"""Tests of the analyses of predictions: calibration, corruptions, stability, shape bias."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from maps import classifier
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import visprism as vp
from visprism.images.images import ordered
from visprism.kit.inputs import subject_of


def network(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return classifier(nn.Conv2d(3, 8, 4, 4), nn.ReLU(), channels=8, classes=10)


def subject(seed=0, data="shapes?size=32", images=24):
    return subject_of(
        network(seed), ordered(vp.load_data(data, limit=images)),
        preprocessing=vp.Preprocessing((32, 32)), name=f"network {seed}",
    )  # fmt: skip


def measure(analysis, subject):
    return analysis.measure(subject, subject.named(vp.Run()))


def test_too_few_images_are_a_reason_to_skip_and_no_failure():
    analysis = vp.Readout()
    reason = "it needs at least 5 images, got 1"
    assert analysis.inapplicable(subject().limited(1)) == reason
    few = subject(images=5)
    assert "20 neighbors has only 4 images to choose from" in analysis.inapplicable(few)
    assert replace(analysis, neighbors=4).inapplicable(few) is None
    data = [(torch.rand(1, 3, 32, 32), torch.zeros(1, dtype=torch.long))]
    (failure,) = vp.examine(network(0), data, analyses=["readout"]).failures
    assert (failure.kind, failure.reason) == ("skipped", reason)


def test_two_models_are_compared_by_their_errors_and_their_calibration():
    analysis = vp.Calibration()
    pair = [vp.Measured(s, measure(analysis, s)) for s in (subject(0), subject(1))]
    consistency, pictures = analysis.compare(*pair, vp.Run())
    assert set(pictures.image) <= set(consistency.image)
    given = pair[0].subject
    for index, picture in zip(pictures.image, pictures.pictures(), strict=True):
        (_, pixels), *_ = given.pixel_batches(24)
        assert np.array_equal(picture, pixels[index].permute(1, 2, 0))
    assert consistency.images == 24
    assert -1 <= consistency.kappa <= 1
    (same,) = analysis.compare(pair[0], pair[0], vp.Run())
    assert len(same) == 0


def test_corruptions_are_those_of_the_pixels_before_normalization():
    analysis = vp.Corruptions(corruptions=("fog", "contrast"), severities=(5,))
    given = subject()
    result, errors = measure(analysis, given)
    assert errors.corruption.tolist() == ["fog", "contrast"]
    (_, pixels), *_ = given.pixel_batches(24)
    corrupted = vp.corrupt(pixels, "contrast", 5, seed=0, numbers=range(24)).float() / 255
    mean, std = (
        torch.tensor(values)[:, None, None]
        for values in (given.preprocessing.mean, given.preprocessing.std)
    )
    with torch.no_grad():
        predicted = given.model((corrupted - mean) / std).argmax(1).numpy()
    accuracy = (predicted == given.images.targets[:24]).mean()
    assert result.accuracy[result.corruption == "contrast"] == pytest.approx(accuracy)


def test_an_analysis_takes_a_loaded_model_with_its_preprocessing():
    loaded = vp.load_model("vit_pico_patch4_32.shapes")
    images = [(torch.rand(8, 3, 32, 32), torch.arange(8))]
    called = vp.Calibration()(loaded, images)
    plain = vp.Calibration()(loaded.model, images, preprocessing=loaded.preprocessing)
    assert called == plain
    way = loaded.preprocessing  # as timm writes it
    config = {"input_size": (3, 32, 32), "mean": way.mean, "std": way.std}
    assert vp.Calibration()(loaded.model, images, preprocessing=config) == plain
    named = vp.Calibration()("vit_pico_patch4_32.shapes", images)
    assert named == plain
    large = vp.Preprocessing((48, 48))
    shapes = vp.AttentionMaps()(
        "vit_pico_patch4_32?img_size=48", "shapes?subset=0.001", preprocessing=large
    )
    assert shapes.provenance.data.startswith("shapes?size=48")


def test_an_analysis_takes_the_data_that_a_study_takes():
    model, images, classes = network(0), torch.rand(10, 3, 32, 32), torch.arange(10)

    class WithoutEnd(Dataset):  # whose items go on beyond its length
        def __len__(self):
            return 10

        def __getitem__(self, index):
            return images[index % 10], index % 10

    plain = vp.Variance()(model, [(images, classes)])
    for data in (WithoutEnd(), DataLoader(TensorDataset(images, classes), 10, shuffle=True)):
        assert vp.Variance()(model, data) == plain
    pictures = vp.load_data("shapes?size=32", limit=10)
    way = vp.Preprocessing((32, 32))
    given = [pictures, [pictures[i] for i in range(10)]]
    from_images, from_list = (vp.Calibration()(model, d, preprocessing=way) for d in given)
    assert from_images == from_list
    study = vp.examine({"ResNet": model}, pictures, analyses="calibration", preprocessing=way)
    in_study = study["ResNet"]["calibration"].nll
    assert from_images.nll == pytest.approx(in_study)

"""Laws of the values of single images that probes record, by which models are compared."""

import math

import numpy as np
import pytest
import timm
import torch

from visprism import (
    AttentionProbe,
    Block,
    FourierProbe,
    Layout,
    VarianceProbe,
    assert_results_equal,
    dissect,
)
from visprism.passes.features import observations
from visprism.passes.batches import image_indices
from visprism.analyses.features.fourier import Spectrum
from visprism.table.kinds import SCALE_FREE, TO_MEAN
from visprism.results.kind_summary import VARIANCE, mean_change
from visprism.analyses.features.variance import Variances

IMAGES = 7


@pytest.fixture(scope="module")
def vit():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = timm.create_model(
            "vit_tiny_patch16_224", img_size=64, depth=2, embed_dim=24, num_heads=3
        ).eval()
        with torch.no_grad():
            for parameter in model.parameters():  # random ones hardly attend to anything
                parameter.add_(0.2 * torch.randn(parameter.shape))
        images = torch.randn(IMAGES, 3, 64, 64)
    return dissect(model, images), images


@pytest.fixture(scope="module")
def seen(vit):
    anatomy, images = vit
    return observations(
        anatomy, images.split(3), [FourierProbe(), VarianceProbe(), AttentionProbe()]
    )


def answers_of(result):
    if isinstance(result, Spectrum):
        result = result.high_frequency()
    if isinstance(result, Spectrum | Variances) or hasattr(result, "summarize_by_kind"):
        result = result.summarize_by_kind()
    return result.answers()


def blocks(*kinds):
    layout = Layout("b c h w", (8, 8))
    return [
        Block(f"block{i}", kind, 0, 0.0, shape=(3, 8, 8), layout=layout, subsampling=False)
        for i, kind in enumerate(kinds)
    ]


def values_of(probe, quantity, *maps, kinds=("stem", "conv")):
    """Values by image of a probe of feature maps of successive blocks."""
    extracts = [probe.extract(x) for x in maps]
    probe.update(dict(zip(blocks(*kinds), extracts, strict=True)))
    return probe.per_image(np.arange(len(maps[0]))).values_of(quantity)


# What it is.


@pytest.mark.parametrize("i", range(3), ids=["fourier", "variance", "attention"])
def test_their_mean_is_the_answer_of_the_same_name(seen, i):
    answers = answers_of(seen[i].result)
    assert {a.quantity for a in answers} == set(seen[i].per_image.quantities)
    for answer in answers:
        image, values = seen[i].per_image.values_of(answer.quantity)
        np.testing.assert_array_equal(image, np.arange(IMAGES))
        mean = values.mean()
        value = math.expm1(mean) if answer.average == "geometric" else mean
        assert value == pytest.approx(answer.value, rel=1e-9, abs=1e-12)


def test_a_scaled_map_changes_the_log_variance_by_twice_the_log_of_its_scale(noise):
    x, scale = noise(4, 3, 8, 8), torch.tensor([1.0, 2.0, 3.0, 0.5]).double()
    maps = x, x * scale[:, None, None, None]
    image, values = values_of(VarianceProbe(), mean_change(VARIANCE, "conv"), *maps)
    np.testing.assert_allclose(values, 2 * scale.log().numpy(), atol=1e-6)
    np.testing.assert_array_equal(image, range(4))
    _, values = values_of(VarianceProbe(), mean_change(SCALE_FREE, "conv"), *maps)
    np.testing.assert_allclose(values, 0, atol=1e-6)


def test_a_blur_changes_the_highest_frequency_of_every_image_alike(noise):
    x = noise(5, 3, 7, 7) + 5
    blurred = sum(x.roll(by, dims=(2, 3)) for by in [(0, 0), (0, 1), (1, 0), (1, 1)]) / 4
    layout = Layout("b c h w", (7, 7))
    probe = FourierProbe()
    maps = {
        Block(n, n, 0, 0.0, shape=(3, 7, 7), layout=layout, subsampling=False): m
        for n, m in (("stem", x), ("conv", blurred))
    }
    probe.update({block: probe.extract(m) for block, m in maps.items()})
    per_image = probe.per_image(np.arange(5))
    _, values = per_image.values_of(mean_change(TO_MEAN, "conv"))
    np.testing.assert_allclose(values, 2 * np.log(np.cos(np.pi * 3 / 7)), atol=1e-3)


def test_an_image_without_a_value_is_left_out(noise):
    x = noise(3, 3, 8, 8)
    x[1] = 0  # no variance, so no ratio
    image, _ = values_of(VarianceProbe(), mean_change(VARIANCE, "conv"), x, x + 1)
    assert image.tolist() == [0, 2]


def test_only_kinds_that_the_model_has_are_recorded(noise):
    probe = VarianceProbe()
    values_of(probe, mean_change(VARIANCE, "mlp"), *(noise(2, 3, 8, 8) for _ in range(2)),
              kinds=("stem", "mlp"))  # fmt: skip
    assert {name.partition("across ")[2] for name in probe.recorded} == {"mlp blocks"}


# What leaves it unchanged.


@pytest.mark.parametrize("sizes", [[7], [1] * 7, [2, 1, 3, 1]])
def test_the_cut_into_batches_changes_nothing(vit, seen, sizes):
    anatomy, images = vit
    probes = [FourierProbe(), VarianceProbe(), AttentionProbe()]
    others = observations(anatomy, images.split(sizes), probes)
    for one, other in zip(seen, others, strict=True):
        assert_results_equal(one.per_image, other.per_image, rtol=1e-4)
        assert other.per_image.provenance == other.result.provenance


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_images_of_processes_that_take_turns_are_numbered_as_in_the_data(processes):
    generator = np.random.default_rng(processes)
    sizes = generator.integers(1, 6, size=11)
    data = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
    turns = [data[rank::processes] for rank in range(processes)]
    indices = image_indices([[len(batch) for batch in batches] for batches in turns])
    for batches, expected in zip(turns, indices, strict=True):
        np.testing.assert_array_equal(np.concatenate(batches), expected)


def test_a_process_without_batches_has_no_images():
    assert [len(images) for images in image_indices([[3], []])] == [3, 0]


# What is refused.


def test_a_quantity_that_some_batches_lack_is_refused():
    probe = VarianceProbe()
    probe.record("depth", np.zeros(3))
    with pytest.raises(ValueError, match="must be recorded for each of 5 images, got 3 values"):
        probe.per_image(np.arange(5))

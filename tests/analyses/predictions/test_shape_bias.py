"""Shape bias, and the categories that it is measured over."""

import numpy as np
import pytest
import torch
from PIL import Image
from small_models import OneBlock

from visprism import Predictions, ShapeBias, by_category, load_data, shape_bias
from visprism.analyses.predictions.shape_bias import SIXTEEN
from visprism.images.images import ordered


def predicted(decisions, shapes, classes=3):
    """Predictions of these classes."""
    logits = 5 * torch.nn.functional.one_hot(torch.tensor(decisions), classes).float()
    return Predictions(logits, torch.tensor(shapes))


def test_decisions_for_shape_and_texture_are_counted_and_others_left_out():
    shapes, textures = [0, 0, 1, 1, 2, 2], np.array([1, 2, 0, 1, 0, 1])
    decided = [0, 2, 1, 1, 2, 0]  # shape, texture, shape, no conflict, shape, neither
    result = shape_bias(predicted(decided, shapes), textures, ["a", "b", "c"])
    assert result.category.tolist() == ["a", "b", "c", "all"]
    assert result.images.tolist() == [2, 1, 2, 5]
    assert result.shape_decisions.tolist() == [1, 1, 1, 3]
    assert result.texture_decisions.tolist() == [1, 0, 0, 1]
    np.testing.assert_allclose(result.bias, [0.5, 1, 1, 0.75])
    np.testing.assert_allclose(result.accuracy, [0.5, 1, 0.5, 0.6])
    assert (result.bias.low[-1], result.bias.high[-1]) == pytest.approx(
        (0.301, 0.954), abs=1e-3
    )
    (finding,) = result.findings()
    assert finding.code == "VP101"  # Wilson's interval of 4 of 5 includes the chance of 2/3
    (answer,) = result.answers()
    assert (answer.value, answer.unit) == (0.75, "%")


def test_values_of_images_are_the_bias_and_their_influence():
    shapes, textures = [0, 0, 1, 1, 2, 2] * 5, np.array([1, 2, 0, 1, 0, 1] * 5)
    predictions = predicted([0, 2, 1, 1, 2, 0] * 5, shapes)
    by_image = shape_bias(predictions, textures, ["a", "b", "c"]).answers()[0].by_unit
    conflict = np.array([i % 6 != 3 for i in range(30)])  # one category twice
    assert np.isnan(by_image[~conflict]).all()
    values = by_image[conflict]
    # Bias 3/4; 4 of 5 images are decisions: for the shape 3/4 + (1 - 3/4) / (4/5).
    np.testing.assert_allclose(values, [1.0625, -0.1875, 1.0625, 1.0625, 0.75] * 5)
    # The derivative of the bias with respect to the weight of an image, in proportion.
    shape, texture = np.array([1, 0, 1, 1, 0] * 5), np.array([0, 1, 0, 0, 0] * 5)
    weight = np.ones(25)
    weight[1] += 1e-6
    moved = (weight * shape).sum() / (weight * (shape + texture)).sum()
    assert (moved - 0.75) / 1e-6 * 25 == pytest.approx(values[1] - 0.75, abs=1e-4)


@pytest.mark.parametrize(("number", "given"), [(4, False), (5, True)])
def test_few_decisions_for_a_cue_have_no_values_of_images(number, given):
    predictions = predicted([0] * (20 - number) + [1] * number, [0] * 20)
    bias = shape_bias(predictions, np.ones(20, int), ["a", "b", "c"]).bias
    assert np.isfinite(bias.by_unit[:, -1]).all() == given


def test_the_score_of_a_category_is_the_mean_probability_of_its_classes():
    logits = torch.log(torch.tensor([[0.3, 0.3, 0.35, 0.05], [0.5, 0.0001, 0.4, 0.0999]]))
    joined = by_category(Predictions(logits, torch.tensor([0, 1])), [(0, 1), (2,)])
    np.testing.assert_allclose(
        joined.logits.exp().numpy(), [[0.3, 0.35], [0.25005, 0.4]], rtol=1e-5
    )


def test_shapes_agree_or_conflict_as_is_asked_for():
    agree = load_data("shapes?cues=agree")
    assert (agree.textures == agree.targets).all()
    conflict = load_data("shapes?cues=conflict")
    pairs = np.zeros((10, 10), int)
    np.add.at(pairs, (conflict.targets, conflict.textures), 1)
    assert (np.diag(pairs) == 0).all()
    others = pairs[~np.eye(10, dtype=bool)]
    assert others.max() - others.min() <= 1
    # A subset keeps each image's own texture, and the picture is drawn with it.
    part = conflict.subset(np.array([4, 13]))
    assert part.textures.tolist() == conflict.textures[[4, 13]].tolist()
    picture, _ = load_data("shapes")[13]
    assert picture.tobytes() != part[1][0].tobytes()


def test_the_sixteen_categories_are_the_published_classes():
    # Geirhos et al. (2018), app. C: 207 classes in all; some whose ImageNet names are known.
    assert sum(map(len, SIXTEEN.values())) == 207
    assert len({c for group in SIXTEEN.values() for c in group}) == 207
    examples = {"airplane": 404, "cat": 281, "elephant": 386, "knife": 499, "truck": 867}
    assert all(number in SIXTEEN[name] for name, number in examples.items())


def test_a_model_of_imagenet_decides_between_categories(tmp_path):
    generator = np.random.default_rng(0)
    for name in ("bear1-cat1", "bear2-cat2", "cat1-bear1"):
        pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    images = ordered(load_data(f"cue_conflict:{tmp_path}"))
    result = ShapeBias()(OneBlock(classes=1000).eval(), images)
    assert result.images.tolist() == [2, 1, 3]
    assert (result.shape_decisions + result.texture_decisions).tolist() == [2, 1, 3]

"""Pretrained weights inside the package: how they load, and that they are what cards state."""

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from visprism import MODELS, InputError, batches, load_data, load_model, read_metadata
from visprism.core.run import stream
from visprism.models.pretrained import default_card, epochs_in_words, pretrained_cards

PROJECT = Path(__file__).parents[2]
CARDS = pretrained_cards()
BYTES = 15 * 10**6  # of all weights together
ROUNDING = 3  # images of the subset that another processor may classify differently


@pytest.fixture(params=CARDS)
def card(request):
    return CARDS[request.param]


def images_of(card):
    return torch.randn(2, 3, *card.preprocessing.size, generator=stream(0, "images"))


@torch.no_grad()
def test_every_way_to_load_gives_the_same_logits(card):
    images = images_of(card)
    logits = load_model(card.name).model(images)
    file = load_model(f"{card.architecture}@{card.weights}").model
    torch.testing.assert_close(file(images), logits, rtol=0, atol=0)
    assert logits.shape == (2, len(card.class_names))
    assert logits.std() > 0.1  # not those of random weights, where heads begin at zero


def test_pretrained_names_the_default_weights_of_an_architecture(card):
    default = default_card(card.architecture)
    loaded = load_model(card.architecture, pretrained=True)
    named = load_model(default.name).model.state_dict()
    assert all(torch.equal(v, named[k]) for k, v in loaded.model.state_dict().items())
    assert loaded.label == f"{card.architecture} (pretrained {default.tag})"


def test_the_card_matches_the_weight_file(card):
    assert hashlib.sha256(card.weights.read_bytes()).hexdigest() == card.sha256
    stated = read_metadata(card.weights)
    loaded = load_model(card.name)
    assert stated.class_names == card.class_names
    assert stated.preprocessing == card.preprocessing == loaded.preprocessing
    assert sum(p.numel() for p in loaded.model.parameters()) == card.parameters
    assert card.architecture in set(MODELS)
    assert stated.recipe["seed"] == card.seed
    assert 1 <= card.epochs <= card.recipe_epochs == stated.recipe["epochs"]


def test_weights_are_of_16_bits_and_small(card):
    with safe_open(card.weights, "pt") as file:
        kinds = {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    assert kinds <= {torch.float16, torch.int64}
    assert sum(entry.weights.stat().st_size for entry in CARDS.values()) <= BYTES


def subset_correct(card, data):
    images = load_data(data, split="test", limit=card.subset_images, seed=0)
    network = load_model(card.name)
    with torch.no_grad():
        return sum(
            int((network.model(x).argmax(1) == torch.as_tensor(y)).sum())
            for x, y in batches(images, network.preprocessing, 100)
        )


@pytest.mark.parametrize("name", [name for name in CARDS if name.endswith(".shapes")])
def test_the_stated_accuracy_on_shapes_is_measured_again(name):
    card = CARDS[name]
    assert abs(subset_correct(card, "shapes") - card.subset_correct) <= ROUNDING
    assert card.subset_correct / card.subset_images > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CARDS if name.endswith(".cifar10")])
def test_the_stated_accuracy_on_cifar10_is_measured_again(name, real_images):
    card = CARDS[name]
    correct = subset_correct(card, f"parquet:{real_images}/cifar10")
    assert abs(correct - card.subset_correct) <= ROUNDING
    assert card.subset_correct / card.subset_images > 0.5


@pytest.mark.parametrize(
    ("text", "pretrained", "sentence"),
    [
        ("resnet20.imagenet", False, r"unknown pretrained .* 'resnet20.imagenet'. Weights"),
        ("resnet99.cifar10", False, r"unknown pretrained .* 'resnet99.cifar10'. Pretrained"),
        ("resnet18_32", True, r"pretrained must be False for resnet18_32, which has no pretra"),
        ("net.py:build", True, "pretrained must be False for net.py:build, as a model"),
        ("resnet20.shapes?num_classes=7", False, r"fc.weight \(10, 64\) instead of \(7, 64\)"),
    ],
)
def test_weights_that_do_not_exist_or_do_not_fit_are_refused(text, pretrained, sentence):
    with pytest.raises(InputError, match=sentence):
        load_model(text, pretrained=pretrained)


def test_the_page_of_model_cards_states_these_numbers(card):
    page = (PROJECT / "docs" / "model_cards.md").read_text("utf-8")
    section = page.partition(f"\n## {card.name}\n")[2].partition("\n## ")[0]
    interval = f"[{card.accuracy_low:.2%}, {card.accuracy_high:.2%}]"
    for stated in (
        f"{card.accuracy:.2%} {interval}",
        card.data_description,
        f"{epochs_in_words(card)} epoch",
        f"{card.minutes:.1f} minutes",
        f"python benchmarks/trained.py {card.name}",
    ):
        assert stated in section
    assert f"| {card.parameters:,} |" in page

"""Fine-tuning: a new head, what trains, losses and optimizers of one's own, early endings."""

from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.optim import param_groups_layer_decay
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

import visprism as vp
from visprism.models.state_dicts import read_state_dict
from visprism.training.job import Job, train
from visprism.training.losses import label_loss
from visprism.training.optimizers import freeze, layers_of, make_optimizers


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Three classes of 20 images in a folder without splits: dark, gray and bright."""
    root, generator = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for target, level in {"dark": 20, "gray": 110, "bright": 200}.items():
        (root / target).mkdir()
        for i in range(20):
            pixels = (level + generator.integers(0, 50, (32, 32, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(root / target / f"{i:02}.png")
    return root


RECIPE = vp.load_recipe("finetune").replace(epochs=2, batch_size=18, warmup=0.0)


def trained(photos, folder, recipe=RECIPE, model="resnet20.shapes", **options):
    said = []
    job = Job(model, f"folder:{photos}", folder, logs=(), **options)
    return train(job, recipe, say=said.append), said


def test_a_shipped_network_gets_the_head_of_the_data_and_a_part_of_them_is_held_out(
    photos, tmp_path
):
    history, said = trained(photos, tmp_path, RECIPE.replace(lr=1e-9, clip=0.0))
    assert said[0].startswith("6 images, 10% of each class by seed 0, are held out")
    assert said[1] == (
        "starts from resnet20.shapes; new: fc.weight, fc.bias (10 classes "
        "before, 3 now); 272,019 of 272,019 parameters train"
    )
    assert history.test_images == 6
    before = vp.load_model("resnet20.shapes").model.state_dict()
    after = vp.load_model(str(tmp_path / "model.safetensors"))
    assert after.model.fc.weight.shape[0] == 3
    for name, tensor in after.model.named_parameters():
        if not name.startswith("fc"):
            torch.testing.assert_close(tensor, before[name], rtol=0, atol=1e-6)
    # The file is a model of three classes, which can be trained on.
    _, said = trained(photos, tmp_path / "again", model=str(tmp_path / "model.safetensors"))
    assert "new:" not in said[1]


def test_fine_tuning_learns_and_frozen_parts_stay(photos, tmp_path):
    recipe = RECIPE.replace(epochs=6, freeze="conv1,layer1", lr=5e-3)
    history, said = trained(photos, tmp_path, recipe, validation=0.2)
    assert history.test_accuracy.max() == 1
    assert "257,571 of 272,019" in said[1]
    before = vp.load_model("resnet20.shapes").model.state_dict()
    for name, tensor in read_state_dict(tmp_path / "model.safetensors").items():
        frozen = name.startswith(("conv1", "layer1"))  # also running statistics of layer1
        if not name.startswith("fc"):
            assert torch.equal(tensor, before[name]) == frozen, name
    with pytest.raises(vp.InputError, match=r"freeze must name a part of the model \(conv1, "):
        trained(photos, tmp_path / "other", RECIPE.replace(freeze="layer9"))


def test_body_is_all_but_the_last_layer():
    model = timm.create_model("vit_tiny_patch16_224", depth=1)
    freeze(model, ["body"])
    assert [n for n, p in model.named_parameters() if p.requires_grad] == [
        "head.weight",
        "head.bias",
    ]


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit3_small_patch16_224"])
def test_learning_rates_by_layer_are_timms(name):
    """Apart from the last norm, which timm counts to the last block, and BEiT to the head."""
    model = timm.create_model(name)
    recipe = vp.Recipe(epochs=1, batch_size=1, lr=1.0, layer_decay=0.7)
    ((optimizer, _),) = make_optimizers(model, recipe)
    theirs = {
        id(p): group["lr_scale"]
        for group in param_groups_layer_decay(model, layer_decay=0.7)
        for p in group["params"]
    }
    for group in optimizer.param_groups:
        for parameter in {*group["params"]} - {*model.norm.parameters()}:
            assert group["lr_factor"] == pytest.approx(theirs[id(parameter)])


@pytest.mark.parametrize(
    ("name", "blocks"),
    [("resnet18", 8), ("convnext_atto", 12 + 3), ("swin_tiny_patch4_window7_224", 12 + 3)],
)
def test_blocks_are_layers(name, blocks):
    names = [n for n, _ in timm.create_model(name).named_parameters()]
    layers = layers_of(names)
    assert max(layers.values()) == blocks + 1
    assert layers[names[0]] == 0
    assert [*layers.values()] == sorted(layers.values())


def test_weights_of_classes_and_binary_losses_by_hand():
    logits, classes = torch.randn(6, 3), torch.tensor([0, 0, 0, 0, 1, 1])
    targets = torch.eye(3)[classes]
    images, recipe = torch.tensor([4, 2, 0]), vp.Recipe(epochs=1, batch_size=1, lr=1.0)
    balanced = label_loss(recipe.replace(class_weights="balanced"), images)(logits, targets)
    weights = torch.tensor([6 / 12, 6 / 6, 6 / 3])  # 0 images count as one
    expected = cross_entropy(logits, classes, weights, reduction="none")
    torch.testing.assert_close(balanced, expected)
    given = label_loss(recipe.replace(class_weights="0.5,1,2"), images)(logits, targets)
    torch.testing.assert_close(given, expected)
    binary = label_loss(recipe.replace(loss="bce"), images)(logits, targets)
    assert binary.mean() == pytest.approx(binary_cross_entropy_with_logits(logits, targets))
    for wrong in ("1,2", "a", "-1,1,1"):
        with pytest.raises(vp.InputError, match="class_weights must be none, balanced or 3"):
            label_loss(recipe.replace(class_weights=wrong), images)
    with pytest.raises(vp.InputError, match=r"loss must be cross-entropy, bce or FILE.py:NAME"):
        label_loss(recipe.replace(loss="mse"), images)


OWN = """
import torch
from torch.nn.functional import cross_entropy

def loss(outputs, targets):
    return cross_entropy(outputs, targets)

def optimizer(groups, lr):
    return torch.optim.SGD(groups, lr=lr)

def nothing(groups, lr):
    return None
"""


def test_a_loss_and_an_optimizer_from_a_file_are_those_of_the_recipe(
    tmp_path, make_model, make_feed, recipe
):
    (tmp_path / "own.py").write_text(OWN)
    own = {"loss": f"{tmp_path}/own.py:loss", "optimizer": f"{tmp_path}/own.py:optimizer"}
    models = make_model(), make_model()
    models[1].load_state_dict(models[0].state_dict())
    vp.fit(models[0], make_feed(recipe), recipe.replace(optimizer="sgd", momentum=0.0))
    vp.fit(models[1], make_feed(recipe), recipe.replace(**own))
    for one, other in zip(*(m.parameters() for m in models), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    with pytest.raises(vp.InputError, match=r"must return a torch.optim.Optimizer, got None"):
        vp.fit(
            make_model(),
            make_feed(recipe),
            recipe.replace(optimizer=f"{tmp_path}/own.py:nothing"),
        )


def test_a_training_ends_where_the_accuracy_does_not_rise(
    tmp_path, caplog, make_model, make_feed, recipe, test_batches
):
    short = recipe.replace(epochs=30, patience=2, lr=1e-9)
    history = vp.fit(make_model(), make_feed(short), short, test=test_batches, folder=tmp_path)
    assert len(history) == 3
    assert "ended after epoch 3: the accuracy did not rise in 2 evaluations" in caplog.text
    again = vp.fit(make_model(), make_feed(short), short, test=test_batches, folder=tmp_path)
    assert len(again) == 3


def test_a_run_is_extended_and_ends_as_a_longer_one(
    tmp_path, caplog, make_model, make_feed, recipe
):
    """With a constant learning rate, bit for bit."""
    constant = replace(recipe, schedule="constant", warmup=0.0)
    for epochs in (2, 4):
        extended = make_model()
        vp.fit(extended, make_feed(recipe), replace(constant, epochs=epochs), folder=tmp_path)
    whole = make_model()
    vp.fit(whole, make_feed(recipe), replace(constant, epochs=4))
    torch.testing.assert_close(extended.state_dict(), whole.state_dict(), rtol=0, atol=0)
    assert "the run is extended from 2 to 4 epochs" in caplog.text
    with pytest.raises(vp.InputError, match="holds another run: recipe lr"):
        vp.fit(
            make_model(), make_feed(recipe), replace(constant, epochs=5, lr=0.1),
            folder=tmp_path,
        )  # fmt: skip

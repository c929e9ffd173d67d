"""Laws of the zoo's options: the table of docs/models.md is what networks take."""

import pytest
import torch

from visprism import MODELS, load_model
from visprism.core.run import stream

SMALLEST = {
    "alexnet": "alexnet_32",
    "vgg": "vgg11_32",
    "preact_vgg": "preact_vgg11_32",
    "resnet": "resnet18_32",
    "resnext": "resnext50_32x4d_32",
    "wide_resnet": "wide_resnet50_2_32",
    "se_resnet": "se_resnet50_32",
    "cbam_resnet": "cbam_resnet50_32",
    "resnet20": "resnet20",
    "preact_resnet": "preact_resnet18_32",
    "mobilenetv2": "mobilenetv2_32",
    "alter_resnet": "alter_resnet18_32",
    "alter_resnet20": "alter_resnet20",
    "sasa_resnet": "sasa_resnet26_32",
    "vit": "vit_tiny_patch2_32",
    "vit_pico": "vit_pico_patch4_32",
    "vit_nano": "vit_nano_patch4_32",
    "deit": "deit_tiny_patch2_32",
    "conv_vit": "conv_vit_tiny_patch2_32",
    "pit": "pit_tiny_patch2_32",
    "swin": "swin_tiny_patch1_window4_32",
    "mixer": "mixer_tiny_patch2_32",
}


# What options of single families mean.


def test_dropout_and_smoothing_of_mobilenet_stand_between_its_convolutions():
    model = MODELS["mobilenetv2_32"](mc_dropout=0.3, smoothing=True, drop_path_rate=0.32)
    plain = MODELS["mobilenetv2_32"]()
    assert list(model.state_dict()) == list(plain.state_dict())
    smooth = [n for n, m in model.named_modules() if type(m).__name__ == "SpatialSmoothing"]
    assert smooth == [f"features.{i}.conv.0.3" for i in (4, 7, 14)]  # before each stride
    dropouts = [n for n, m in model.named_modules() if getattr(m, "p", 0) == 0.3]
    assert dropouts == [
        "features.1.conv.0.3",
        *(f"features.{i}.conv.1.3" for i in range(2, 18)),
    ]
    rates = {n: m.drop_prob for n, m in model.named_modules() if hasattr(m, "drop_prob")}
    expected = {f"features.{i}.conv.4": 0.02 * (i - 1) for i in range(3, 18)}
    strided = (4, 7, 11, 14, 17)  # no shortcut
    assert rates == pytest.approx(
        {n: r for n, r in expected.items() if int(n.split(".")[1]) not in strided}
    )


@pytest.mark.parametrize("family", ["deit", "pit"])
def test_the_mean_of_all_patches_does_not_know_their_order(family):
    """Blocks aside, `gap` reads the mean: of a shuffled map it is the same."""
    model = load_model(f"{SMALLEST[family]}?head=gap").model
    torch.nn.init.normal_(model.head.weight, generator=stream(0, "head"))
    tokens = torch.randn(2, 16, model.num_features, generator=stream(0, "tokens"))
    shuffled = tokens[:, torch.randperm(16, generator=stream(0, "order"))]
    torch.testing.assert_close(model.forward_head(tokens), model.forward_head(shuffled))
    by_hand = tokens.mean(1) if family == "pit" else model.fc_norm(tokens.mean(1))
    torch.testing.assert_close(model.forward_head(tokens, pre_logits=True), by_hand)


@pytest.mark.parametrize("head", ["gap", "gap_mlp", "attention_pool"])
def test_a_deit_without_tokens_has_two_classifiers(head):
    model = load_model(f"deit_tiny_patch2_32?depth=1&head={head}").model
    images = torch.randn(2, 3, 32, 32, generator=stream(0, "images"))
    assert model.num_prefix_tokens == 0
    both = model.forward_features(images)
    of_class, of_teacher = model.train().forward_head(both)
    assert not torch.allclose(of_class, of_teacher)
    if head != "gap_mlp":  # whose dropout draws anew
        mean = model.eval().forward_head(both)
        torch.testing.assert_close(mean, (of_class + of_teacher) / 2)

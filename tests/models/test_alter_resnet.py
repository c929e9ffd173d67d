"""Laws of pre-activation and Alter-ResNets (src/visprism/models/{preact,alter}_resnet.py)."""

import pytest
import timm
import torch
from small_models import noise

from visprism import MODELS, harmonize_model, load_model


def renamed(ours):
    """Names of timm's ResNetV2 for the tensors of a pre-activation ResNet of ours."""
    names = {}
    for key in ours:
        stage, _, rest = key.partition(".")
        if stage.startswith("layer"):
            rest = rest.replace("downsample", "downsample.conv")
            names[key] = f"stages.{int(stage[5:]) - 1}.blocks.{rest}"
        else:
            for mine, timms in (("conv1", "stem.conv"), ("fc", "head.fc")):
                names[key] = names.get(key, key).replace(mine, timms)
    return names


def test_gives_the_logits_of_timms_pre_activation_resnet():
    ours = load_model("preact_resnet18_224?num_classes=7").model
    timms = timm.create_model("resnetv2_18", num_classes=7).eval()
    state = ours.state_dict()
    names = renamed(state)
    assert len(timms.state_dict()) == len(state)
    timms.load_state_dict(
        {
            names[key]: tensor[..., None, None] if key == "fc.weight" else tensor
            for key, tensor in state.items()
        }
    )
    x = noise(2, 3, 64, 64)
    with torch.no_grad():
        theirs = timms(x)
        torch.testing.assert_close(ours(x), theirs, rtol=1e-5, atol=1e-5 * theirs.abs().max())


@pytest.mark.parametrize("msas", [(0, 1, 2), (0, 0, 0)])
def test_alter_resnet20_is_what_harmonize_makes_of_resnet20(msas):
    """The same tree of modules and shapes, by the placement, heads and window of its rule."""
    converted = harmonize_model(load_model("resnet20").model, torch.zeros(2, 3, 32, 32), msas)
    assert shapes(MODELS["alter_resnet20"](msas=msas)) == shapes(converted)


def shapes(model):
    return {name: tensor.shape for name, tensor in model.state_dict().items()}

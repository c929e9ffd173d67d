"""Laws of the zoo's CNNs (src/visprism/models): logits of torchvision and timm, options."""

import pytest
import timm
import torch
import torchvision
from small_models import noise
from torch import nn

from visprism import MODELS, MonteCarloDropout, harmonize_model, load_model, predict
from visprism.core.run import stream
from visprism.models.layers.residual_blocks import SpatialSmoothing


def on_meta(build, **options):
    with torch.device("meta"):
        return build(**options).eval()


def test_gives_the_logits_of_torchvisions():
    theirs = torchvision.models.get_model("resnet18", num_classes=10).eval()
    _shaken(theirs)
    ours = on_meta(MODELS["resnet18_224"], num_classes=10)
    ours.load_state_dict(theirs.state_dict(), assign=True)
    x = noise(2, 3, 64, 64)
    with torch.no_grad():
        expected = theirs(x)
        torch.testing.assert_close(ours(x), expected, rtol=1e-5, atol=1e-5)
    assert expected.std() > 1e-3


@pytest.mark.parametrize("name", ["vgg11", "vgg11_bn", "alexnet"])
def test_gives_the_feature_maps_of_torchvisions(name):
    theirs = on_meta(torchvision.models.get_model, name=name).features.to_empty(device="cpu")
    _shaken(theirs)
    ours = load_model(f"{name}_224?head=gap").model.features
    state = theirs.state_dict()
    if name == "vgg11_bn":  # a constant before a BatchNorm is a part of its mean
        for key in [k for k in state if k.endswith("running_mean")]:
            bias = f"{int(key.partition('.')[0]) - 1}.bias"
            state[key] = state[key] - state.pop(bias)
    ours.load_state_dict(state)
    x = noise(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


def _shaken(model):
    """Numbers as after training, so that no part of the model is idle."""
    for name, tensor in model.state_dict().items():
        values = torch.rand(tensor.shape, generator=stream(0, name))
        if tensor.ndim > 1:
            tensor.copy_((2 * values - 1) * (6 / values[0].numel()) ** 0.5)
        elif name.endswith(("running_var", "weight")):
            tensor.copy_(values + 0.5)
        else:
            tensor.copy_(0.2 * values - 0.1)


@pytest.mark.parametrize(
    "name", ["resnet18_32", "alter_resnet18_32", "preact_vgg11_32", "vgg11_bn_32", "alexnet_32"]
)
def test_smoothing_stands_before_each_subsampling_and_has_no_parameters(name):
    plain, smooth = on_meta(MODELS[name]), on_meta(MODELS[name], smoothing=True)
    x = torch.zeros(2, 3, 32, 32, device="meta")
    order = []
    for module in smooth.modules():
        if isinstance(module, SpatialSmoothing):
            module.register_forward_hook(lambda _m, _i, y: order.append(y.shape[2]))
    assert smooth(x).shape == plain(x).shape
    # In pre-activation ResNets the head's norm follows the last stage.
    sides = {"alexnet_32": [16, 8, 4], "alter_resnet18_32": [32, 16, 8]}
    sides["resnet18_32"] = [32, 16, 8, 4]
    assert order == sides.get(name, [32, 16, 8, 4, 2])
    assert len(list(smooth.parameters())) == len(list(plain.parameters()))


@pytest.mark.parametrize("name", ["alter_resnet18_32", "vgg11_bn_32?head=gap"])
def test_mc_dropout_makes_the_passes_of_a_prediction_differ(name):
    join = "&" if "?" in name else "?"
    model = load_model(f"{name}{join}mc_dropout=0.3").model
    batches = [(noise(4, 3, 32, 32), torch.arange(4))]
    first, second = (
        predict(MonteCarloDropout(model, 1, seed=seed), batches).logits for seed in (0, 1)
    )
    assert (first != second).any()
    rates = [m.p for m in model.modules() if isinstance(m, nn.Dropout)]
    assert set(rates) == {0.3}
    assert len(rates) == 8  # blocks, or convolutions


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

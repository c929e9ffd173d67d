"""Laws of names, the zoo's and timm's (src/visprism/models/{zoo,timm_entries}.py)."""

import inspect

import pytest
import timm
import torch
from torch import nn

from visprism import MODELS, InputError, load_model
from visprism.core.rng import stream
from visprism.models.zoo_registry import image_size

NAMES = {  # one of each family that gives feature maps, and the channels of all its maps
    "preact_resnet18_32": [64, 64, 128, 256, 512],
    "alter_resnet18_32": [64, 64, 128, 256, 512],
    "resnet18_32": [64, 64, 128, 256, 512],
    "sasa_resnet26_32": [64, 256, 512, 1024, 2048],
    "mobilenetv2_32": [16, 24, 32, 96, 320],
    "alexnet_32": [64, 192, 256],
    "vgg11_bn_32": [64, 128, 256, 512, 512],
    "pit_tiny_patch2_32": [64, 128, 256],
    "swin_tiny_patch1_window4_32": [96, 192, 384, 768],
    "conv_vit_tiny_patch2_32": [192] * 12,
    "mixer_tiny_patch2_32": [256] * 8,
    "resnet20": [16, 32, 64],
    "alter_resnet20": [16, 32, 64],
    "pit_pico_patch4_32": [32, 64, 128],
    "mixer_pico_patch4_32": [96] * 8,
    "vit_nano_patch4_32": [96] * 8,
}


# In timm.


def test_timm_lists_every_network_of_the_zoo():
    ours = {name.removeprefix("visprism_") for name in timm.list_models("visprism_*")}
    assert ours >= set(MODELS)  # tests may have added others


@pytest.mark.parametrize("name", ["preact_resnet18_32", "vit_pico_patch4_32"])
def test_timm_builds_the_same_network(name):
    theirs = timm.create_model(f"visprism_{name}", num_classes=7, in_chans=1).eval()
    ours = MODELS[name](num_classes=7, in_chans=1).eval()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 1, 32, 32, generator=stream(0, "x"))
    torch.testing.assert_close(ours(x), theirs(x))
    assert theirs.pretrained_cfg["input_size"] == (3, 32, 32)


@pytest.mark.parametrize(("name", "channels"), NAMES.items())
def test_timm_gives_feature_maps_with_the_channels_and_reductions_it_states(name, channels):
    with torch.device("meta"):  # shapes alone
        network = timm.create_model(f"visprism_{name}", features_only=True).eval()
        maps = network(torch.zeros(1, 3, 32, 32))
    assert [x.shape[1] for x in maps] == channels == network.feature_info.channels()
    assert [32 // x.shape[2] for x in maps] == network.feature_info.reduction()


@pytest.mark.parametrize(("name", "channels"), NAMES.items())
def test_timm_gives_the_feature_maps_that_are_asked_for(name, channels):
    with torch.device("meta"):
        network = timm.create_model(f"visprism_{name}", features_only=True, out_indices=(1, -1))
        maps = network(torch.zeros(2, 3, 32, 32))
    assert [x.shape[1] for x in maps] == [channels[1], channels[-1]]


@pytest.mark.parametrize(("name", "channels"), NAMES.items())
@pytest.mark.parametrize("last", [(-1,), [-1], 1])
def test_timm_gives_the_last_feature_map_alone(name, channels, last):
    with torch.device("meta"):
        network = timm.create_model(f"visprism_{name}", features_only=True, out_indices=last)
        (only,) = network(torch.zeros(2, 3, 32, 32))
    assert only.shape[1] == channels[-1] == network.feature_info.channels()[-1]


@torch.no_grad()
def test_the_feature_maps_of_pit_are_those_that_its_logits_come_from():
    model = load_model("pit_tiny_patch2_32").model
    seen = []
    for stage in model.transformers:
        stage.register_forward_hook(lambda _stage, _inputs, out: seen.append(out[0]))
    for images in (torch.randn(2, 3, s, s, generator=stream(0, "x")) for s in (32, 24)):
        seen.clear()
        model(images)
        usual = list(seen)
        features, maps = model.forward_intermediates(images)
        torch.testing.assert_close(maps, usual, rtol=0, atol=0)
        torch.testing.assert_close(features, model.forward_features(images), rtol=0, atol=0)


# timm's contract for classifiers.

ENDS = [name for name in NAMES if name not in ("vgg11_bn_32", "alexnet_32")] + [
    "vit_pico_patch4_32",
    "deit_tiny_patch2_32",
    "deit_tiny_patch2_32?head=gap_mlp",
    "pit_tiny_patch2_32?head=gap_mlp",
    "mixer_tiny_patch2_32?head=attention_pool",
    "swin_tiny_patch1_window4_32?head=attention_pool",
    "swin_tiny_patch1_window4_32?head=gap_mlp",
    "resnet18_32?head=attention_pool",
    "alexnet_32",
    "vgg11_32?head=gap_mlp",
]


@pytest.mark.slow
@pytest.mark.parametrize("spec", ENDS)
@torch.no_grad()
def test_a_classifier_can_be_taken_away_and_given_anew(spec):
    model = load_model(spec).model
    images = torch.randn(2, 3, 32, 32, generator=stream(0, "x"))
    before = [str(one) for one in _both(model.get_classifier())]
    features = model.forward_features(images)
    vector = model.forward_head(features, pre_logits=True)
    assert vector.shape == (2, model.head_hidden_size)
    torch.testing.assert_close(model.forward_head(features), model(images))
    model.reset_classifier(0)
    assert model.num_classes == 0
    torch.testing.assert_close(model(images), vector)
    assert all(isinstance(one, nn.Identity) for one in _both(model.get_classifier()))
    model.reset_classifier(7)
    assert model(images).shape == (2, 7)
    after = [
        str(one).replace("out_features=7", "out_features=10")
        for one in _both(model.get_classifier())
    ]
    assert after == before  # of the kind that it was
    assert not any(one.training for one in _both(model.get_classifier()))


def _both(classifier):
    return classifier if isinstance(classifier, tuple) else (classifier,)


@pytest.mark.parametrize(("name", "channels"), [("preact_resnet18_32", 512), ("resnet20", 64)])
def test_a_network_without_classes_gives_features(name, channels):
    network = timm.create_model(f"visprism_{name}", num_classes=0).eval()
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, channels)


def test_the_whole_grid_can_be_asked_for_by_either_way():
    name = "conv_vit_tiny_patch2_32"
    with torch.device("meta"):
        theirs = timm.create_model(f"visprism_{name}", kernel="global", depth=1)
    ours = load_model(f"{name}?kernel=global&depth=1").model
    assert theirs.blocks[0].attn.kernel is ours.blocks[0].attn.kernel is None


@pytest.mark.parametrize("name", ["resnet20", *NAMES, "deit_tiny_patch2_32", "vgg11_32"])
def test_timm_is_told_where_the_first_convolution_and_the_classifier_are(name):
    with torch.device("meta"):
        model = timm.create_model(f"visprism_{name}", num_classes=7, in_chans=5)
    config = model.pretrained_cfg
    assert model.get_submodule(config["first_conv"]).in_channels == 5
    ends = [model.get_submodule(one).out_features for one in _both(config["classifier"])]
    assert ends == [7] * (2 if name.startswith("deit") else 1)


# In the zoo.


def test_an_option_changes_the_network():
    wide = MODELS["alter_resnet18_32"](window=8).layer4[1].attn
    assert wide.relative_bias.shape == (24, 15, 15)


def test_an_unknown_option_is_refused():
    with pytest.raises(
        TypeError, match=r"resnet18_32\(\) got an unexpected keyword .* 'heads'"
    ):
        MODELS["preact_resnet18_32"](heads=3)
    with pytest.raises(ValueError, match=r"no argument 'smoothin'\. Did you mean smoothing"):
        load_model("preact_resnet18_32?smoothin=True")
    with pytest.raises(ValueError, match="takes no argument 'depths'"):
        load_model("resnet18_32?depths=(1,1)")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            "resnet20?num_classes=-1",
            r"num_classes of resnet20 must be an integer of at least 0, got -1",
        ),
        (
            "vit_pico_patch4_32?in_chans=0",
            r"in_chans of .* must be an integer of at least 1, got 0",
        ),
        ("resnet18_32?num_classes=True", r"must be an integer of at least 0, got True"),
        (
            "vit_tiny_patch2_32?num_heads=0",
            r"num_heads of .* must be an integer of at least 1 or None, got 0",
        ),
        ("deit_tiny_patch2_32?num_heads=0", r"must be an integer of at least 1 or None, got 0"),
        ("conv_vit_tiny_patch2_32?num_heads=-3", r"must be an integer .*, got -3"),
        (
            "swin_tiny_patch1_window4_32?num_heads=()",
            r"num_heads must have one number per stage \(4\), got 0",
        ),
        (
            "pit_tiny_patch2_32?num_heads=()",
            r"num_heads must have one number per stage \(3\), got 0",
        ),
        (
            "swin_tiny_patch1_window4_32?num_heads=4",
            r"must be a tuple with one integer of at least 1 per stage",
        ),
        (
            "pit_tiny_patch2_32?num_heads=(2,4.0,8)",
            r"must be a tuple with one integer of at least 1 per stage",
        ),
        (
            "alter_resnet18_32?msas=3",
            r"msas of .* must be a tuple with one integer per stage, got 3",
        ),
        (
            "alter_resnet18_32?num_heads=4",
            r"must be a tuple with one integer of at least 1 per stage, got 4",
        ),
        (
            "alter_resnet18_32?num_heads=(1,1,1,1,1)",
            r"num_heads must have one number per stage \(4\), got \(1, 1, 1, 1, 1\)",
        ),
        (
            "conv_vit_tiny_patch2_32?kernel=3.0",
            r"must be an integer or 'global' or None, got 3\.0",
        ),
        (
            "conv_vit_tiny_patch2_32?kernel=all",
            r"must be an integer or 'global' or None, got 'all'",
        ),
        ("sasa_resnet26_32?kernel=3.0", r"kernel of .* must be an integer, got 3\.0"),
        (
            "sasa_resnet26_32?num_heads=5",
            r"num_heads must divide half of the 64 channels .*Choose a divisor of 32",
        ),
        (
            "swin_tiny_patch1_window4_32?window=2.5",
            r"must be an integer of at least 1, got 2\.5",
        ),
        ("vit_tiny_patch2_32?depth=0", r"depth of .* must be an integer of at least 1, got 0"),
        ("vit_tiny_patch2_32?drop_path_rate=2", r"must be a number in \[0, 1\), got 2"),
        ("vgg11_32?mc_dropout=1.0", r"must be a number in \[0, 1\), got 1\.0"),
        ("mobilenetv2_32?drop_rate=no", r"must be a number in \[0, 1\), got 'no'"),
        ("preact_resnet18_32?smoothing=yes", r"must be True or False, got 'yes'"),
        ("mixer_tiny_patch2_32?head=[1]", r"must be text, got \[1\]"),
    ],
)
def test_an_option_of_another_kind_is_refused(spec, sentence):
    with pytest.raises(InputError, match=sentence):
        load_model(spec)


@pytest.mark.parametrize("name", MODELS)
def test_a_name_says_the_size_and_the_family_says_the_classes(name):
    classes = inspect.signature(MODELS[name]).parameters["num_classes"].default
    assert (image_size(name), classes) in {(32, 10), (224, 1000)}


def test_the_same_seed_gives_the_same_weights():
    one, other, third = (
        torch.cat(
            [p.flatten() for p in load_model("alter_resnet18_32", seed=s).model.parameters()]
        )
        for s in (0, 0, 1)
    )
    assert torch.equal(one, other)
    assert not torch.equal(one, third)


def test_stochastic_depth_grows_from_none_to_its_rate():
    model = MODELS["preact_resnet18_32"](drop_path_rate=0.7)
    rates = [getattr(m.drop_path, "drop_prob", 0.0) for m in model.modules() if _is_block(m)]
    assert rates == pytest.approx([0.1 * i for i in range(8)])


def _is_block(module: nn.Module) -> bool:
    return hasattr(module, "drop_path")

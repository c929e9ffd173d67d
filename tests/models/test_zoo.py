"""Laws of names, the zoo's and timm's (src/visprism/models/{zoo,timm_entries}.py)."""

import pytest
import timm
import torch
from internals import stream
from torch import nn

import visprism.integrations.timm  # noqa: F401  it registers the names
from visprism import MODELS, InputError, load_model

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
    "vit_nano_patch4_32": [96] * 8,
}


def test_timm_lists_every_network_of_the_zoo():
    ours = {name.removeprefix("visprism_") for name in timm.list_models("visprism_*")}
    assert ours >= set(MODELS)  # tests may have added others


@pytest.mark.parametrize("name", ["alter_resnet20", "vit_pico_patch4_32"])
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


@pytest.mark.parametrize(
    ("out_indices", "expected"), [((1, -1), [32, 64]), ((-1,), [64]), (1, [64])]
)
def test_timm_gives_the_feature_maps_that_are_asked_for(out_indices, expected):
    network = timm.create_model(
        "visprism_resnet20", features_only=True, out_indices=out_indices
    )
    assert [x.shape[1] for x in network(torch.zeros(2, 3, 32, 32))] == expected


@torch.no_grad()
def test_the_feature_maps_of_pit_are_those_that_its_logits_come_from():
    model = load_model("pit_pico_patch4_32").model
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


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("resnet20?num_classes=-1", "num_classes must be an integer of at least 0, got -1"),
        ("resnet20?head=fc", "head must be one of gap, gap_mlp, attention_pool, got 'fc'"),
        ("resnet20?smoothing=2", "smoothing must be True or False, got 2"),
        ("resnet20?mc_dropout=1", "mc_dropout must be a number .* below 1, got 1"),
        ("resnet20?depht=3", "takes no argument 'depht'"),
        ("alter_resnet18_32?msas=(0, 1)", r"msas must have one number per stage \(4\)"),
        ("alter_resnet18_32?msas=(0, 0, 0, 9)", "msas must be 0 to 1 in stage 4"),
        ("preact_resnet18_32?depths=(0, 1)", "depths must be integers of at least 1, got 0"),
        ("vit_tiny_patch2_32?num_heads=5", "num_heads must divide the 192 channels, got 5"),
        ("vit_tiny_patch2_32?img_size=33", "must be a multiple of the patch size"),
        ("conv_vit_tiny_patch2_32?kernel=2", "kernel must be an odd number of tokens"),
        ("pit_tiny_patch2_32?no_embed_class=True&head=gap", "no_embed_class must be False"),
        ("pit_tiny_224?img_size=225", "sides of images must be 16 plus a multiple of 8"),
        ("swin_tiny_patch1_window4_32?num_heads=(3, 6)", "num_heads must have one number"),
        ("sasa_resnet26_32?kernel=4", "kernel must be an odd number of pixels"),
        ("alter_resnet18_32?window=0", "window must be an integer of at least 1"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_sentence(spec, sentence):
    with pytest.raises(InputError, match=sentence):
        load_model(spec)

"""Laws of the zoo's options: the table of docs/models.md is what networks take."""

import inspect
import re
from pathlib import Path

import pytest
import torch

from visprism import MODELS, InputError, load_model
from visprism.core.run import stream

DOCUMENT = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
ROWS = re.findall(r"^\| (`.*?) \| (`.*?) \| (`.*?) \|$", DOCUMENT, flags=re.MULTILINE)
TABLE = {  # by family, heads and other options
    family: (re.findall(r"\w+", heads), re.findall(r"\w+", options))
    for families, heads, options in ROWS
    for family in re.findall(r"\w+", families)
}
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
OTHER = {  # than every default
    "mc_dropout": 0.3,
    "smoothing": True,
    "drop_path_rate": 0.3,
    "drop_rate": 0.5,
    "conv_bias": False,
    "shared_bias": True,
    "no_embed_class": True,
    "num_heads": 2,
    "head_dim": 24,
    "img_size": 16,
    "patch_size": 8,
    "kernel": 5,
    "window": 2,
    "depth": 3,
    "depths": (2, 2, 2, 3),
    "msas": (0, 0, 0, 1),
}
BY_STAGE = {
    "swin": (2, 2, 2, 2),
    "pit": (1, 1, 1),
    "alter_resnet": (2, 2, 2, 2),
    "alter_resnet20": (2, 4, 2),
}
FURTHER = {"num_classes", "in_chans"}  # of all
ALL = {option for _, options in TABLE.values() for option in options}
PROMISED = [(family, option) for family, (_, options) in TABLE.items() for option in options]


def built(family, **options):
    """On the meta device: the tree of modules with its shapes, without arithmetic."""
    with torch.device("meta"):
        return MODELS[SMALLEST[family]](**options)


def look(model):
    """The tree of modules, and the shapes of all tensors."""
    return str(model), {name: tensor.shape for name, tensor in model.state_dict().items()}


def other_value(family, option):
    if option == "num_heads":
        return BY_STAGE.get(family, 2)
    if option == "msas" and family == "alter_resnet20":
        return (0, 0, 1)
    if option == "qkv_bias":
        return family not in ("deit", "swin", "vit_pico", "vit_nano")
    return OTHER[option]


def test_the_table_has_every_family_of_the_zoo():
    def family(name):  # less the sizes behind it
        families = [f for f in TABLE if re.fullmatch(rf"{f}(\d|_|$).*", name) or f == name]
        return max(families, key=len, default=None)

    assert {family(name) for name in MODELS} == set(TABLE) == set(SMALLEST)


@pytest.mark.parametrize("family", TABLE)
def test_a_family_takes_what_its_row_says_and_nothing_else(family):
    heads, options = TABLE[family]
    parameters = inspect.signature(MODELS[SMALLEST[family]]).parameters
    assert set(parameters) == {"head", *options} | FURTHER
    assert parameters["head"].default == heads[0]


@pytest.mark.parametrize(
    ("family", "head"), [(f, head) for f, (heads, _) in TABLE.items() for head in heads[1:]]
)
def test_every_head_of_the_table_is_another_end_of_the_network(family, head):
    model = built(family, head=head)
    assert look(model) != look(built(family))
    model.eval()
    assert model(torch.zeros(2, 3, 32, 32, device="meta")).shape == (2, 10)


@pytest.mark.parametrize("family", TABLE)
def test_a_head_that_is_not_in_the_row_is_refused_by_the_names_of_those_that_are(family):
    heads = TABLE[family][0]
    missing = next(h for h in ("token", "mlp", "none") if h not in heads)
    named = "(?=.*{})".format(")(?=.*".join(h for h in heads if h != "mlp"))
    with pytest.raises(InputError, match=f"head must be one of {named}.*got '{missing}'"):
        load_model(f"{SMALLEST[family]}?head={missing}")


@pytest.mark.slow
@pytest.mark.parametrize(("family", "option"), PROMISED)
def test_no_option_of_the_table_is_idle(family, option):
    value = other_value(family, option)
    changed = built(family, **{option: value})
    if look(changed) != look(built(family)):
        return
    shallow = {"depth": 1} if "depth" in TABLE[family][1] else {}
    one, other = (
        MODELS[SMALLEST[family]](**shallow, **chosen).eval() for chosen in ({}, {option: value})
    )
    for parameter in one.parameters():
        if not parameter.any():  # a head of zeros hides all before it
            torch.nn.init.normal_(parameter, std=0.1, generator=stream(0, "head"))
    other.load_state_dict(one.state_dict())
    images = torch.randn(1, 3, 32, 32, generator=stream(0, "images"))
    with torch.no_grad():
        assert not torch.allclose(one(images), other(images), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("family", "option"),
    [(f, option) for f, (_, options) in TABLE.items() for option in sorted(ALL - set(options))],
)
def test_an_option_that_is_not_in_the_row_is_refused_by_what_there_is(family, option):
    said = rf"takes no argument '{option}'\. (It takes .*num_classes|Did you mean )"
    with pytest.raises(InputError, match=said):
        load_model(f"{SMALLEST[family]}?{option}={other_value(family, option)}")


def test_a_position_for_a_class_token_that_is_left_out_is_refused():
    with pytest.raises(InputError, match="no_embed_class must be False without a class token"):
        load_model("pit_tiny_patch2_32?no_embed_class=True&head=gap")


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

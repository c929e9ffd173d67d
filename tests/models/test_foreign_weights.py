"""Laws of the table of other libraries' weights in docs/models.md."""

import re
from pathlib import Path

import pytest
import timm
import torch
import torchvision

from visprism import InputError, load_model


def timms(name):
    return lambda: timm.create_model(name)


def torchvisions(name):
    return lambda: torchvision.models.get_model(name, weights=None, num_classes=1000)


PIT = "?qkv_bias=True&no_embed_class=True"
SAME = [
    ("resnet18_224", timms("resnet18")),
    ("resnet50_224", torchvisions("resnet50")),
    ("resnext50_32x4d_224", timms("resnext50_32x4d")),
    ("wide_resnet50_2_224", torchvisions("wide_resnet50_2")),
    ("alexnet_224", torchvisions("alexnet")),
    ("vgg11_224", torchvisions("vgg11")),
    ("vgg19_224", torchvisions("vgg19")),
    ("vit_tiny_patch16_224?qkv_bias=True", timms("vit_tiny_patch16_224")),
    ("vit_small_patch16_224?qkv_bias=True", timms("deit_small_patch16_224")),
    ("deit_tiny_patch16_224", timms("deit_tiny_distilled_patch16_224")),
    (f"pit_tiny_224{PIT}", timms("pit_ti_224")),
    (f"pit_xs_224{PIT}", timms("pit_xs_224")),
    (f"pit_small_224{PIT}", timms("pit_s_224")),
    (f"pit_base_224{PIT}", timms("pit_b_224")),
    ("swin_tiny_patch4_window7_224", timms("swin_tiny_patch4_window7_224")),
    ("mixer_base_patch16_224", timms("mixer_b16_224")),
]


@pytest.mark.parametrize(("spec", "make"), SAME, ids=[spec for spec, _ in SAME])
def test_the_tensors_of_the_table_have_the_same_names_and_shapes(spec, make):
    with torch.device("meta"):
        theirs, ours = make().state_dict(), load_model(spec).model.state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}


def test_of_a_vit_with_qkv_bias_the_refusal_names_the_option(tmp_path):
    state = timm.create_model("vit_tiny_patch16_224").state_dict()
    torch.save(state, tmp_path / "theirs.pt")
    with pytest.raises(InputError, match=r"The option qkv_bias=True adds qkv\.bias"):
        load_model(f"vit_tiny_patch16_224@{tmp_path / 'theirs.pt'}")


def test_the_table_names_what_is_compared_here():
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    table = text.partition("| visprism | weights |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    globs = [name for cell in cells for name in re.findall(r"`(.*?)`", cell)]
    patterns = [re.escape(glob).replace(r"\*", r"\w+") for glob in globs]
    specs = [spec for spec, _ in SAME]
    assert all(any(re.fullmatch(p, s) for s in specs) for p in patterns)
    assert all(any(re.fullmatch(p, s) for p in patterns) for s in specs)

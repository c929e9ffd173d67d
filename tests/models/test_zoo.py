"""Laws of the zoo's options (src/visprism/models/zoo)."""

import pytest
import torch

from visprism import MODELS, InputError, load_model


@pytest.mark.parametrize(
    ("name", "width"),
    [("resnet18_32", 512), ("vgg11_32", 4096), ("mobilenetv2_32", 1280), ("pit_tiny_224", 256)],
)
def test_a_network_without_classes_gives_what_its_classifier_would_read(name, width):
    with torch.device("meta"):  # shapes alone
        images = torch.zeros(2, 3, *[int(name.rpartition("_")[2])] * 2)
        assert MODELS[name](num_classes=0)(images).shape == (2, width)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("resnet20?num_classes=-1", "num_classes must be an integer of at least 0, got -1"),
        ("resnet20?head=fc", "head must be one of gap, gap_mlp, attention_pool, got 'fc'"),
        ("resnet20?smoothing=2", "smoothing must be True or False, got 2"),
        ("resnet20?mc_dropout=1", "mc_dropout must be a number .* below 1, got 1"),
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

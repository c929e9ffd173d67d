"""Parameters of the zoo's networks: published counts, most of the code of Park and Kim (2022).

Those for images of 32x32 have 100 classes, those for 224x224 have 1000.
"""

import pytest
import torch

from visprism import MODELS

COUNTS = {
    # In that code "VGG" has a BatchNorm behind each convolution.
    "vgg11_bn": (129_178_788, 132_866_088),
    "vgg16_bn": (134_674_468, 138_361_768),
    "preact_vgg11": (129_177_770, 132_865_070),
    "resnet18": (11_220_132, 11_689_512),
    "resnet34": (21_328_292, 21_797_672),
    "resnet50": (23_705_252, 25_557_032),
    "resnext50_32x4d": (23_177_124, 25_028_904),
    "wide_resnet50_2": (67_031_460, 68_883_240),
    "se_resnet50": (26_220_196, 28_071_976),
    "cbam_resnet50": (26_221_796, 28_073_576),
    "preact_resnet18": (11_218_340, 11_687_720),
    "preact_resnet34": (21_326_500, 21_795_880),
    "preact_resnet50": (23_697_572, 25_549_352),
}
WITH_ONE_TABLE = {  # of relative positions, for all heads of a block
    "alter_resnet18": (9_499_063, 9_968_803),
    "alter_resnet34": (22_362_954, 22_833_054),
    "alter_resnet50": (34_062_538, 35_915_038),
}
MSAS = {"alter_resnet18": (0, 1, 1, 1)}  # by stage; of the others (0, 1, 3, 2)
HEADS = (3, 6, 12, 24)


def count(name, **options):
    with torch.device("meta"):
        model = MODELS[name](**options)
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("name", "counts"), COUNTS.items())
def test_a_network_has_the_parameters_of_the_papers_code(name, counts):
    assert (count(f"{name}_32", num_classes=100), count(f"{name}_224")) == counts


def test_alexnet_has_them_without_the_constants_of_its_convolutions():
    counts = count("alexnet_32", num_classes=100, conv_bias=False)
    assert (counts, count("alexnet_224", conv_bias=False)) == (23_836_452, 61_099_688)
    assert count("alexnet_224") == 61_099_688 + 64 + 192 + 384 + 256 + 256


@pytest.mark.parametrize(("depth", "millions"), [(26, 10.3), (38, 14.1), (50, 18.0)])
def test_stand_alone_self_attention_has_the_published_size(depth, millions):
    # Ramachandran et al. (2019), table 1, "conv stem + attention".
    assert count(f"sasa_resnet{depth}_224") / 1e6 == pytest.approx(millions, abs=0.1)


@pytest.mark.parametrize(("name", "counts"), WITH_ONE_TABLE.items())
def test_an_alter_resnet_has_the_parameters_of_the_papers_code(name, counts):
    small = count(f"{name}_32", num_classes=100, shared_bias=True)
    assert (small, count(f"{name}_224", shared_bias=True)) == counts


@pytest.mark.parametrize(("name", "counts"), WITH_ONE_TABLE.items())
def test_a_table_for_each_head_adds_so_many_more(name, counts):
    msas = MSAS.get(name, (0, 1, 3, 2))
    more = sum(n * (heads - 1) for n, heads in zip(msas, HEADS, strict=True))
    assert count(f"{name}_32", num_classes=100) == counts[0] + more * (2 * 4 - 1) ** 2
    assert count(f"{name}_224") == counts[1] + more * (2 * 7 - 1) ** 2


# Parameters, counted by running the code of Park and Kim (2022); for 100 classes at 32 pixels.
SIZES = {
    "vit_tiny_patch2_32": 5_403_172,
    "vit_small_patch2_32": 21_423_076,
    "vit_tiny_patch16_224": 5_710_504,
    "pit_tiny_patch2_32": 4_576_740,
    "pit_tiny_224": 4_841_576,
    "pit_xs_224": 10_610_344,  # with an MLP of 4x width in the last stage
    "pit_small_224": 23_449_096,
    "mixer_tiny_patch2_32": 4_769_636,
    "mixer_small_patch2_32": 17_925_732,
    "mixer_tiny_patch16_224": 5_071_112,
    "conv_vit_tiny_patch2_32": 5_402_788,
    "conv_vit_tiny_patch16_224": 5_710_120,
    "swin_tiny_patch4_window7_224": 28_288_354,  # the official one, as are these
    "deit_tiny_patch16_224": 5_910_800,
    "deit_base_patch16_224": 87_338_192,
}


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_has_the_published_number_of_parameters(name, size):
    classes = 100 if name.endswith("_32") else 1000
    assert count(name, num_classes=classes) == size


@pytest.mark.parametrize(
    ("name", "classes", "window", "size"),
    [
        ("swin_tiny_patch1_window4_32", 100, 4, 27_551_728),
        ("swin_small_patch4_window7_224", 1000, 7, 49_531_360),
    ],
)
def test_swin_differs_from_that_of_the_study_by_what_is_known(name, classes, window, size):
    """Theirs shares one bias among heads, and merges by biased convolutions without norms."""
    depths = (2, 2, 18, 2) if "small" in name else (2, 2, 6, 2)
    heads = (3, 6, 12, 24)
    biases = sum(d * (h - 1) for d, h in zip(depths, heads, strict=True))
    embedding = 2 * 96
    merging = sum(2 * 4 * width - 2 * width for width in (96, 192, 384))
    expected = size + biases * (2 * window - 1) ** 2 + embedding + merging
    assert count(name, num_classes=classes, qkv_bias=False) == expected

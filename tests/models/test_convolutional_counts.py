"""Parameters of the zoo's CNNs, against counts taken from the code of Park and Kim (2022).

Those for images of 32x32 have 100 classes, those for 224x224 have 1000.
"""

import pytest
import torch

from visprism.models import MODELS

COUNTS = {
    "preact_resnet18": (11_218_340, 11_687_720),
    "preact_resnet34": (21_326_500, 21_795_880),
    "preact_resnet50": (23_697_572, 25_549_352),
    "preact_resnet101": (42_689_700, 44_541_480),
    "preact_resnet152": (58_333_348, 60_185_128),
}
WITH_ONE_TABLE = {  # of relative positions, for all heads of a block
    "alter_resnet18": (9_499_063, 9_968_803),
    "alter_resnet34": (22_362_954, 22_833_054),
    "alter_resnet50": (34_062_538, 35_915_038),
    "alter_resnet101": (53_054_666, 54_907_166),
    "alter_resnet152": (68_698_314, 70_550_814),
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

"""Laws of layouts on published networks: grids follow the images, feature maps are timm's."""

import pytest
import timm
import torch

from visprism import dissect, watch


@pytest.mark.parametrize(
    ("name", "options", "sides", "grids"),
    [
        ("resnet18", {}, (64, 96), [(16, 24), (8, 12), (4, 6), (2, 3)]),
        ("pit_ti_224", {"img_size": (96, 64)}, (96, 64), [(11, 7), (6, 4), (3, 2)]),
        (  # windows that do not divide the grid
            "swin_tiny_patch4_window7_224",
            {"img_size": (56, 72), "window_size": 4, "embed_dim": 24, "depths": (2, 2, 2, 2)},
            (56, 72),
            [(14, 18), (7, 9), (4, 5), (2, 3)],
        ),
    ],
)
def test_oblong_images_have_oblong_grids(name, options, sides, grids):
    anatomy = dissect(timm.create_model(name, **options).eval(), torch.zeros(1, 3, *sides))
    by_stage = {b.stage: b.layout.grid for b in anatomy[1:-1]}
    assert list(by_stage.values()) == grids
    assert all(b.layout.grid == by_stage[b.stage] for b in anatomy[1:-1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", ["resnet18", "swin_tiny", "hiera_tiny", "mobilevit_xxs"])
def test_the_device_does_not_matter(dissected, name):
    wanted = dissected(name)
    images = torch.zeros(2, 3, *wanted.graph.nodes[0].shape[2:], device="cuda")
    try:
        assert list(dissect(wanted.model.cuda(), images)) == list(wanted)
    finally:
        wanted.model.cpu()


def timm_features(anatomy, side):
    """All feature maps that timm itself gives, and ours of the same images."""
    images = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    with watch(anatomy) as maps, torch.no_grad():
        _, features = anatomy.model.forward_intermediates(images)
    return features, maps


@pytest.mark.parametrize(
    ("name", "side"), [("resnet18", 64), ("swin_tiny", 224), ("hiera_tiny", 224)]
)
def test_the_last_blocks_of_the_stages_are_the_features_of_timm(dissected, name, side):
    anatomy = dissected(name)
    features, maps = timm_features(anatomy, side)
    last = {b.stage: maps[b.name] for b in anatomy[1:-1]}
    for ours, theirs in zip(last.values(), features[-len(last) :], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_every_mlp_gives_the_tokens_of_timm_on_their_grid(dissected):
    anatomy = dissected("vit_reg4")
    features, maps = timm_features(anatomy, 70)
    mlps = [maps[b.name] for b in anatomy if b.kind == "mlp"]
    for ours, theirs in zip(mlps, features, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)

"""Laws of the zoo's transformers and mixers (src/visprism/models: vit, deit, swin, ...)."""

import pytest
import torch
from small_models import SMALL, noise, seeded
from timm.models.deit import VisionTransformerDistilled
from timm.models.mlp_mixer import MlpMixer
from timm.models.pit import PoolingVisionTransformer
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer

import visprism as vp
from visprism.models.zoo.conv_vit import conv_vit
from visprism.models.zoo.mixer import mixer
from visprism.models.zoo.pit import pit
from visprism.models.zoo.swin import swin
from visprism.models.zoo.vit import deit, vit

FAMILIES = {
    "vit": lambda **k: vit(32, 2, **{"depth": 2, **SMALL, **k}),
    "deit": lambda **k: deit(32, 2, **{"depth": 2, **SMALL, **k}),
    "conv_vit": lambda **k: conv_vit(32, 2, **{"depth": 2, **SMALL, **k}),
    "swin": lambda **k: swin(32, (2, 1), (1, 2), **{"window": 4, **SMALL, **k}),
    "mixer": lambda **k: mixer(64, **{"depth": 2, **SMALL, **k}),
    "pit": lambda **k: pit(32, (1, 1), (1, 2), 2, **{**SMALL, **k}),
}


def test_deit_gives_both_logits_in_training_and_their_mean_in_evaluation():
    model = seeded(FAMILIES["deit"])
    images = noise(2, 3, 16, 16)
    of_class, of_teacher = model.train()(images)
    assert not torch.allclose(of_class, of_teacher)
    torch.testing.assert_close(model.eval()(images), (of_class + of_teacher) / 2)


@pytest.mark.parametrize(
    ("family", "counts"),
    [
        ("mixer", {"token-mixing": 2, "mlp": 2}),
        ("pit", {"attention": 2, "mlp": 2, "downsample": 1}),
    ],
)
def test_dissect_finds_its_blocks(family, counts):
    images = noise(4, 3, 16, 16)
    anatomy = vp.dissect(seeded(FAMILIES[family]), images)
    kinds = [block.kind for block in anatomy]
    assert {kind: kinds.count(kind) for kind in counts} == counts
    assert kinds[0] == "stem"
    assert kinds[-1] == "head"
    assert len(kinds) == sum(counts.values()) + 2


@pytest.mark.parametrize("head", ["token", "gap"])
def test_every_head_gives_logits_that_depend_on_the_image(head):
    logits = seeded(lambda: FAMILIES["vit"](head=head))(noise(2, 3, 16, 16))
    assert logits.shape == (2, 5)
    assert not torch.allclose(logits[0], logits[1], rtol=1e-4)


@pytest.mark.parametrize("family", ["vit", "swin", "mixer", "pit"])
def test_monte_carlo_dropout_gives_another_answer_each_time(family):
    model = seeded(lambda: FAMILIES[family](mc_dropout=0.2))
    batches = [(noise(2, 3, 16, 16), torch.tensor([0, 1]))]
    first, second = (
        vp.predict(vp.MonteCarloDropout(model, 1, seed=seed), batches).logits for seed in (0, 1)
    )
    assert not torch.allclose(first, second)


def test_stochastic_depth_grows_with_depth():
    for family in ("vit", "deit", "conv_vit"):
        blocks = FAMILIES[family](depth=3, drop_path_rate=0.2).blocks
        rates = [getattr(block.drop_path1, "drop_prob", 0.0) for block in blocks]
        assert rates == pytest.approx([0, 0.1, 0.2])
    stages = FAMILIES["swin"](drop_path_rate=0.2).layers
    rates = [getattr(b.drop_path1, "drop_prob", 0.0) for s in stages for b in s.blocks]
    assert rates == pytest.approx([0, 0.1, 0.2])


@pytest.mark.parametrize("family", ["vit", "deit", "conv_vit", "pit"])
def test_positions_are_interpolated_to_the_size_of_the_image(family):
    """Bicubic interpolation keeps a ramp inside, and the entries of tokens without a place."""
    model = seeded(FAMILIES[family])
    prefix = model.num_prefix_tokens if family in ("vit", "deit") else 0
    ramp = torch.arange(8.0).repeat(8, 1)[..., None].expand(8, 8, model.pos_embed.shape[-1])
    with torch.no_grad():
        if family == "pit":
            ramp = torch.arange(8.0).expand_as(model.pos_embed)
            model.pos_embed.copy_(ramp)
        else:
            model.pos_embed[:, prefix:] = ramp.flatten(0, 1)
    seen = []
    model.pos_drop.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    stem = next(m for m in model.modules() if isinstance(m, torch.nn.Conv2d))
    torch.nn.init.zeros_(stem.weight)
    torch.nn.init.zeros_(stem.bias)
    model(noise(1, 3, 32, 32))
    (positions,) = seen
    if family != "pit":
        positions = positions[:, prefix:].mT.unflatten(-1, (16, 16))
    expected = (torch.arange(16) + 0.5) / 2 - 0.5  # centers of the new places among the old
    torch.testing.assert_close(positions[0, 0, 5, 4:12], expected[4:12])


SHAPE = {"embed_dim": 32, "depth": 2, "num_heads": 2, **SMALL}
POOLED = {"class_token": False, "global_pool": "avg"}
TIMMS = [  # family, options, what has the same weights
    ("vit", {}, lambda: VisionTransformer(qkv_bias=False, **SHAPE)),
    ("vit", {"head": "gap", "qkv_bias": True}, lambda: VisionTransformer(**SHAPE, **POOLED)),
    (
        "conv_vit",
        {"kernel": None},
        lambda: VisionTransformer(qkv_bias=False, **SHAPE, **POOLED),
    ),
    ("deit", {}, lambda: VisionTransformerDistilled(**SHAPE)),
    (
        "pit",
        {"qkv_bias": True, "no_embed_class": True},
        lambda: PoolingVisionTransformer(
            base_dims=(32, 32), depth=(1, 1), heads=(1, 2), stride=2, **SMALL
        ),
    ),
    ("mixer", {}, lambda: MlpMixer(num_blocks=2, embed_dim=64, **SMALL)),
    (
        "swin",
        {},
        lambda: SwinTransformer(
            embed_dim=32, depths=(2, 1), num_heads=(1, 2), window_size=4, **SMALL
        ),
    ),
]


@pytest.mark.parametrize(("family", "options", "theirs"), TIMMS)
def test_the_logits_are_those_of_timm_for_the_same_weights(family, options, theirs):
    model, other = seeded(lambda: FAMILIES[family](**options)), seeded(theirs)
    model.load_state_dict(other.state_dict())
    images = noise(2, 3, 16, 16)
    torch.testing.assert_close(model(images), other(images), rtol=1e-5, atol=1e-5)

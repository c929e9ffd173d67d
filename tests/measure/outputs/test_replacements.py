"""Ablation by zero, by the mean and by another image (measure/outputs/replacements.py)."""

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from visprism import InputError, ablation, dissect
from visprism.anatomy import (
    block_ablations,
    block_parts,
    convolution_ablations,
    convolution_parts,
    convolutional_blocks,
    head_ablations,
    head_parts,
    inner_blocks,
    replaced_ablation,
)
from visprism.passes.tokens import token_roles

CLASSES, SIDE = 3, 16


class Residual(nn.Module):
    """A convolution that adds the same vector at every position, and one that does not."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 2, 2)
        self.constant, self.conv = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.head = nn.Linear(4, CLASSES)
        nn.init.zeros_(self.constant.weight)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.constant(x)
        x = x + self.conv(x).relu()
        return self.head(x.mean((2, 3)))


def made(build, **options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build(**options).eval()
        for parameter in model.parameters():
            if parameter.any():
                nn.init.normal_(parameter, std=0.3)
        images = torch.randn(12, 3, SIDE, SIDE)
    return dissect(model.double(), images.double()), images.double()


@pytest.fixture
def residual():
    return made(Residual)


def vit(**options):
    return VisionTransformer(
        img_size=SIDE, patch_size=8, embed_dim=12, depth=2, num_heads=3, reg_tokens=2,
        num_classes=CLASSES, **options,
    )  # fmt: skip


@pytest.fixture(scope="module", params=[True, False], ids=["fused", "explicit"])
def transformer(request):
    anatomy, images = made(vit)
    for block in anatomy.model.blocks:
        block.attn.fused_attn = request.param
    return dissect(anatomy.model, images), images


def labeled(images, size=12):
    targets = torch.arange(len(images)) % CLASSES
    return list(zip(images.split(size), targets.split(size), strict=True))


def mean_nll(logits):
    return nn.functional.cross_entropy(logits, torch.arange(len(logits)) % CLASSES).item()


# Closed forms.


def test_a_constant_is_its_own_mean_and_that_of_every_image(residual):
    anatomy, images = residual
    rises = {}
    for replacement in ("zero", "mean", "shuffle"):
        rows, *_ = ablation(anatomy, labeled(images), parts=["blocks"], replacement=replacement)
        rises[replacement] = dict(zip(rows.block.tolist(), rows.nll_rise, strict=True))
    assert abs(rises["zero"]["constant"]) > 1e-3
    assert rises["mean"]["constant"] == pytest.approx(0, abs=1e-6)
    assert rises["shuffle"]["constant"] == pytest.approx(0, abs=1e-6)
    assert min(abs(r["conv"]) for r in rises.values()) > 1e-4


def test_equal_images_have_each_others_activations(residual, transformer):
    for anatomy, images in (residual, transformer):
        same = images[:1].expand(6, -1, -1, -1)
        rows, *_ = ablation(
            anatomy, labeled(same, 3), replacement="shuffle",
            parts=["blocks", "channels", "tokens"] if anatomy is transformer[0] else ["blocks"],
            roles=token_roles(anatomy),
        )  # fmt: skip
        assert rows.nll_rise == pytest.approx(0, abs=1e-6)


def test_the_mean_is_over_all_images_however_they_are_batched(transformer):
    anatomy, images = transformer
    options = {
        "parts": ["blocks", "heads", "channels", "tokens"],
        "replacement": "mean",
        "roles": token_roles(anatomy),
    }
    one, *_ = ablation(anatomy, labeled(images, 12), **options)
    cut, *_ = ablation(anatomy, labeled(images, 5), **options)
    assert one.ablated.tolist() == cut.ablated.tolist()
    assert cut.nll == pytest.approx(one.nll, rel=1e-6)
    assert (abs(one.nll_rise) > 1e-7).any()


# Against other implementations.


@torch.no_grad()
def test_zero_is_the_identity_of_blocks_and_silence_of_heads(residual, transformer):
    for anatomy, images in (residual, transformer):
        for parts, ablations in (
            (block_parts(inner_blocks(anatomy), anatomy), block_ablations(anatomy)),
            (
                convolution_parts(convolutional_blocks(anatomy), anatomy),
                convolution_ablations(anatomy),
            ),
            (head_parts(anatomy.blocks, anatomy), head_ablations(anatomy)),
        ):
            assert len(parts[0]) == len(ablations[0])
            for part, expected in zip(parts[0], ablations[0], strict=True):
                silent = replaced_ablation(part, torch.zeros_like)
                assert silent.ablated == expected.ablated
                torch.testing.assert_close(
                    silent.full_pass(anatomy, images), expected.full_pass(anatomy, images)
                )


@torch.no_grad()
@pytest.mark.parametrize("replacement", ["zero", "mean", "shuffle"])
def test_tokens_are_those_that_a_hook_replaces(transformer, replacement):
    anatomy, images = transformer
    rows, *_ = ablation(
        anatomy, labeled(images), parts=["tokens"], replacement=replacement,
        roles=token_roles(anatomy),
    )  # fmt: skip
    assert set(rows.ablated.tolist()) == {"class tokens", "registers"}
    for name, tokens in (("class tokens", slice(0, 1)), ("registers", slice(1, 3))):

        def replace(_module, _inputs, x, tokens=tokens):
            x = x.clone()
            values = x[:, tokens]
            x[:, tokens] = {
                "zero": 0 * values,
                "mean": values.mean(0, keepdim=True).expand_as(values),
                "shuffle": values[[-1, *range(len(values) - 1)]],
            }[replacement]
            return x

        hook = anatomy.model.blocks[0].register_forward_hook(replace)
        expected = mean_nll(anatomy.model(images))
        hook.remove()
        row = (rows.block == "blocks.0.mlp") & (rows.ablated == name)
        assert rows.nll[row].item() == pytest.approx(expected, rel=1e-6)
    last = (rows.block == "blocks.1.mlp") & (rows.ablated == "registers")
    assert rows.nll_rise[last].item() == pytest.approx(0, abs=1e-6)  # nothing reads them


@torch.no_grad()
def test_the_mean_of_a_head_is_that_of_the_columns_of_the_projection(transformer):
    anatomy, images = transformer
    rows, *_ = ablation(anatomy, labeled(images), parts=["heads"], replacement="mean")
    prefix = anatomy.model.num_prefix_tokens
    for head in range(3):
        columns = slice(4 * head, 4 * head + 4)

        def replace(_module, inputs, columns=columns):
            (x,) = inputs
            x = x.clone()
            x[:, :prefix, columns] = x[:, :prefix, columns].mean(0, keepdim=True)
            x[:, prefix:, columns] = x[:, prefix:, columns].mean((0, 1), keepdim=True)
            return (x,)

        hook = anatomy.model.blocks[1].attn.proj.register_forward_pre_hook(replace)
        expected = mean_nll(anatomy.model(images))
        hook.remove()
        row = (rows.block == "blocks.1.attn") & (rows.ablated == f"head {head + 1}")
        assert rows.nll[row].item() == pytest.approx(expected, rel=1e-6)


@torch.no_grad()
def test_a_channel_is_that_of_the_output_of_the_block(residual):
    anatomy, images = residual
    rows, *_ = ablation(anatomy, labeled(images), parts=["channels"], num_channels=9)
    assert rows.ablated.tolist() == [f"channel {c}" for c in range(4)] * 2
    model = anatomy.model
    x = model.stem(images)
    x = x + model.constant(x)
    for channel in range(4):
        y = x.clone()
        y[:, channel] = 0
        y = y + model.conv(y).relu()
        assert rows.nll[channel] == pytest.approx(mean_nll(model.head(y.mean((2, 3)))))


def test_each_image_has_the_activations_of_the_image_before_it(residual):
    anatomy, images = residual
    rows, *_ = ablation(
        anatomy, labeled(images), parts=["blocks"], replacement="shuffle", joint=[2], draws=1
    )
    model = anatomy.model
    with torch.no_grad():
        x = model.stem(images)
        x = x + model.constant(x)
        x = x + model.conv(x).relu().roll(1, 0)
        expected = mean_nll(model.head(x.mean((2, 3))))
    assert rows.nll[rows.block == "conv"].item() == pytest.approx(expected)
    assert rows.nll[rows.block == "constant+conv"].item() == pytest.approx(expected)


# Sentences, contracts and errors.


def test_the_sentence_names_the_replacement(residual):
    anatomy, images = residual
    for replacement, text in (
        ("zero", "one whole block replaced by the identity: "),
        ("mean", "one whole block replaced by the mean over images: "),
        ("shuffle", "one whole block replaced by the value for another image: "),
    ):
        rows, kinds, per_image = ablation(
            anatomy, labeled(images), parts=["blocks"], replacement=replacement
        )
        assert rows.findings()[0].text.startswith(text)
        assert kinds.findings()[0].text.startswith(text.replace(": ", ", "))
        assert text.removesuffix(": ") in per_image.quantities[0]
        assert rows.replacement == kinds.replacement == replacement


def test_the_model_is_given_back(transformer):
    anatomy, images = transformer
    before = anatomy.model(images)
    ablation(
        anatomy, labeled(images), parts=["heads", "tokens", "channels"], replacement="mean",
        roles=token_roles(anatomy),
    )  # fmt: skip
    assert torch.equal(anatomy.model(images), before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in anatomy.model.modules())


def test_what_cannot_be_replaced_is_refused(residual):
    anatomy, images = residual
    with pytest.raises(
        InputError, match="replacement must be one of zero, mean, shuffle, got 'noise'"
    ):
        ablation(anatomy, labeled(images), replacement="noise")
    with pytest.raises(InputError, match="batches must hold at least two images where"):
        ablation(anatomy, labeled(images, 11), replacement="shuffle")
    with pytest.raises(InputError, match="got none: Residual has no class tokens or registers"):
        ablation(anatomy, labeled(images), parts=["tokens"], roles=token_roles(anatomy))

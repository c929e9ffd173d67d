"""Ablation: accuracy and NLL without one part, against models changed by hand."""

import numpy as np
import pytest
import timm
import torch
from maps import small_vit
from results_by_hand.base import complete
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from unusual_modules import built

import visprism as vp
from visprism.anatomy.run.ablations import (
    block_ablations,
    combine_ablations,
    convolutional_blocks,
    replaced_ablation,
)
from visprism.anatomy.run.cached_forward import cache_cuts, can_start_at
from visprism.anatomy.run.replaced_parts import convolution_parts, head_parts
from visprism.estimates.estimated import mean
from visprism.kit.inputs import subject_of
from visprism.results import Ablations


def ablation(anatomy, data, **options):
    return vp.Ablation(**options)(anatomy, data)


MODELS = {
    "resnet": ("resnet26", {"layers": (1, 2, 1, 1), "channels": (8, 8, 16, 16)}),
    "swin": (
        "swin_tiny_patch4_window7_224",
        {"img_size": 16, "window_size": 4, "depths": (1, 2), "num_heads": (2, 4),
         "embed_dim": 24, "patch_size": 2},
    ),
}  # fmt: skip


def network(name):
    """A tiny model of timm's, with no parameter left at the 0 or 1 that it begins with."""
    generator = torch.Generator().manual_seed(0)
    kind, options = MODELS[name]
    model = timm.create_model(kind, num_classes=5, **options).eval()
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data.add_(0.1 * noise / max(1, parameter[0].numel()) ** 0.5)
    side = options.get("img_size", 32)
    images = torch.randn(6, 3, side, side, generator=generator)
    return vp.dissect(model, images), images


@pytest.fixture(scope="module", params=MODELS)
def anatomy_and_images(request):
    with torch.no_grad():
        return network(request.param)


class Line(nn.Module):
    """Residual blocks in a row, the second of which adds the same vector at every position."""

    def __init__(self, depth=3):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(depth))
        self.head = nn.Linear(4, 3)
        nn.init.zeros_(self.convs[1].weight)

    def forward(self, x):
        x = self.stem(x)
        for conv in self.convs:
            x = x + conv(x).relu()
        return self.head(x.mean((2, 3)))


def made(build):
    """A model with random weights, and 20 images: two batches of the analysis."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build().eval()
        for parameter in model.parameters():
            if parameter.any():
                nn.init.normal_(parameter, std=0.3)
        images = torch.randn(20, 3, 16, 16)
    return vp.dissect(model, images), images


def labeled(images, classes=3):
    return [(images, torch.arange(len(images)) % classes)]


def mean_nll(logits, classes=3):
    return functional.cross_entropy(logits, torch.arange(len(logits)) % classes).item()


def silenced(parts):
    return [replaced_ablation(part, torch.zeros_like) for part in parts[0]]


@torch.no_grad()
def test_resuming_gives_what_the_whole_model_gives(anatomy_and_images):
    anatomy, images = anatomy_and_images
    blocks = block_ablations(anatomy)
    removals = [
        *silenced(convolution_parts(convolutional_blocks(anatomy), anatomy)),
        *blocks,
        *silenced(head_parts(anatomy.blocks, anatomy)),
        combine_ablations(blocks[::2]),
        combine_ablations(blocks[-2:]),
    ]
    cuts = [r.cut for r in removals]
    assert can_start_at(anatomy, images[:2], cuts) == set(cuts)
    recording = cache_cuts(anatomy, images, cuts)
    for removal in removals:
        full = removal.full_pass(anatomy, images)
        assert (full - recording.logits).abs().max() > 1e-4  # the ablation has an effect
        again = removal.from_cut(anatomy, images, recording)
        torch.testing.assert_close(again, full, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_study_is_that_of_ablations_one_by_one(anatomy_and_images):
    anatomy, images = anatomy_and_images
    result = ablation(anatomy, labeled(images, classes=5), parts=("blocks",))
    targets = torch.arange(6) % 5
    losses = functional.cross_entropy(anatomy.model(images), targets, reduction="none").double()
    assert result.partial.all()
    assert result.baseline_nll == pytest.approx(losses.mean().item(), abs=1e-5)
    for row, name in enumerate(result.block.tolist()):
        with vp.ablate(anatomy, anatomy[name]):
            logits = anatomy.model(images)
        rises = functional.cross_entropy(logits, targets, reduction="none").double() - losses
        right = (logits.argmax(1) == targets).double()
        assert result.accuracy[row] == pytest.approx(right.mean().item())
        assert result.nll_rise[row] == pytest.approx(rises.mean().item(), abs=1e-5)
        half = 2.5706 * rises.std().item() / 6**0.5  # Student's t for 5 degrees of freedom
        end = pytest.approx(result.nll_rise[row] + half, abs=1e-4, rel=1e-3)
        assert result.nll_rise.high[row] == end


@torch.no_grad()
def test_of_a_bottleneck_its_convolution_goes():
    anatomy, images = network("resnet")
    convolutions = silenced(convolution_parts(convolutional_blocks(anatomy), anatomy))
    removal = next(r for r in convolutions if r.blocks[0].name == "layer2.1")
    ablated = removal.full_pass(anatomy, images)
    block = anatomy.model.layer2[1]
    convolution, block.conv2 = block.conv2, nn.Identity()
    expected = anatomy.model(images)
    block.conv2 = convolution
    torch.testing.assert_close(ablated, expected)


class Counting(Line):
    """Goes by how much it has seen on its way, which no cut holds."""

    def forward(self, x):
        x = self.stem(x)
        seen = float(x.detach().abs().sum())
        for conv in self.convs:
            x = x + conv(x).relu()
        return self.head(x.mean((2, 3))) * (1 + seen)


@torch.no_grad()
def test_a_model_that_does_not_resume_runs_as_a_whole():
    images = torch.randn(6, 3, 8, 8)
    anatomy = vp.dissect(Counting().eval(), images)
    result = ablation(anatomy, labeled(images), parts=("blocks",))
    assert not result.partial[1:].any()  # nothing is counted before the first block
    for row, name in enumerate(result.block.tolist()):
        with vp.ablate(anatomy, anatomy[name]):
            assert result.nll[row] == pytest.approx(mean_nll(anatomy.model(images)), rel=1e-5)


def test_the_cost_is_that_of_the_blocks_that_run():
    images = torch.randn(8, 3, 8, 8)
    anatomy = vp.dissect(Line(6).eval(), images[:1])
    with FlopCounterMode(display=False) as all_passes:
        ablation(anatomy, labeled(images), parts=("blocks",))
    with FlopCounterMode(display=False) as one_pass, torch.no_grad():
        anatomy.model(images)
    passes = all_passes.get_total_flops() / one_pass.get_total_flops()
    cost = vp.Ablation(parts=("blocks",)).cost(subject_of(anatomy, labeled(images)))
    assert cost.per_image == pytest.approx(passes, rel=0.25)


@pytest.fixture(scope="module", params=[True, False], ids=["fused", "explicit"])
def transformer(request):
    def build():
        model = small_vit(img_size=16, num_heads=3, reg_tokens=2, num_classes=3)
        for block in model.blocks:
            block.attn.fused_attn = request.param
        return model

    return made(build)


def test_a_constant_is_its_own_mean_and_that_of_every_image():
    anatomy, images = made(Line)
    rises = {}
    for replacement in ("zero", "mean", "shuffle"):
        rows = ablation(anatomy, labeled(images), parts=("blocks",), replacement=replacement)
        rises[replacement] = rows.nll_rise.tolist()
        assert rows.replacement == rows.by_kind().replacement == replacement
    other, constant, _ = zip(*rises.values(), strict=True)
    assert abs(constant[0]) > 1e-3
    assert constant[1:] == pytest.approx((0, 0), abs=1e-5)
    assert min(map(abs, other)) > 1e-4


@torch.no_grad()
@pytest.mark.parametrize("replacement", ["zero", "mean", "shuffle"])
def test_tokens_are_those_that_a_hook_replaces(transformer, replacement):
    anatomy, images = transformer
    images = images[:12]  # one batch
    rows = ablation(anatomy, labeled(images), parts=("tokens",), replacement=replacement)
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
        assert rows.nll[row].item() == pytest.approx(expected, rel=1e-5)
    last = (rows.block == "blocks.1.mlp") & (rows.ablated == "registers")
    assert rows.nll_rise[last].item() == pytest.approx(0, abs=1e-6)  # nothing reads them


@torch.no_grad()
@pytest.mark.parametrize("replacement", ["zero", "mean"])
def test_a_head_is_the_columns_of_the_projection(transformer, replacement):
    anatomy, images = transformer
    rows = ablation(anatomy, labeled(images), parts=("heads",), replacement=replacement)
    prefix = anatomy.model.num_prefix_tokens
    for head in range(3):
        columns = slice(4 * head, 4 * head + 4)

        def replace(_module, inputs, columns=columns):
            x = inputs[0].clone()
            if replacement == "zero":
                x[..., columns] = 0
                return (x,)
            x[:, :prefix, columns] = x[:, :prefix, columns].mean(0, keepdim=True)
            x[:, prefix:, columns] = x[:, prefix:, columns].mean((0, 1), keepdim=True)
            return (x,)

        hook = anatomy.model.blocks[1].attn.proj.register_forward_pre_hook(replace)
        expected = mean_nll(anatomy.model(images))
        hook.remove()
        row = (rows.block == "blocks.1.attn") & (rows.ablated == f"head {head + 1}")
        assert rows.nll[row].item() == pytest.approx(expected, rel=1e-5)


def ablations(kinds, drops, *, stages=None, part="block", images=4):
    """Results of which only kinds, stages and the drops of each image count."""
    drops, n = np.array(drops, dtype=float), len(kinds)
    return complete(
        Ablations,
        block=np.array([f"b{i}" for i in range(n)]),
        kind=np.array(kinds),
        stage=np.array(stages or [1] * n),
        depth=np.linspace(0, 1, n),
        ablated=np.array([part] * n if isinstance(part, str) else part),
        accuracy=0.9 - drops.mean(0),
        drop=mean(drops),
        baseline_accuracy=0.9,
        provenance=vp.Provenance(images=images, split="test"),
    )


def test_means_and_differences_by_hand():
    kinds = ablations(
        ["attention", "mlp", "attention", "mlp"],
        [[1, 0, 1, 0], [0, 0, 1, 0], [0, -1, 1, 0], [0, 0, 0, 1]],
    ).by_kind()
    assert kinds.comparison.tolist() == [
        "attention", "mlp", "attention minus mlp", "attention, late minus early",
        "mlp, late minus early",
    ]  # fmt: skip
    assert kinds.drop.tolist() == [0.5, 0.0, 0.5, 0.5, 0.5]
    assert kinds.num_blocks.tolist() == [2, 2, 4, 2, 2]
    assert kinds.answers()[2].by_unit.tolist() == [1.0, 0.5, 1.0, -0.5]


def test_a_block_and_a_convolution_are_never_averaged_together():
    rows = ablations(
        ["conv", "conv", "attention"], [[0, 1, 0]] * 4, part=["block", "convolution", "block"]
    )
    kinds = rows.by_kind()
    names = zip(kinds.ablated.tolist(), kinds.comparison.tolist(), strict=True)
    assert dict(zip(names, kinds.drop.tolist(), strict=True)) == {
        ("block", "conv"): 0.0,
        ("block", "attention"): 0.0,
        ("block", "conv minus attention"): 0.0,
        ("convolution", "conv"): 1.0,
    }
    # Each experiment has its own maximum.
    assert [(a.value, a.subject) for a in rows.answers()] == [(0, "b0"), (1, "b1, convolution")]


def test_early_and_late_are_halves_of_each_stage():
    stages = [1, 1, 1, 2, 2, 3]
    kinds = ablations(["conv"] * 6, [[0, 9, 1, 0, 3, 9]] * 4, stages=stages).by_kind()
    at = kinds.comparison.tolist().index("conv, late minus early")
    assert kinds.drop[at] == 2.0  # (1 + 3) / 2 - 0: the middle and the single one in none
    assert kinds.num_blocks[at] == 4
    names = [f"conv, late minus early, stage {stage}" for stage in (1, 2)]
    assert kinds.comparison[at + 1 :].tolist() == names
    assert kinds.drop[at + 1 :].tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    ("kind", "stages", "reading"),
    [
        ("conv", (-1, -1), "early blocks cost more"),
        ("conv", (1, -3), "undecided (stages disagree)"),
        ("attention", (1, 1), "late blocks cost more"),
    ],
)
def test_late_and_early_blocks_are_read_where_stages_agree(kind, stages, reading):
    drops = np.zeros((60, 4))
    drops[:, [1, 3]] = np.random.default_rng(0).normal(stages, 0.5, size=(60, 2))
    kinds = ablations([kind] * 4, drops, stages=[1, 1, 2, 2], images=60).by_kind()
    answers = {a.subject: a for a in kinds.answers()}
    assert answers[f"{kind}, late minus early"].reading == reading


def test_heads_within_one_operation_are_refused():
    images = torch.randn(4, 3, 16, 16)
    anatomy = vp.dissect(built("attention"), images)  # of torch's own module
    result = ablation(anatomy, labeled(images), parts=("blocks", "heads"))
    assert "must expose its heads" in result.not_ablated
    assert set(result.ablated) == {"block"}

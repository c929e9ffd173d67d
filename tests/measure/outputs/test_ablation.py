"""Ablation: accuracy and NLL without one part (measure/outputs, anatomy/run)."""

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional

from visprism import InputError, Result, Run, ablate, ablation, attentions, dissect, forward
from visprism.anatomy import (
    ablate_head,
    ablation_cuts,
    block_ablations,
    cache_cuts,
    can_start_at,
    combine_ablations,
    convolution_ablations,
    forward_from_cut,
    head_ablations,
)
from visprism.results.ablation import Ablations

MODELS = {
    "resnet": ("resnet26", {"layers": (1, 2, 1, 1)}, 32),
    "vit": ("vit_tiny_patch16_224", {"img_size": 32, "patch_size": 8, "depth": 3}, 32),
    "swin": (
        "swin_tiny_patch4_window7_224",
        {"img_size": 32, "window_size": 4, "depths": (2, 2), "num_heads": (2, 4),
         "embed_dim": 24, "patch_size": 2},
        32,
    ),
    "convnext": ("convnext_atto", {"depths": (1, 1, 2, 1), "dims": (8, 16, 24, 32)}, 64),
    "mixer": ("mixer_s32_224", {"img_size": 64}, 64),
}  # fmt: skip


def network(name):
    """A tiny model of timm's, with no parameter left at the 0 or 1 that it begins with."""
    generator = torch.Generator().manual_seed(0)
    kind, options, size = MODELS[name]
    model = timm.create_model(kind, num_classes=5, **options).eval()
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data.add_(0.1 * noise / max(1, parameter[0].numel()) ** 0.5)
    images = torch.randn(6, 3, size, size, generator=generator)
    return dissect(model, images), images


@pytest.fixture(scope="module", params=MODELS)
def anatomy_and_images(request):
    with torch.no_grad():
        return network(request.param)


@pytest.fixture(scope="module")
def vit():
    with torch.no_grad():
        return network("vit")


class Line(nn.Module):
    """Three blocks in a row that add to what comes in; the second adds nothing."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
        self.head = nn.Linear(4, 3)
        nn.init.zeros_(self.convs[1].weight)
        nn.init.zeros_(self.convs[1].bias)

    def forward(self, x):
        x = self.stem(x)
        for conv in self.convs:
            x = x + conv(x).relu()
        return self.head(x.mean((2, 3)))


@pytest.fixture
def line():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Line().eval()
        images = torch.randn(12, 3, 8, 8)
    return dissect(model, images), images


def labeled_batches(images, size=3, classes=5):
    targets = torch.arange(len(images)) % classes
    return list(zip(images.split(size), targets.split(size), strict=True))


# What leaves it unchanged.


def test_a_block_that_is_the_identity_can_go_without_any_change(line):
    anatomy, images = line
    result, *_ = ablation(anatomy, labeled_batches(images, classes=3), parts=["blocks"])
    at = result.block.tolist().index("convs.1")
    assert result.drop[at] == result.nll_rise[at] == result.nll_rise_error[at] == 0
    assert (result.nll_rise[[i for i in range(3) if i != at]] != 0).all()
    assert result.accuracy[at] == result.baseline_accuracy
    assert result.nll[at] == result.baseline_nll


@pytest.mark.parametrize("size", [12, 5, 1])
def test_however_the_data_is_cut_the_answer_is_the_same(line, size):
    anatomy, images = line
    one, *_ = ablation(anatomy, labeled_batches(images, 12, 3), joint=[2], draws=2)
    cut, *_ = ablation(anatomy, labeled_batches(images, size, 3), joint=[2], draws=2)
    for name in (
        "accuracy",
        "drop",
        "drop_low",
        "drop_high",
        "nll",
        "nll_rise",
        "nll_rise_error",
    ):
        assert getattr(one, name) == pytest.approx(getattr(cut, name), abs=1e-6)
    assert cut.provenance.images == 12


def test_the_model_is_given_back(anatomy_and_images):
    anatomy, images = anatomy_and_images
    with torch.no_grad():
        before = anatomy.model(images)
        ablation(anatomy, labeled_batches(images), parts=["blocks", "convolutions"])
        assert torch.equal(anatomy.model(images), before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in anatomy.model.modules())


# Against running the whole model.


@torch.no_grad()
def test_resuming_gives_what_the_whole_model_gives(anatomy_and_images):
    anatomy, images = anatomy_and_images
    convolutions, _ = convolution_ablations(anatomy)
    blocks, _ = block_ablations(anatomy)
    heads, _ = head_ablations(anatomy)
    removals = [
        *convolutions,
        *blocks,
        *heads,
        combine_ablations(blocks[::2]),
        combine_ablations(blocks[-2:]),
    ]
    cuts = [r.cut for r in removals]
    assert can_start_at(anatomy, images[:2], cuts) == set(cuts)
    recording = cache_cuts(anatomy, images, ablation_cuts(removals))
    for removal in removals:
        full = removal.full_pass(anatomy, images)
        assert (full - recording.logits).abs().max() > 1e-4  # the ablation has an effect
        again = removal.from_cut(anatomy, images, recording)
        torch.testing.assert_close(again, full, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_study_is_that_of_ablations_one_by_one(anatomy_and_images):
    anatomy, images = anatomy_and_images
    batches = labeled_batches(images)
    result, *_ = ablation(anatomy, batches, parts=["blocks"])
    targets = torch.cat([t for _, t in batches])
    losses = functional.cross_entropy(anatomy.model(images), targets, reduction="none").double()
    assert result.partial.all()
    assert result.baseline_nll == pytest.approx(losses.mean().item(), abs=1e-5)
    for row, name in enumerate(result.block.tolist()):
        with ablate(anatomy, anatomy[name]):
            logits = anatomy.model(images)
        rises = functional.cross_entropy(logits, targets, reduction="none").double() - losses
        right = (logits.argmax(1) == targets).double()
        assert result.accuracy[row] == pytest.approx(right.mean().item())
        assert result.nll_rise[row] == pytest.approx(rises.mean().item(), abs=1e-5)
        error = rises.std().item() / len(images) ** 0.5
        assert result.nll_rise_error[row] == pytest.approx(error, abs=1e-5)


@torch.no_grad()
def test_nothing_before_the_cut_is_computed(vit):
    anatomy, images = vit
    ran = []
    first, last = anatomy.model.blocks[0].mlp.fc1, anatomy.model.blocks[-1].mlp.fc1
    cut = anatomy["blocks.1.mlp"].end
    recording = cache_cuts(anatomy, images, [cut])
    weights = {id(first.weight): "first", id(last.weight): "last"}

    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is functional.linear:
                ran.append(weights.get(id(args[1])))
            return func(*args, **(kwargs or {}))

    with Seen(), forward_from_cut(anatomy, recording, cut):
        logits = forward(anatomy.model, images)
    assert "last" in ran
    assert "first" not in ran
    torch.testing.assert_close(logits, recording.logits)


@torch.no_grad()
def test_a_head_that_is_silent_is_one_whose_values_do_not_reach_the_output(vit):
    anatomy, images = vit
    attention, head = attentions(anatomy)[1], 2
    with ablate_head(anatomy, attention, head):
        silent = anatomy.model(images)
    module = anatomy.model.get_submodule(attention.block.name)
    weight = module.proj.weight.detach().clone()
    width = weight.shape[1] // attention.geometry.heads
    module.proj.weight[:, (head - 1) * width : head * width] = 0
    expected = anatomy.model(images)
    module.proj.weight.copy_(weight)
    torch.testing.assert_close(silent, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_of_a_bottleneck_its_convolution_goes():
    anatomy, images = network("resnet")
    convolutions, _ = convolution_ablations(anatomy)
    removal = next(r for r in convolutions if r.blocks[0].name == "layer2.1")
    assert removal.ablated == "convolution"
    ablated = removal.full_pass(anatomy, images)
    block = anatomy.model.layer2[1]
    convolution, block.conv2 = block.conv2, nn.Identity()
    expected = anatomy.model(images)
    block.conv2 = convolution
    torch.testing.assert_close(ablated, expected)


# Models that do not resume.


class Counting(nn.Module):
    """Goes by how much it has seen on its way, which no cut holds."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.stem(x)
        seen = float(x.detach().abs().sum())
        for conv in self.convs:
            x = x + conv(x).relu()
        return self.head(x.mean((2, 3))) * (1 + seen)


@torch.no_grad()
def test_a_model_that_does_not_resume_runs_as_a_whole_and_says_so():
    anatomy = dissect(Counting().eval(), torch.randn(2, 3, 8, 8))
    images = torch.randn(6, 3, 8, 8)
    result, *_ = ablation(anatomy, labeled_batches(images, 6, 3), parts=["blocks"])
    assert not result.partial.any()
    assert any("2 of 2 ablations ran the full model" in f.text for f in result.findings())
    targets = torch.arange(6) % 3
    for row, name in enumerate(result.block.tolist()):
        with ablate(anatomy, anatomy[name]):
            nll = functional.cross_entropy(anatomy.model(images), targets).item()
        assert result.nll[row] == pytest.approx(nll, rel=1e-5)


@torch.no_grad()
def test_within_other_surgery_the_whole_model_runs(line):
    anatomy, images = line
    batches = labeled_batches(images, classes=3)
    with ablate(anatomy, anatomy["convs.0"]):
        result, *_ = ablation(anatomy, batches, parts=["blocks"])
    assert not result.partial.any()
    joint, *_ = ablation(anatomy, batches, joint=[2], draws=30, parts=["blocks"])
    at = joint.block.tolist().index("convs.0+convs.2")
    assert result.nll[result.block == "convs.2"] == pytest.approx(joint.nll[at])


# Several at once.


def test_as_many_blocks_go_as_are_asked_for_and_the_seed_says_which(line):
    anatomy, images = line
    batches = labeled_batches(images, classes=3)
    result, *_ = ablation(anatomy, batches, joint=[1, 3], draws=4, run=Run(seed=3))
    several = result.select(result.ablated == "several")
    assert several.num_blocks.tolist() == [1] * 4 + [3] * 4
    assert [len(b.split("+")) for b in several.block.tolist()] == several.num_blocks.tolist()
    assert (several.block[4:] == "convs.0+convs.1+convs.2").all()
    again, *_ = ablation(anatomy, batches, joint=[1, 3], draws=4, run=Run(seed=3))
    assert again.block.tolist() == result.block.tolist()


def test_several_at_once_stand_beside_the_sum_of_each_alone(line):
    anatomy, images = line
    batches = labeled_batches(images, classes=3)
    study, *_ = ablation(anatomy, batches, joint=[1, 2], draws=5, run=Run(seed=3))
    joint = study.joint()
    assert joint.num_blocks.tolist() == [1, 2]
    assert joint.draws.tolist() == [5, 5]
    assert joint.drop[0] == joint.sum_of_drops[0]  # of one block they are the same
    assert joint.accuracy == pytest.approx(study.baseline_accuracy - joint.drop)
    alone = dict(
        zip(
            study.experiment("block").block.tolist(),
            study.experiment("block").drop.tolist(),
            strict=True,
        )
    )
    pairs = study.select(study.num_blocks == 2)
    sums = [sum(alone[name] for name in pair.split("+")) for pair in pairs.block.tolist()]
    assert joint.sum_of_drops[1] == pytest.approx(sum(sums) / 5)
    assert (joint.drop_min[1], joint.drop_max[1]) == (pairs.drop.min(), pairs.drop.max())
    assert joint.findings()[1].text.startswith("2 blocks removed together: mean accuracy drop")
    single, *_ = ablation(anatomy, batches)
    with pytest.raises(InputError, match=r"Pass joint=\(2, 4\) to ablation"):
        single.joint()


# Contracts and errors.


def test_a_study_is_saved_and_read(line, tmp_path):
    anatomy, images = line
    result, *_ = ablation(anatomy, labeled_batches(images, classes=3))
    result.save(tmp_path / "a.npz")
    read = Result.load(tmp_path / "a.npz")
    assert isinstance(read, Ablations)
    assert read.not_ablated == result.not_ablated
    assert read.findings() == result.findings()


def test_what_cannot_be_ablated_is_left_out_and_named():
    anatomy, images = network("convnext")
    result, *_ = ablation(anatomy, labeled_batches(images))
    assert "block 'stages.1.downsample' (downsample) must keep the shape" in result.not_ablated
    assert "stages.1.downsample" not in result.block.tolist()


def test_what_a_user_can_get_wrong(line, vit):
    anatomy, images = line
    batches = labeled_batches(images, classes=3)
    with pytest.raises(
        InputError,
        match="parts must be some of blocks, convolutions, heads, channels, tokens, got stages",
    ):
        ablation(anatomy, batches, parts=["stages"])
    with pytest.raises(
        InputError,
        match="joint must be between 1 and 3, the number of blocks that can be ablated, got 4",
    ):
        ablation(anatomy, batches, joint=[4])
    with pytest.raises(InputError, match="this measurement needs targets"):
        ablation(anatomy, [images])
    with pytest.raises(InputError, match="targets must be labels"):
        ablation(anatomy, [(images, torch.full((12,), -1))])
    with pytest.raises(InputError, match="at least one image, got none"):
        ablation(anatomy, [])
    with pytest.raises(InputError, match="Line must have a part that can be ablated"):
        ablation(anatomy, batches, parts=["heads"])
    silent = ablate_head(vit[0], attentions(vit[0])[0], 4)
    with (
        pytest.raises(
            InputError,
            match=r"between 1 and 3, the number of heads of blocks\.0\.attn, got 4",
        ),
        silent,
    ):
        pass
    anatomy.model.train()
    with pytest.raises(InputError, match=r"evaluation mode. Call model.eval\(\) first"):
        ablation(anatomy, batches)


def test_heads_within_one_operation_are_refused():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)

    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.attention = nn.Conv2d(3, 8, 4, 4), attention
            self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

        def forward(self, x):
            x = self.stem(x).flatten(2).mT
            y = self.norm(x)
            return self.head((x + self.attention(y, y, y, need_weights=False)[0]).mean(1))

    images = torch.randn(4, 3, 16, 16)
    anatomy = dissect(Attending().eval(), images)
    result, *_ = ablation(anatomy, labeled_batches(images, 4, 3), parts=["blocks", "heads"])
    assert "must expose its heads" in result.not_ablated
    assert result.ablated.tolist() == ["block"]

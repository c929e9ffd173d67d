"""Laws of surgery: what is seen is true, what is cut is cut, and no scar is left.

The networks are small and written by hand, so that a model with a part taken out can be written
by hand as well.
"""

import copy

import pytest
import timm
import torch
from torch import nn

from visprism.anatomy import dissect, lesion, replace, watch
from visprism.errors import InputError


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.branch = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.branch(x)


class InPlace(Residual):
    """Its sum overwrites the branch, its activation the sum."""

    def __init__(self, width):
        super().__init__(width)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.branch(x)
        y += x
        return self.act(y)


class OverTheStream(Residual):
    """Its sum overwrites what came in."""

    def forward(self, x):
        branch = self.branch(x)
        x += branch
        return x


class ByAssignment(Residual):
    """Its sum is written into a tensor that stands ready."""

    def forward(self, x):
        out = torch.zeros_like(x)
        out[:] = super().forward(x)
        return out


class Foreign(Residual):
    """What it does stays hidden from torch."""

    def forward(self, x):
        return torch.from_numpy(super().forward(x).detach().numpy().copy())


class ForeignPair(Foreign):
    def forward(self, x):
        return super().forward(x), "and something else"


class Thrice(nn.Module):
    """One module, called three times."""

    def __init__(self, width):
        super().__init__()
        self.block = Residual(width)

    def forward(self, x):
        for _ in range(3):
            x = self.block(x)
        return x


class Functional(nn.Module):
    """No module takes or gives the feature maps."""

    def __init__(self, width):
        super().__init__()
        self.weights = nn.ParameterList(
            torch.randn(width, width, 3, 3) / width for _ in range(2)
        )

    def forward(self, x):
        for weight in self.weights:
            x = x + nn.functional.conv2d(x, weight, padding=1).relu()
        return x


def network(*blocks):
    """Stem, blocks, classifier of the mean."""
    ends = nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    return nn.Sequential(ends[0], *blocks, *ends[1:])


def small_vit():
    return timm.models.VisionTransformer(
        img_size=16, patch_size=4, embed_dim=12, depth=3, num_heads=2, num_classes=5
    )


BUILDS = {
    "residual": lambda: network(Residual(4), Residual(4)),
    "in place": lambda: network(InPlace(4), InPlace(4)),
    "over the stream": lambda: network(OverTheStream(4), OverTheStream(4)),
    "by assignment": lambda: network(ByAssignment(4), ByAssignment(4)),
    "called thrice": lambda: network(Thrice(4)),
    "functional": lambda: network(Functional(4)),
    "vit": small_vit,
}


@pytest.fixture(params=BUILDS)
def anatomy(request, images):
    return built(request.param, images)


def built(name, images):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BUILDS[name]().eval()
    return dissect(model, images)


def lesionable(anatomy):
    return [b for b in anatomy if b.kind not in {"stem", "head"}]


def hooks(model):
    return [
        (len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks))
        for m in model.modules()
    ]


def maps_of(anatomy, images):
    with watch(anatomy) as maps, torch.no_grad():
        anatomy.model(images)
    return maps


def exactly(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


# What it shows: hand-made models.


def test_watch_sees_what_hooks_put_by_hand_see(images):
    anatomy = built("vit", images)
    model, by_hand = anatomy.model, {}

    def tokens_after(module):
        return module.register_forward_hook(lambda _m, _a, out: by_hand.update(out=out))

    maps = maps_of(anatomy, images)
    assert list(maps) == [b.name for b in anatomy[:-1]]
    for i, block in enumerate(model.blocks):
        handle = tokens_after(block)
        with torch.no_grad():
            model(images)
        handle.remove()
        grid = by_hand["out"][:, 1:].transpose(1, 2).reshape(2, 12, 4, 4)
        exactly(maps[f"blocks.{i}.mlp"], grid)
        assert model.blocks[i] is block


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_vit_without_one_attention_is_a_vit_without_it(images, index):
    anatomy = built("vit", images)

    class Nothing(nn.Module):
        def forward(self, x, **_):
            return torch.zeros_like(x)

    by_hand = copy.deepcopy(anatomy.model)
    by_hand.blocks[index].attn = Nothing()
    with lesion(anatomy, anatomy[f"blocks.{index}.attn"]):
        logits = anatomy.model(images)
    torch.testing.assert_close(logits, by_hand(images))


def test_a_resnet_without_one_block_is_a_resnet_without_it(dissected):
    anatomy = dissected("resnet18")
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    by_hand = copy.deepcopy(anatomy.model)
    by_hand.layer3[1] = nn.Identity()
    with lesion(anatomy, anatomy["layer3.1"]), torch.no_grad():
        logits = anatomy.model(images)
    with torch.no_grad():
        torch.testing.assert_close(logits, by_hand(images))


def test_a_lesioned_block_hands_on_the_feature_map_before_it(anatomy, images):
    names = [b.name for b in anatomy]
    for block in lesionable(anatomy):
        with lesion(anatomy, block):
            maps = maps_of(anatomy, images)
        exactly(maps[block.name], maps[names[names.index(block.name) - 1]])


def test_a_lesion_changes_the_logits_and_nothing_before_it(anatomy, images):
    names = [b.name for b in anatomy]
    whole, logits = maps_of(anatomy, images), anatomy.model(images)
    for block in lesionable(anatomy):
        with lesion(anatomy, block):
            cut = maps_of(anatomy, images)
            assert not torch.equal(anatomy.model(images), logits)
        for name in names[: names.index(block.name)]:
            exactly(cut[name], whole[name])


def test_a_replaced_block_computes_the_function(anatomy, images):
    names = [b.name for b in anatomy]
    for block in lesionable(anatomy):
        with replace(anatomy, block, lambda x: 2 * x + 1):
            maps = maps_of(anatomy, images)
        exactly(maps[block.name], 2 * maps[names[names.index(block.name) - 1]] + 1)


def test_a_block_replaced_by_itself_changes_nothing(images):
    anatomy = built("residual", images)
    before = anatomy.model(images)
    with replace(anatomy, anatomy["2"], lambda x: anatomy.model[2](x)):
        torch.testing.assert_close(anatomy.model(images), before)


def test_lesions_inside_each_other_cut_out_both(images):
    anatomy = built("vit", images)
    by_hand = copy.deepcopy(anatomy.model)
    by_hand.blocks = nn.Sequential(by_hand.blocks[0], by_hand.blocks[2])
    cut = [anatomy[f"blocks.1.{part}"] for part in ("attn", "mlp")]
    with lesion(anatomy, cut[0]), lesion(anatomy, cut[1]):
        logits = anatomy.model(images)
    torch.testing.assert_close(logits, by_hand(images))
    with lesion(anatomy, cut[1]), lesion(anatomy, cut[0]):
        torch.testing.assert_close(anatomy.model(images), logits)


@pytest.mark.parametrize("name", BUILDS)
def test_what_is_watched_from_outside_of_a_lesion_has_it(name, images):
    anatomy = built(name, images)
    block = lesionable(anatomy)[-1]
    with lesion(anatomy, block):
        inside = maps_of(anatomy, images)
    with watch(anatomy) as outside, torch.no_grad():
        anatomy.model(images)
        with lesion(anatomy, block):
            anatomy.model(images)
    exactly(dict(outside), dict(inside))


def test_a_block_hidden_from_torch_can_be_cut_out(images):
    class Unpack(nn.Module):
        def __init__(self):
            super().__init__()
            self.pair = ForeignPair(4)

        def forward(self, x):
            return self.pair(x)[0]

    model = network(Foreign(4), Unpack(), Residual(4)).eval()
    anatomy = dissect(model, images)
    stem, foreign, pair, residual, *head = model
    for name, by_hand in [
        ("1", nn.Sequential(stem, pair, residual, *head)),
        ("2", nn.Sequential(stem, foreign, residual, *head)),
    ]:
        block = next(b for b in anatomy if b.name.startswith(name))
        with lesion(anatomy, block):
            exactly(model(images), by_hand(images))


def test_each_call_of_a_shared_module_is_cut_alone(images):
    anatomy = built("called thrice", images)
    stem, thrice, *head = copy.deepcopy(anatomy.model)
    logits = []
    for block in lesionable(anatomy):
        with lesion(anatomy, block):
            logits.append(anatomy.model(images))
    assert len(logits) == 3
    twice = nn.Sequential(stem, thrice.block, thrice.block, *head)(images)
    for each in logits:
        torch.testing.assert_close(each, twice)


# What leaves it unchanged: no scar.

OPERATIONS = {
    "watch": lambda a: watch(a),
    "lesion": lambda a: lesion(a, lesionable(a)[0]),
    "replace": lambda a: replace(a, lesionable(a)[0], torch.zeros_like),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_leaves_no_scar_even_when_the_body_fails(anatomy, images, operation):
    model = anatomy.model
    before = copy.deepcopy(model.state_dict()), model(images), hooks(model)

    def run_and_fail():
        model(images)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), operation(anatomy):
        run_and_fail()
    assert hooks(model) == before[2]
    exactly(model.state_dict(), before[0])
    exactly(model(images), before[1])


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_leaves_no_scar_when_the_forward_pass_fails(anatomy, images, operation):
    model = anatomy.model
    before = model(images), hooks(model)
    with pytest.raises(Exception, match=r"input|size|height"), operation(anatomy):
        model(torch.zeros(2, 7, 16, 16))
    assert hooks(model) == before[1]
    exactly(model(images), before[0])


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_failed_pass_does_not_disturb_the_next_one(anatomy, images, operation):
    with operation(anatomy):
        wanted = anatomy.model(images)
        with pytest.raises(Exception, match=r"input|size|height"):
            anatomy.model(torch.zeros(2, 7, 16, 16))
        exactly(anatomy.model(images), wanted)


def test_watching_does_not_change_the_logits(anatomy, images):
    plain = anatomy.model(images)
    with watch(anatomy):
        exactly(anatomy.model(images), plain)


def test_dissecting_leaves_no_scar(images):
    anatomy = built("vit", images)
    assert hooks(anatomy.model) == [(0, 0, 0)] * len(hooks(anatomy.model))
    assert all(p.grad is None and p.requires_grad for p in anatomy.model.parameters())


def test_what_was_kept_is_safe_from_a_later_change_in_place(images):
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), OverTheStream(4), nn.Flatten(), nn.Linear(1024, 5)
    )
    anatomy = dissect(model.eval(), images)
    maps = maps_of(anatomy, images)
    exactly(maps["stem"], model[0](images))


def test_each_pass_takes_the_place_of_the_one_before(anatomy, images):
    other = images.flip(0)
    with watch(anatomy) as maps, torch.no_grad():
        anatomy.model(images)
        anatomy.model(other)
    exactly(dict(maps), dict(maps_of(anatomy, other)))


@pytest.mark.parametrize("size", [1, 5])
def test_the_batch_may_have_another_size_than_the_dissected_one(anatomy, images, size):
    more = torch.cat([images] * 3)[:size]
    maps = maps_of(anatomy, more)
    assert {len(m) for m in maps.values()} == {size}
    for block in lesionable(anatomy):
        with lesion(anatomy, block):
            cut = maps_of(anatomy, more)
        torch.testing.assert_close(cut[block.name][:1], cut_of_one(anatomy, block, images))


def cut_of_one(anatomy, block, images):
    with lesion(anatomy, block):
        return maps_of(anatomy, images[:1])[block.name]


# Modes: precision, gradients, inference.


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_works_in_reduced_precision(anatomy, images, operation):
    with torch.autocast("cpu", torch.bfloat16), operation(anatomy) as maps:
        logits = anatomy.model(images)
    assert logits.isfinite().all()
    if maps is not None:
        assert list(maps) == [b.name for b in anatomy if b.layout is not None]


def test_gradients_flow_through_a_lesion_and_past_its_block(images):
    anatomy = built("residual", images)
    with lesion(anatomy, anatomy["1"]):
        anatomy.model(images).sum().backward()
    kept, cut = anatomy.model[2].branch.weight.grad, anatomy.model[1].branch.weight.grad
    assert kept.abs().sum() > 0
    assert cut is None or cut.abs().sum() == 0


@pytest.mark.parametrize(
    "name", [n for n in BUILDS if n != "over the stream"]
)  # has none itself
def test_gradients_reach_the_image_while_watched(name, images):
    anatomy = built(name, images)
    images = images.clone().requires_grad_()
    with watch(anatomy) as maps:
        loss = anatomy.model(images).square().sum()
    (gradient,) = torch.autograd.grad(loss, images)
    assert gradient.abs().sum() > 0
    assert all(m.requires_grad for m in maps.values())


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_works_in_inference_mode(anatomy, images, operation):
    with operation(anatomy):
        plain = anatomy.model(images).detach()
        with torch.inference_mode():
            fast = anatomy.model(images)
    torch.testing.assert_close(fast.clone(), plain)


def test_surgery_on_a_compiled_model(images):
    anatomy = built("residual", images)
    with lesion(anatomy, anatomy["1"]):
        wanted = anatomy.model(images)
    compiled = dissect(torch.compile(anatomy.model, backend="eager"), images)
    with lesion(compiled, compiled["_orig_mod.1"]):
        exactly(compiled.model(images), wanted)


# Contracts and errors.


def test_watch_keeps_what_it_is_told_to_keep(anatomy, images):
    with watch(anatomy, lambda x: tuple(x.shape)) as shapes:
        anatomy.model(images)
    assert shapes == {b.name: (2, *b.shape) for b in anatomy if b.layout is not None}


def test_watch_sees_only_the_blocks_that_it_is_given(anatomy, images):
    with watch(anatomy, blocks=anatomy[1:2]) as maps:
        anatomy.model(images)
    assert list(maps) == [anatomy[1].name]


def test_a_block_that_changes_the_shape_cannot_be_lesioned(images):
    anatomy = built("residual", images)
    wanted = r"block 'stem' \(stem\) maps \(2, 3, 16, 16\) to \(2, 4, 16, 16\); only a block"
    with pytest.raises(InputError, match=wanted), lesion(anatomy, anatomy["stem"]):
        pass


def test_a_block_that_subsamples_cannot_be_lesioned(dissected):
    anatomy = dissected("swin_tiny")
    block = anatomy["layers.1.downsample"]
    wanted = (
        r"'layers\.1\.downsample' \(downsample\) maps \(2, 56, 56, 96\) to \(2, 28, 28, 192\)"
    )
    with pytest.raises(InputError, match=wanted), lesion(anatomy, block):
        pass


def test_a_replacement_of_another_shape_is_refused(anatomy, images):
    block = lesionable(anatomy)[0]
    wanted = rf"the replacement of block '{block.name}' gives .*; wanted .*, as the block gives"
    with (
        pytest.raises(InputError, match=wanted),
        replace(anatomy, block, lambda x: x[:, :1]),
    ):
        anatomy.model(images)
    assert anatomy.model(images).shape == (2, 5)


def test_a_pass_that_takes_another_way_is_refused():
    class TwoWays(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = network(Residual(4), Residual(4))

        def forward(self, x):
            return self.model(x.flip(-1).flip(-1) if x.shape[-1] == 16 else x)

    anatomy = dissect(TwoWays().eval(), torch.zeros(2, 3, 16, 16))
    wanted = "operation .* of this pass is .*, but was .* when the model was dissected"
    with (
        pytest.raises(InputError, match=wanted),
        lesion(anatomy, lesionable(anatomy)[0]),
    ):
        anatomy.model(torch.zeros(2, 3, 8, 8))


def test_an_unknown_block_is_named_with_those_that_there_are(images):
    wanted = r"no block is called '3'; the blocks are stem, 1, 2, head"
    with pytest.raises(InputError, match=wanted):
        built("residual", images)["3"]

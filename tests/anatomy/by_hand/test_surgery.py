"""Laws of surgery: what is seen is true, what is cut is cut, and the model is restored."""

import copy
import itertools

import pytest
import timm
import torch
from torch import nn

import visprism as vp
from visprism import InputError, ablate, dissect, replace, watch
from visprism.anatomy.run.replaced_parts import convolution_parts


def maps_of(anatomy, images):
    with watch(anatomy) as maps, torch.no_grad():
        anatomy.model(images)
    return maps


def exactly(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_a_vit_without_one_attention_is_a_vit_without_it(anatomy_of, images):
    anatomy = anatomy_of("vit")

    class Nothing(nn.Module):
        def forward(self, x, **_):
            return torch.zeros_like(x)

    by_hand = copy.deepcopy(anatomy.model)
    by_hand.blocks[1].attn = Nothing()
    with ablate(anatomy, anatomy["blocks.1.attn"]):
        logits = anatomy.model(images)
    torch.testing.assert_close(logits, by_hand(images))


@torch.no_grad()
def test_a_resnet_without_one_block_or_its_first_convolution_is_a_resnet_without_it():
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    model = timm.create_model("resnet18", channels=(8, 8, 16, 16), zero_init_last=False)
    anatomy = dissect(model.eval(), images)
    by_hand, block = copy.deepcopy(anatomy.model), anatomy["layer3.1"]
    ((part,), _) = convolution_parts([block], anatomy)
    by_hand.layer3[1].conv1 = nn.Identity()
    with part.surgery(torch.zeros_like):
        torch.testing.assert_close(anatomy.model(images), by_hand(images))
    by_hand.layer3[1] = nn.Identity()
    with ablate(anatomy, block):
        torch.testing.assert_close(anatomy.model(images), by_hand(images))


def test_a_lesioned_block_hands_on_the_feature_map_before_it(anatomy, images):
    names = [b.name for b in anatomy]
    maps, logits = maps_of(anatomy, images), anatomy.model(images)
    for i, block in enumerate(anatomy[1:-1], 1):
        with ablate(anatomy, block):
            cut = maps_of(anatomy, images)
            assert not torch.equal(anatomy.model(images), logits)
        for name in names[:i]:
            exactly(cut[name], maps[name])  # nothing before it changes
        exactly(cut[block.name], maps[names[i - 1]])


def test_a_replaced_block_computes_the_function(anatomy, images):
    for before, block in itertools.pairwise(anatomy[:-1]):
        with replace(anatomy, block, lambda x: 2 * x + 1):
            maps = maps_of(anatomy, images)
        exactly(maps[block.name], 2 * maps[before.name] + 1)


def test_lesions_inside_each_other_cut_out_both(anatomy_of, images):
    anatomy = anatomy_of("vit")
    by_hand = copy.deepcopy(anatomy.model)
    by_hand.blocks = nn.Sequential(by_hand.blocks[0], by_hand.blocks[2])
    cut = [anatomy[f"blocks.1.{part}"] for part in ("attn", "mlp")]
    with ablate(anatomy, cut[0]), ablate(anatomy, cut[1]):
        logits = anatomy.model(images)
    torch.testing.assert_close(logits, by_hand(images))
    with ablate(anatomy, cut[1]), ablate(anatomy, cut[0]):
        torch.testing.assert_close(anatomy.model(images), logits)


def test_what_is_watched_from_outside_of_a_lesion_has_it(anatomy, images):
    block = anatomy[-2]
    with ablate(anatomy, block):
        inside = maps_of(anatomy, images)
    with watch(anatomy) as outside, torch.no_grad():
        anatomy.model(images)
        with ablate(anatomy, block):
            anatomy.model(images)
    exactly(dict(outside), dict(inside))


class Foreign(nn.Module):
    """What it does stays hidden from torch; it may give more than a tensor."""

    def __init__(self, module, *more):
        super().__init__()
        self.module, self.more = module, more

    def forward(self, x):
        out = torch.from_numpy(self.module(x).detach().numpy().copy())
        return (out, *self.more) if self.more else out


class First(nn.Sequential):
    def forward(self, x):
        return super().forward(x)[0]


def test_a_block_hidden_from_torch_can_be_cut_out(images):
    stem, one, two = (nn.Conv2d(n, 4, 3, padding=1) for n in (3, 4, 4))
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    model = nn.Sequential(stem, Foreign(one), First(Foreign(two, "and more")), *head).eval()
    anatomy = dissect(model, images)
    for block, rest in zip(anatomy[1:-1], (two, one), strict=True):
        with ablate(anatomy, block):
            exactly(model(images), nn.Sequential(stem, rest, *head)(images))


def test_what_was_kept_is_safe_from_a_later_change_in_place(anatomy_of, images):
    anatomy = anatomy_of("over the stream")
    maps = maps_of(anatomy, images)
    exactly(maps["stem"], anatomy.model.stem(images))


def test_watch_sees_only_the_blocks_that_it_is_given(anatomy_of, images):
    anatomy = anatomy_of("functional")
    with watch(anatomy, blocks=anatomy[1:2]) as maps:
        anatomy.model(images)
    assert list(maps) == [anatomy[1].name]


def test_a_block_that_changes_the_shape_cannot_be_ablated(anatomy_of):
    anatomy = anatomy_of("functional")
    wanted = r"block 'stem' \(stem\) must keep the shape .*\(2, 3, 16, 16\) to \(2, 8, 16, 16\)"
    with pytest.raises(InputError, match=wanted), ablate(anatomy, anatomy["stem"]):
        pass


def test_a_replacement_of_another_shape_is_refused(anatomy_of, images):
    anatomy = anatomy_of("functional")
    block = anatomy[1]
    wanted = rf"output of function must have shape .*, as block '{block.name}' has, got"
    with pytest.raises(InputError, match=wanted), replace(anatomy, block, lambda x: x[:, :1]):
        anatomy.model(images)
    assert anatomy.model(images).shape == (2, 5)


def test_a_pass_that_takes_another_way_is_refused(anatomy_of):
    class TwoWays(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = anatomy_of("functional").model

        def forward(self, x):
            return self.model(x.flip(-1).flip(-1) if x.shape[-1] == 16 else x)

    anatomy = dissect(TwoWays().eval(), torch.zeros(2, 3, 16, 16))
    wanted = "operation 0 of a forward pass must be flip, as when the model was dissected"
    with pytest.raises(InputError, match=wanted), ablate(anatomy, anatomy[1]):
        anatomy.model(torch.zeros(2, 3, 8, 8))


# After the ``with`` block the model is unchanged.


def hooks(model):
    return [
        (len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks))
        for m in model.modules()
    ]


OPERATIONS = {
    "watch": lambda a: watch(a),
    "lesion": lambda a: ablate(a, a[1]),
    "replace": lambda a: replace(a, a[1], torch.zeros_like),
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
def test_a_failed_pass_does_not_disturb_the_next_one(anatomy, images, operation):
    with operation(anatomy):
        wanted = anatomy.model(images)
        with pytest.raises(Exception, match=r"input|size|height"):
            anatomy.model(torch.zeros(2, 7, 16, 16))
        exactly(anatomy.model(images), wanted)


def test_gradients_flow_through_a_lesion_and_past_its_block(anatomy_of, images):
    anatomy = anatomy_of("functional")
    with ablate(anatomy, anatomy["convs.0"]):
        anatomy.model(images).sum().backward()
    cut, gradient = (conv.weight.grad for conv in anatomy.model.convs[:2])
    assert gradient.abs().sum() > 0
    assert cut is None or cut.abs().sum() == 0


@pytest.mark.parametrize("name", ["in place", "by assignment", "tied", "vit"])
def test_gradients_reach_the_image_while_watched(name, anatomy_of, images):
    anatomy = anatomy_of(name)
    images = images.clone().requires_grad_()
    logits = anatomy.model(images)
    with watch(anatomy) as maps:
        watched = anatomy.model(images)
    exactly(watched, logits)
    (gradient,) = torch.autograd.grad(watched.square().sum(), images)
    assert gradient.abs().sum() > 0
    assert all(m.requires_grad for m in maps.values())


class Caching(nn.Module):
    """Keeps what it adds, as networks keep the positions of their last size."""

    def __init__(self, *, stated):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 4, 4, 4), nn.Linear(4, 3)
        if stated:
            self.register_buffer("kept", torch.zeros(1, 1, 1), persistent=False)

    def forward(self, x):
        x = self.stem(x)
        if not hasattr(self, "kept") or self.kept.shape != x.shape[1:]:
            kept = torch.linspace(0, 1, x[0].numel()).view(x.shape[1:])
            self.register_buffer("kept", kept, persistent=False)
        return self.head((x + self.kept.expand(len(x), -1, -1, -1) * x).relu().mean((2, 3)))


@pytest.mark.parametrize("analysis", [vp.Variance(), vp.TokenNorms(), vp.Hessian()])
@pytest.mark.parametrize("stated", [True, False])
def test_a_model_that_kept_a_tensor_of_inference_mode_is_measured(analysis, stated):
    model, fresh = (Caching(stated=stated).eval() for _ in range(2))
    fresh.load_state_dict(model.state_dict())
    batches = [(torch.rand(6, 3, 16, 16), torch.tensor([0, 1, 2, 0, 1, 2]))]
    with torch.inference_mode():
        model(batches[0][0])
    kept = model.kept
    results = analysis(model, batches), analysis(fresh, batches)
    assert model.kept is kept
    assert kept.is_inference()
    vp.assert_results_equal(*results)

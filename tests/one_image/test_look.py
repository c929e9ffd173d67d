"""Every picture and number of `vp.look` against own code from raw hooks."""

import csv
import re

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import nn

import visprism as vp
from visprism.one_image import inside as parts_of_look
from visprism.one_image.page import aligned

WAY = vp.Preprocessing((32, 32), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
PICTURE = Image.fromarray(
    np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)
).resize((32, 32), Image.Resampling.BICUBIC)


def built(name, **options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return timm.create_model(name, num_classes=7, **options).eval()


def vit():
    return built("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=3)


def looked(model, **options):
    return vp.look(model, PICTURE, preprocessing=WAY, **options)


def raw(model, module):
    """The output of a module and the logits for the picture, from a plain hook."""
    x = torch.from_numpy(np.array(PICTURE)).permute(2, 0, 1)[None].float() / 255
    kept = []
    handle = module.register_forward_hook(lambda _m, _i, out: kept.append(out.detach().clone()))
    with torch.no_grad():
        logits = model((x - 0.5) / 0.25)
    handle.remove()
    return kept[0], logits


@pytest.fixture(scope="module")
def of_vit():
    model = vit()
    made = looked(model, target=3, full=True)
    return model, made, made.images[0]["VisionTransformer"]


def test_channels_are_those_of_a_hook_with_the_largest_variance(of_vit):
    model, made, _ = of_vit
    tokens, _ = raw(model, model.blocks[1])
    maps = tokens[0, 1:].T.reshape(24, 4, 4).numpy()
    view = made.view("blocks.1.mlp")
    variance = maps.reshape(24, -1).var(1)
    assert list(view.channels) == np.argsort(-variance)[:8].tolist()
    for channel, values in view.channels.items():
        np.testing.assert_allclose(values, maps[channel], atol=1e-5)


def test_coarse_and_fine_add_up_to_the_map_of_a_hook(of_vit):
    model, made, _ = of_vit
    tokens, _ = raw(model, model.blocks[1])
    x = tokens[0, 1:].T.reshape(24, 4, 4)
    coarse, fine = parts_of_look.parts(x)
    assert (coarse + fine - x).abs().max() < 1e-5
    spectrum = torch.fft.fft2(coarse).abs()
    frequency = 2 * torch.fft.fftfreq(4).abs()
    beyond = torch.maximum(frequency[:, None], frequency[None]) >= 0.5
    assert spectrum[:, beyond].max() < 1e-4
    rest = x - x.mean((1, 2), keepdim=True)
    power = [part.square().mean().sqrt().item() for part in parts_of_look.parts(rest)]
    np.testing.assert_allclose(made.view("blocks.1.mlp").power, power, rtol=1e-4)


def test_attention_of_a_position_is_the_softmax_of_its_query(of_vit):
    model, made, _ = of_vit
    attn = model.blocks[2].attn
    qkv, _ = raw(model, attn.qkv)
    q, k, _ = qkv.reshape(1, 17, 3, attn.num_heads, -1).permute(2, 0, 3, 1, 4)
    weights = (q @ k.transpose(-1, -2) * attn.scale).softmax(-1)[0].mean(0)
    kept = made.view("blocks.2.attn").attention
    for number, (row, column) in enumerate(parts_of_look.places((4, 4))):
        expected = weights[1 + 4 * row + column, 1:].reshape(4, 4)
        np.testing.assert_allclose(kept[number], expected, atol=1e-5)


def test_probabilities_and_the_one_without_a_block(of_vit):
    model, _, inside = of_vit
    _, logits = raw(model, model.norm)
    np.testing.assert_allclose(inside.probabilities, logits[0].softmax(0), atol=1e-5)
    for view in inside.blocks:
        if view.without is None:
            continue
        name, part = view.block.name.rsplit(".", 1)
        branch = model.get_submodule(f"{name}.{part}")
        handle = branch.register_forward_hook(lambda _m, _i, out: torch.zeros_like(out))
        _, without = raw(model, model.norm)
        handle.remove()
        np.testing.assert_allclose(view.without, without[0].softmax(0), atol=1e-5)
    assert sum(view.without is not None for view in inside.blocks) == 6


def test_the_lens_is_the_head_on_the_tokens_of_a_block(of_vit):
    model, made, _ = of_vit
    tokens, _ = raw(model, model.blocks[0])
    with torch.no_grad():
        expected = model.forward_head(model.norm(tokens))[0].softmax(0)
    np.testing.assert_allclose(made.view("blocks.0.mlp").lens, expected, atol=1e-5)


def test_grad_cam_of_the_true_class_follows_its_logit(of_vit):
    model, _, inside = of_vit
    assert [cam.of_class for cam in inside.cams] == [inside.top[0], 3]
    cam = inside.cams[1]
    x = torch.from_numpy(np.array(PICTURE)).permute(2, 0, 1)[None].float() / 255
    kept = []

    def keep(_module, inputs):  # the residual stream behind the block
        kept.append(inputs[0])
        inputs[0].retain_grad()

    _, number, part = cam.block.split(".")
    after = {
        "attn": lambda n: model.blocks[n].norm2,
        "mlp": lambda n: [*model.blocks, model.norm][n + 1],
    }
    handle = after[part](int(number)).register_forward_pre_hook(keep)
    model((x - 0.5) / 0.25)[0, 3].backward()
    handle.remove()
    a, g = (t[0, 1:].T.reshape(24, 4, 4) for t in (kept[0].detach(), kept[0].grad))
    model.zero_grad(set_to_none=True)
    expected = (g.mean((1, 2), keepdim=True) * a).sum(0).clamp(min=0)
    np.testing.assert_allclose(cam.map, expected, atol=1e-5)
    assert np.ptp(cam.map) > 0


def test_bisection_finds_the_step_of_a_scan_of_all_steps():
    from visprism.one_image.flips import STEPS, Change, smallest_flips

    pixels = torch.full((1, 3, 32, 32), 0.5)

    def predict(x):
        mean = x.mean((1, 2, 3))
        return torch.stack([mean - 0.3, 0.3 - mean], 1)

    def darker(slope):
        return Change("dark", "{}", lambda k: k * slope, lambda x, k: x - k * slope)

    changes = [darker(0.001 * n) for n in range(1, 60)]
    fast, images = smallest_flips(pixels, changes, predict, scan=False)
    slow, _ = smallest_flips(pixels, changes, predict, scan=True)
    np.testing.assert_array_equal(fast.step, slow.step)
    expected = [next((k for k in range(1, STEPS + 1) if k * n > 200), 0) for n in range(1, 60)]
    assert fast.step.tolist() == expected
    assert fast.passes < slow.passes / 2.5
    for step, image in zip(fast.step, images, strict=True):
        assert (image is None) == (step == 0)
        assert image is None or image.mean() < 0.3


@pytest.mark.parametrize("seed", range(3))
def test_flips_of_a_network_against_a_scan(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = built("resnet10t")
    fast = looked(model).images[0]["ResNet"].flips
    slow = looked(model, full=True).images[0]["ResNet"].flips
    assert set(fast.change) >= {"rotation", "shift", "blur", "JPEG", "attack"}
    for row, first in enumerate(slow.step):
        assert (fast.step[row] == 0) or (first > 0 and first <= fast.step[row])


class UNet(nn.Module):
    """A dense network with a skip connection."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 5, 1)

    def forward(self, x):
        first = self.down(x)
        return self.out(torch.cat([first, self.up(self.middle(first))], 1))


def swin():
    options = {"img_size": 32, "window_size": 4, "depths": (2, 2), "embed_dim": 24}
    return built("swin_tiny_patch4_window7_224", **options)


def backbone():
    return nn.Sequential(*list(built("resnet10t").children())[:-2]).eval()


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        (lambda: UNet().eval(), "No class scores"),
        (lambda: built("resnet10t"), "No attention maps"),
        (swin, ""),
        (backbone, "No class scores"),
    ],
)
def test_what_does_not_apply_is_one_line(model, missing):
    made = looked(model())
    (inside,) = made.images[0].values()
    assert inside.blocks
    page = made.html()
    assert not missing or any(note.startswith(missing) for note in inside.notes)
    assert all(note in page or note.replace("'", "&#39;") in page for note in inside.notes)
    for view in inside.blocks:
        assert np.isfinite(view.colors).all()


def test_the_model_is_left_as_it_was():
    model = vit()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    looked(model, full=True)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not model.training
    assert all(p.grad is None for p in model.parameters())


def test_the_page_needs_nothing_else(of_vit):
    _, made, _ = of_vit
    page = made.html()
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "image-rendering: pixelated" in page
    assert len(page) < 3e6
    assert made._repr_html_().startswith("<iframe srcdoc=")


def test_files(of_vit, tmp_path):
    _, made, inside = of_vit
    page = made.save(tmp_path / "out")
    assert page.read_text("utf-8") == made.html()
    stems = {p.stem for p in (tmp_path / "out" / "pictures").glob("*.png")}
    assert stems == {p.stem for p in (tmp_path / "out" / "pictures").glob("*.svg")}
    assert len(stems) > 12 * len(inside.blocks)
    with next((tmp_path / "out" / "tables").glob("*-blocks.csv")).open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    assert [row["block"] for row in rows] == [view.block.name for view in inside.blocks]
    assert len(made.figure("blocks.1.mlp").axes) == 2


def test_two_models_and_several_images_share_a_page():
    data = [PICTURE, PICTURE.rotate(90)]
    models = {"a": built("resnet10t"), "b": vit()}
    made = vp.look(models, data, images=(0, 1), preprocessing=WAY)
    assert [list(of_image) for of_image in made.images] == [["a", "b"]] * 2
    assert made.html().count("<article") == 2
    assert made.title == "What a and b do with this picture"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"images": (4,)}, "images must be between 0 and 0, got 4"),
        ({"target": "zebra"}, "target must be the name or the number of a class"),
        ({"target": 99}, "target must be between 0 and 6"),
        ({"channels": (999,)}, "channels must be below 24"),
    ],
)
def test_bad_input_is_one_sentence(options, words):
    with pytest.raises(vp.InputError, match=words):
        looked(vit(), **options)


def test_blocks_are_aligned_by_depth():
    assert aligned([0.0, 1.0], [0.0, 0.5, 1.0]) == [(1, 3), (3, 4)]
    assert aligned([0.9, 0.95, 1.0], [0.0, 0.3, 0.6, 1.0]) == [(2, 3), (3, 4), (4, 5)]

"""Live panels give what the measurements of the package give."""

import base64
import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
import torch
from app_cases import RESNET, VIT
from PIL import Image

import visprism as vp
from visprism.analyses.attention.attention_maps import rollouts
from visprism.analyses.features.receptive_field import receptive_map
from visprism.app.live.panels import PANELS
from visprism.app.live.pool import Pool
from visprism.app.settings import Limits, Settings


@pytest.fixture(scope="module")
def specimen(settings):
    return Pool(settings).specimen(VIT)


@pytest.fixture(scope="module")
def image(specimen):
    return specimen.normalized(specimen.pixels([1]))


def top(logits):
    return logits.argsort(descending=True)[:5].tolist()


def test_predictions_are_those_of_the_model(ask, specimen, image):
    (prediction,) = ask("images", VIT, images=[1])["predictions"]
    logits = vp.forward(specimen.anatomy.model, image)[0]
    assert [c["class"] for c in prediction["top"]] == top(logits)
    expected = logits.softmax(-1)[top(logits)].tolist()
    assert [c["probability"] for c in prediction["top"]] == pytest.approx(expected, abs=1e-4)


def test_attention_from_a_patch_is_that_of_the_maps(ask, specimen, image):
    answer = ask("attention", VIT, images=[1], row=9, column=30)
    maps = vp.attention_maps(specimen.anatomy, image, query=(9, 30))
    weights = np.concatenate([np.ravel(layer["heads"]) for layer in answer["layers"]])
    np.testing.assert_allclose(weights, maps.weight, rtol=1e-3)
    assert [layer["name"] for layer in answer["layers"]] == [
        a.name for a in vp.attentions(specimen.anatomy)
    ]


def test_rollouts_are_those_of_the_package(ask, specimen, image):
    answer = ask("rollout", VIT, images=[1])
    for map_, expected in zip(
        answer["maps"], rollouts(specimen.anatomy, image)[0], strict=True
    ):
        assert map_["method"] == expected.method
        np.testing.assert_allclose(map_["weights"], expected.weight, rtol=1e-3)


def test_ablation_is_that_of_the_anatomy(ask, specimen, image):
    names = ["blocks.1.attn", "blocks.2.mlp"]
    answer = ask("ablation", VIT, images=[1], blocks=names)
    anatomy = specimen.anatomy
    first, second = (vp.ablate(anatomy, anatomy[name]) for name in names)
    with first, second, torch.no_grad():
        logits = vp.forward(specimen.anatomy.model, image)[0]
    assert [c["class"] for c in answer["predictions"][0]["top"]] == top(logits)
    intact = ask("ablation", VIT, images=[1], blocks=[])
    assert intact["predictions"] == ask("images", VIT, images=[1])["predictions"]
    values = answer["high"]["relative"]
    at, mlp = (answer["high"]["blocks"].index(name) for name in names)
    assert values[:at] == intact["high"]["relative"][:at]
    assert values[at:] != intact["high"]["relative"][at:]
    assert values[mlp] == pytest.approx(values[mlp - 1], rel=1e-3)  # as the block before


def test_noise_lies_in_its_band_with_its_strength(specimen):
    clean = specimen.pixels([0])
    answer = PANELS["frequency_noise"](specimen, {"images": [0], "frequency": 0.5, "rms": 0.02})
    noise = (pixels_of(answer["pictures"][0]).float() - clean[0].float()) / 255
    assert float(noise.square().mean().sqrt()) == pytest.approx(0.02, rel=0.15)
    power = torch.fft.fft2(noise).abs().square().mean(0)
    axis = 2 * torch.fft.fftfreq(32).abs()
    radius = torch.maximum(axis[:, None], axis[None])
    in_band = (radius - 0.5).abs() < 0.06
    assert float(power[in_band].sum() / power.sum()) > 0.9


def test_a_corruption_is_that_of_the_package(ask, specimen):
    answer = ask("corruption", VIT, images=[2], corruption="pixelate", severity=4)
    expected = vp.corrupt(specimen.pixels([2]), "pixelate", 4, numbers=[2])[0]
    assert torch.equal(pixels_of(answer["pictures"][0]), expected)


def test_the_receptive_field_of_a_convolution_moves_with_its_position():
    """A 3 x 3 kernel reads the 9 pixels around its position, and no other."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Flatten(), torch.nn.Linear(8 * 64, 4)
    ).eval()
    images = torch.randn(1, 3, 8, 8)
    anatomy = vp.dissect(network, images.repeat(2, 1, 1, 1))
    for row, column in ((2, 5), (0, 0)):
        weights = receptive_map(anatomy, images, anatomy[0], (row, column))[0]
        reach = torch.zeros(8, 8, dtype=torch.bool)
        reach[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = True
        assert bool((weights > 0).eq(reach).all())


def test_the_landscape_starts_at_the_model_and_leaves_it(ask, specimen):
    before = {n: p.clone() for n, p in specimen.anatomy.model.named_parameters()}
    start = ask("landscape", VIT, images=[0, 1], direction=3, distance=0)
    away = ask("landscape", VIT, images=[0, 1], direction=3, distance=0.5)
    assert start["predictions"] == ask("images", VIT, images=[0, 1])["predictions"]
    assert away["predictions"] != start["predictions"]
    for name, parameter in specimen.anatomy.model.named_parameters():
        assert torch.equal(parameter, before[name])


def test_the_loss_along_a_direction_is_that_of_the_predictions(ask):
    curve = ask("loss_curve", VIT, direction=3)
    losses = []
    for first in range(0, curve["images"], 4):
        images = list(range(first, first + 4))
        moved = ask("landscape", VIT, images=images, direction=3, distance=0.5)
        losses += [-np.log(p["true"]["probability"]) for p in moved["predictions"]]
    at = curve["distances"].index(0.5)
    assert curve["losses"][at] == pytest.approx(np.mean(losses), rel=1e-2)


def test_the_true_class_is_stated_where_the_model_has_the_classes(client, ask, specimen):
    targets = specimen.subject.images.targets
    predicted = ask("images", VIT, images=[0, 1, 2, 3])["predictions"]
    assert [p["true"]["class"] for p in predicted] == targets[:4].tolist()
    other = {"model": {"name": "vit_pico_patch4_32?num_classes=7"}, "data": "shapes"}
    (prediction,) = ask("images", other, images=[0])["predictions"]
    assert prediction["true"] is None
    response = client.post("api/live/loss_curve", json={**other, "direction": 1})
    assert response.status_code == 400
    assert "the model has 7 classes" in response.json()["error"]


@pytest.mark.parametrize(
    ("name", "has"),
    [("vit_tiny_patch16_224?img_size=32&depth=1", True), ("vit_pico_patch4_32", False)],
)
def test_a_class_token_is_offered_where_there_is_one(ask, name, has):
    info = ask("model", {"model": {"name": name}, "data": "shapes"})
    assert info["class_token"] is has
    assert all(attention["others"] is has for attention in info["attentions"])


def test_panels_are_computed_one_at_a_time(ask, monkeypatch):
    taken = threading.Lock()

    def panel(_, values):
        with suppress(RuntimeError):  # release of a lock that is not held
            alone = taken.acquire(blocking=False)
            time.sleep(0.05)
            taken.release()
        return {"number": values["number"], "alone": alone}

    monkeypatch.setitem(PANELS, "slow", panel)
    with ThreadPoolExecutor(4) as clients:
        answers = clients.map(lambda number: ask("slow", RESNET, number=number), range(4))
    assert list(answers) == [{"number": number, "alone": True} for number in range(4)]


def test_the_pool_holds_a_model_once_and_drops_the_oldest(tmp_path):
    size = 4 * 300_000
    pool = Pool(Settings(tmp_path, limits=Limits(model_bytes=size, live_images=2)))
    first = pool.specimen(VIT)
    assert pool.specimen(VIT) is first
    pool.specimen(RESNET)  # both together have more weights than the limit
    assert list(pool._specimens) == [("resnet20.shapes", "shapes", None)]


def test_a_second_data_set_gives_what_a_pool_of_its_own_gives(tmp_path):
    Image.fromarray(np.arange(40 * 48 * 3, dtype=np.uint8).reshape(40, 48, 3)).save(
        tmp_path / "photo.png"
    )
    other = f"folder:{tmp_path}"
    settings = Settings(tmp_path / "workspace", data=("shapes", other))
    pool = Pool(settings)
    for data in ("shapes", other):
        shown = {**RESNET, "data": data}
        both = pool.specimen(shown), Pool(settings).specimen(shown)
        names, logits = zip(
            *((s.subject.name, s.logits(s.normalized(s.pixels([0])))) for s in both),
            strict=True,
        )
        assert names[0] == names[1]
        torch.testing.assert_close(*logits)
    models = [s.anatomy.model for s in pool._specimens.values()]
    assert models[0] is models[1]


def pixels_of(address):
    content = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    return torch.from_numpy(np.array(Image.open(io.BytesIO(content)))).permute(2, 0, 1)

"""Laws of the monitor: it changes nothing, keeps its share of the time, and resumes."""

import time
from pathlib import Path

import pytest
import torch
from torch import nn

from visprism import Augmentation, InputError, Monitor, Preprocessing, Recipe, Study, fit
from visprism.images import Feed

STEPS = 8


class Net(nn.Module):
    """Convolution, BatchNorm and dropout: all that a measurement could disturb."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
            )
            self.drop = nn.Dropout(0.3)
            self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.drop(self.conv(x)).mean((2, 3)))


def drawn(seed, n):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 3, 8, 8, generator=generator), torch.arange(n) % 4


DATA = [drawn(1, 16)]
ANALYSES = ("fourier", "variance", "calibration", "training-curvature")
MAKE = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
}


def trained(optimizer, monitor=None, steps=STEPS, begin=None):
    """A plain loop with augmentation from the global generator; weights and its last state."""
    torch.manual_seed(0)
    model = Net()
    update = MAKE[optimizer](model.parameters())
    first = 0
    if begin is not None:
        model.load_state_dict(begin["model"])
        update.load_state_dict(begin["optimizer"])
        torch.set_rng_state(begin["random"])
        first = begin["step"]
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(*drawn(2, 32)), batch_size=8, shuffle=True
    )
    for step in range(first + 1, steps + 1):
        images, targets = next(iter(loader))
        images = images + 0.1 * torch.randn_like(images)
        loss = nn.functional.cross_entropy(model(images), targets)
        update.zero_grad()
        loss.backward()
        update.step()
        if monitor is not None:
            monitor.step(model, step, update, {"loss": loss.item()})
    return {
        "model": {k: v.clone() for k, v in model.state_dict().items()},
        "optimizer": update.state_dict(),
        "random": torch.get_rng_state(),
        "step": steps,
        "training": [m.training for m in model.modules()],
        "gradients": [p.grad.clone() for p in model.parameters()],
    }


def fitted(recipe, monitor=None):
    images, targets = drawn(2, 32)
    pixels = (255 * images).to(torch.uint8)
    plain = Preprocessing((8, 8), mean=(0.0,) * 3, std=(1.0,) * 3)
    model = Net()
    feed = Feed(
        pixels,
        targets,
        num_classes=4,
        batch_size=8,
        augmentation=recipe.augmentation,
        preprocessing=plain,
        seed=0,
    )
    fit(model, feed, recipe, monitor=monitor)
    return model.state_dict()


def test_sam_has_the_same_bits_with_and_without(tmp_path):
    augmented = Augmentation(padding=1, flip=0.5, mixup=1.0)
    recipe = Recipe(epochs=2, batch_size=8, lr=0.05, sam_rho=0.1, augmentation=augmented)
    options = {"training-curvature": {"sam_rho": 0.1}}
    monitor = monitor_of(tmp_path, options=options)
    torch.testing.assert_close(fitted(recipe, monitor), fitted(recipe), rtol=0, atol=0)
    assert list(monitor.studies) == [2, 4, 6, 8]
    (curvature,) = monitor.studies[8]["training-curvature"].values()
    assert set(curvature.point) == {"weights", "perturbed"}
    assert set(curvature.step) == {8}


def monitor_of(folder=None, **options):
    values = {"every": 2, "share": 1.0, "out": folder} | options
    return Monitor(DATA, ANALYSES, **values)


@pytest.mark.parametrize("optimizer", MAKE)
def test_training_has_the_same_bits_with_and_without(tmp_path, optimizer):
    monitor = monitor_of(tmp_path)
    with_it, without = trained(optimizer, monitor), trained(optimizer)
    torch.testing.assert_close(with_it, without, rtol=0, atol=0)
    assert list(monitor.studies) == [2, 4, 6, 8]
    assert all(study.analyses == ANALYSES for study in monitor.studies.values())


def test_a_killed_run_continues_with_the_same_bits_and_numbers(tmp_path):
    complete = monitor_of(tmp_path / "complete")
    weights = trained("adamw", complete)["model"]
    half = trained("adamw", monitor_of(tmp_path / "stopped"), steps=5)
    resumed = monitor_of(tmp_path / "stopped")
    again = trained("adamw", resumed, begin=half)["model"]
    torch.testing.assert_close(again, weights, rtol=0, atol=0)
    for step, study in complete.studies.items():
        stored = Study.load(tmp_path / "stopped" / f"step-{step:08d}")
        assert stored.header["step"] == step
        assert stored.header["metrics"] == study.header["metrics"]
        for entry, other in zip(stored.entries, study.entries, strict=True):
            assert entry.results == other.results


def test_measurements_take_their_share_of_the_time(caplog):
    monitor = Monitor(DATA, "variance", every=1, share=0.25)
    model = Net()
    begin = time.perf_counter()
    for step in range(1, 10_000):
        time.sleep(0.001)
        monitor.step(model, step)
        if len(monitor.studies) > 3:
            break
    assert monitor.seconds / (time.perf_counter() - begin) < 0.25 * 1.1
    assert len(monitor.studies) > 3
    assert "with share=0.25 one is made every" in caplog.text


def test_a_model_that_is_compiled_or_frozen_or_in_inference_is_measured_as_it_is():
    model = Net()
    monitor = monitor_of()
    with torch.inference_mode():
        first = monitor.step(torch.compile(model), 2)
    second = monitor_of().step(model, 2)
    assert first["variance"]["Net"] == second["variance"]["Net"]
    assert model.training


# What goes wrong is one sentence, and training continues.


class RaisingLogger:
    def log(self, step, values):
        raise RuntimeError("no connection")

    def close(self):
        pass


def other_model(monitor):
    monitor.step(Net(), 2)
    monitor.step(nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), 4)


def backwards(monitor):
    monitor.step(Net(), 4)
    monitor.step(Net(), 2)


def nothing_to_measure(monitor):
    monitor.step(nn.Linear(5, 4), 1)


@pytest.mark.parametrize(
    ("act", "options", "sentence"),
    [
        (other_model, {}, "the model must stay the same, and its parameter"),
        (backwards, {}, "step must not decrease, got 2 after 4"),
        (nothing_to_measure, {}, "step 1 is not measured"),
        (lambda m: m.step(Net(), 2), {"log": [RaisingLogger()]}, "a logger failed: no conn"),
    ],
)
def test_a_fault_is_one_sentence(caplog, act, options, sentence):
    act(monitor_of(**options))
    messages = [record.message for record in caplog.records]
    assert sum(sentence in message for message in messages) == 1, messages


def test_a_full_disk_is_one_sentence(tmp_path, caplog, monkeypatch):
    monitor = monitor_of(tmp_path)

    def full(self, *args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "touch", full)
    study = monitor.step(Net(), 2)
    assert study is monitor.studies[2]
    assert "step 2 is not stored" in caplog.text
    assert "No space left on device" in caplog.text


def test_other_images_in_the_folder_are_refused_once(tmp_path, caplog):
    monitor_of(tmp_path).step(Net(), 2)
    Monitor([drawn(5, 16)], ANALYSES, every=2, out=tmp_path).step(Net(), 4)
    assert "studies of the same images" in caplog.text
    assert not (tmp_path / "step-00000004").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"every": 0}, "every must be at least 1"),
        ({"share": 0.0}, "share must be above 0"),
        ({"log": ["tensorboard"]}, "out must be a folder for the logger"),
    ],
)
def test_bad_input(options, sentence):
    with pytest.raises(InputError, match=sentence):
        monitor_of(**options)

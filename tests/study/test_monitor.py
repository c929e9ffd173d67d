"""Laws of the monitor: it changes nothing, keeps its share of the time, and resumes."""

import itertools
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from two_processes import SHARED

import visprism as vp
from visprism import Feed


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


def trained(optimizer, monitor=None, steps=8, begin=None):
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


def fitted(recipe, monitor=None, folder=None, **options):
    images, targets = drawn(2, 32)
    pixels = (255 * images).to(torch.uint8)
    plain = vp.Preprocessing((8, 8), mean=(0.0,) * 3, std=(1.0,) * 3)
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
    vp.fit(model, feed, recipe, monitor=monitor, folder=folder, **options)
    return model.state_dict()


AUGMENTED = vp.Augmentation(padding=1, flip=0.5, mixup=1.0)
RECIPE = vp.Recipe(epochs=2, batch_size=8, lr=0.01, augmentation=AUGMENTED, sam_rho=0.1)


def fitted_with_a_monitor(folder, kind=vp.Monitor):
    options = {"training-curvature": {"sam_rho": RECIPE.sam_rho}}
    monitor = kind(DATA, ANALYSES, every=2, share=1.0, options=options, out=folder / "monitor")
    return monitor, fitted(RECIPE, monitor, folder)


class Killed(vp.Monitor):
    """Ends its training after five updates."""

    def step(self, model, step, optimizer=None, metrics=None):
        super().step(model, step, optimizer, metrics)
        if step == 5:
            raise SystemExit


def test_weights_after_a_kill_and_a_resumption_are_those_without_a_monitor(tmp_path):
    with pytest.raises(SystemExit):
        fitted_with_a_monitor(tmp_path, Killed)
    assert sorted(p.name[-1] for p in (tmp_path / "monitor").glob("step-*")) == ["2", "4"]
    monitor, weights = fitted_with_a_monitor(tmp_path)
    torch.testing.assert_close(weights, fitted(RECIPE), rtol=0, atol=0)
    assert list(monitor.studies) == [2, 4, 6, 8]
    (curvature,) = monitor.studies[8]["training-curvature"].values()
    assert set(curvature.point) == {"weights", "perturbed"}
    assert set(curvature.step) == {8}


MODEL = Net()


def monitor_of(folder=None, **options):
    values = {"every": 2, "share": 1.0, "out": folder} | options
    return vp.Monitor(DATA, ANALYSES, **values)


def test_training_has_the_same_bits_with_and_without(tmp_path):
    monitor = monitor_of(tmp_path)
    with_it, without = trained("adamw", monitor), trained("adamw")
    torch.testing.assert_close(with_it, without, rtol=0, atol=0)
    assert list(monitor.studies) == [2, 4, 6, 8]
    assert all(study.analyses == ANALYSES for study in monitor.studies.values())


def test_a_resumed_training_that_differs_by_rounding_is_measured_again(tmp_path, caplog):
    half = trained("sgd", steps=3)
    trained("sgd", monitor_of(tmp_path))
    before = dict(monitor_of(tmp_path).studies)
    for factor, steps in ((1, []), (1 + 1e-6, [4, 6, 8])):
        next(iter(half["model"].values())).mul_(factor)
        resumed = monitor_of(tmp_path)
        trained("sgd", resumed, begin=half)
        assert [step for step in before if resumed.studies[step] != before[step]] == steps
    (record,) = caplog.records
    assert "whose studies from this step on move to replaced/" in record.message


def test_steps_that_a_resumed_training_does_not_measure_are_not_of_the_lost_one(tmp_path):
    half = trained("sgd", steps=1)
    trained("sgd", monitor_of(tmp_path))
    next(iter(half["model"].values())).mul_(2)
    trained("sgd", monitor_of(tmp_path, every=5), begin=half)
    assert list(monitor_of(tmp_path).studies) == [5]
    assert any((tmp_path / "replaced").iterdir())


@pytest.fixture
def clock(monkeypatch):
    """A clock that only advances when it is read."""
    ticks = itertools.count()
    for name in ("perf_counter", "monotonic"):
        monkeypatch.setattr(time, name, lambda: next(ticks) / 1000)


def test_measurements_take_their_share_of_the_time_from_the_first_one_on(caplog, clock):
    model, analyses = Net(), ("variance", "calibration")
    warm = vp.Monitor(DATA, analyses, every=1, share=1.0)
    warm.step(model, 1)  # what is imported when it is needed
    monitor = vp.Monitor(DATA, analyses, every=1, share=0.25)
    begin = time.perf_counter()
    shares, measured = [], {"variance": 0, "calibration": 0}
    for step in range(1, 10_000):
        study = monitor.step(model, step)
        if study is not None:
            shares.append(monitor.seconds / (time.perf_counter() - begin))
            for name in study.analyses:
                measured[name] += 1
        if min(measured.values()) == 10:
            break
    assert max(shares[2:]) < 0.25 * 1.1  # after the first of each, which is always made
    assert min(measured.values()) == 10
    for name in measured:
        (text,) = [r.message for r in caplog.records if r.message.startswith(f"{name}: a ")]
        assert "share=0.25 has room for one every" in text


def test_a_model_that_is_compiled_or_frozen_or_in_inference_is_measured_as_it_is():
    model = Net()
    alone = monitor_of().step(model, 2)
    wrap = nn.DataParallel
    for wrapped in (wrap(torch.compile(model)), torch.compile(wrap(model))):
        with torch.inference_mode():
            study = monitor_of().step(wrapped, 2)
        assert study["variance"]["Net"] == alone["variance"]["Net"]
    assert model.training


def test_within_autocast_the_numbers_are_those_without():
    model = Net()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = monitor_of().step(model, 2)
        assert torch.is_autocast_enabled("cpu")
    plain = monitor_of().step(model, 2)
    assert [e.results for e in mixed.entries] == [e.results for e in plain.entries]


def test_averaged_weights_are_measured_where_they_are_given():
    model = Net()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    average.update_parameters(model)
    with torch.no_grad():
        model.head.weight.mul_(3)
    average.update_parameters(model)
    averaged = monitor_of().step(average, 2)["calibration"]["AveragedModel"]
    alone = monitor_of().step(average.module, 2)["calibration"]["Net"]
    values = [[a.value for a in result.answers()] for result in (averaged, alone)]
    assert values[0] == values[1]
    assert average.n_averaged == 2


def test_a_training_watches_its_averaged_weights_where_it_is_asked():
    recipe, models = vp.Recipe(epochs=1, batch_size=8, lr=0.05, ema=0.9), []
    seen = SimpleNamespace(step=lambda model, *_: models.append(model))
    weight = fitted(recipe, seen)["head.weight"]
    fitted(recipe, seen, watch_average=True)
    assert list(map(type, models)) == 8 * [Net]
    equal = [torch.equal(model.head.weight, weight) for model in models]
    assert equal == 4 * [True] + 4 * [False]
    with pytest.raises(vp.InputError, match="ema of the recipe must be above 0"):
        fitted(recipe.replace(ema=0.0), seen, watch_average=True)


def test_numbers_have_names_that_sort_for_any_logger():
    logged, network = {}, vp.load_model("vit_pico_patch4_32?depth=1")
    batch = (torch.rand(8, 3, 32, 32), torch.arange(8))
    monitor = vp.Monitor(
        [batch], ("fourier", "variance", "training-curvature", "cka"), every=1, share=1.0,
        preprocessing=network.preprocessing, log=[logged.__setitem__],
    )  # fmt: skip
    optimizer = torch.optim.SGD(network.model.parameters(), lr=0.1)
    study = monitor.step(network.model, 1, optimizer)
    values = {name.removeprefix("visprism/"): value for name, value in logged[1].items()}
    answers = {a.id: a.value for e in study.entries for r in e.results for a in r.answers()}
    high = "fourier/attention/high_frequency"
    assert [n for n in sorted(values) if "attention/h" in n] == [high, f"{high}_to_lowest"]
    assert values[high] == answers["kind-summary:high-frequency:attention"]
    # What answers no question has its mean.
    names = ("variance", "training-curvature", "cka")
    variances, curvature, similarity = (next(iter(study[name].values())) for name in names)
    assert values["variance/blocks/variances"] == pytest.approx(variances.values.mean())
    weights = "training-curvature/hessian/weights"
    assert values[f"{weights}/eigenvalue"] == curvature.eigenvalue[0]
    assert values[f"{weights}/threshold"] == pytest.approx(20)
    matrix = similarity.matrix("cka")
    pairs = matrix[np.triu_indices(len(matrix), k=1)]
    assert values["cka/mean"] == pytest.approx(pairs.mean())


@pytest.mark.parametrize(
    ("options", "steps"), [({"every": 500}, [5]), ({"share": 1e-9}, [1, 5]), ({}, [1, 5])]
)
def test_the_first_due_step_and_the_end_are_measured(options, steps):
    monitor = vp.Monitor(DATA, "variance", **{"every": 1, **options})
    for step in range(1, 6):
        monitor.step(Net(), step, metrics={"loss": step})
    monitor.close()
    monitor.close()
    assert [*monitor.studies][:1] + [*monitor.studies][-1:] == [steps[0], 5]
    assert monitor.studies[5].header["metrics"] == {"loss": 5.0}


def test_after_an_error_of_the_training_the_loggers_are_closed_without_a_measurement():
    closed = []
    logger = SimpleNamespace(log=lambda *_: None, close=lambda: closed.append(1))
    monitor = monitor_of(log=[logger])
    with suppress(RuntimeError), monitor:
        monitor.step(MODEL, 1)
        raise RuntimeError("no data")
    assert closed == [1]
    assert not monitor.studies


def test_metrics_are_logged_with_the_numbers_of_their_step():
    logged = {}
    monitor = monitor_of(log=[logged.__setitem__])
    for step in (1, 2, 3, 4):
        monitor.step(MODEL, step, metrics={"loss": 1 / step})
    assert {step: v["visprism/metrics/loss"] for step, v in logged.items()} == {2: 0.5, 4: 0.25}


def test_a_second_network_in_the_loop_is_told_to_have_its_own_monitor(caplog):
    monitor = monitor_of()
    for step in (1, 2):
        for network in (MODEL, Net()):
            monitor.step(network, step)
    assert sum("give each network its own" in text for text in caplog.messages) == 1
    assert list(monitor.studies) == [2]


class EndedError(Exception):
    """What a function of the user raises to end a training."""


def end(alarm):
    raise EndedError(alarm.code)


@pytest.mark.parametrize(
    ("on_alarm", "error"), [(end, EndedError), ("stop", vp.TrainingStoppedError)]
)
def test_an_alarm_is_logged_and_stored_without_a_study_and_can_end_the_training(
    tmp_path, caplog, on_alarm, error
):
    logged = []
    monitor = monitor_of(
        tmp_path, every=500, on_alarm=on_alarm, log=[lambda *values: logged.append(values)]
    )
    monitor.step(MODEL, 1, metrics={"loss": 1.0})
    with pytest.raises(error, match="VP207"):
        monitor.step(MODEL, 2, metrics={"loss": torch.tensor(float("nan"))})
    assert (tmp_path / "alarms.csv").read_text() == "step,code,text\n2,VP207,the loss is nan\n"
    assert logged == [(2, {"visprism/alarms/VP207": 1.0})]
    assert caplog.messages[-1] == f"{monitor.alarms[0]}"
    assert not monitor.studies
    assert monitor_of(tmp_path).alarms == monitor.alarms


def test_a_process_that_the_others_leave_alone_says_so(monkeypatch):
    came = Event()

    def waits(*_):
        assert came.wait(60)
        return [None]

    monkeypatch.setattr("visprism.study.monitor.world_size", lambda: 2)
    monkeypatch.setattr("visprism.study.share._PATIENCE", 0.01)
    monkeypatch.setattr("visprism.study.share.gather", waits)
    monkeypatch.setattr(vp.Monitor, "_say", lambda *_, **__: came.set())
    assert vp.Monitor(DATA, "variance", every=2).step(Net(), 1) is None
    assert came.is_set()


@pytest.mark.slow
def test_two_processes_share_a_measurement_and_train_the_same_bits(tmp_path):
    program = Path(__file__).with_name("monitor_in_processes.py")
    answer = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
            "2", program, tmp_path,
        ],
        capture_output=True, text=True, timeout=300, env=os.environ | SHARED,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    states = [torch.load(tmp_path / f"{name}.pt") for name in ("with", "without")]
    torch.testing.assert_close(*states, rtol=0, atol=0)
    model = Net()
    model.load_state_dict(states[0])
    (alone,) = monitor_of().step(model, 4)["calibration"].values()
    (shared,) = vp.Study.load(tmp_path / "run" / "step-00000004")["calibration"].values()
    for one, other in zip(shared.answers(), alone.answers(), strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-5)
    whole = vp.Monitor([drawn(3, 16)], "calibration", every=4, share=1.0).step(model, 4)
    spread = vp.Study.load(tmp_path / "sampler" / "step-00000004")
    numbers = [study["calibration"]["Net"].scalars() for study in (spread, whole)]
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-5, nan_ok=True)
    assert len(spread.positions) == 16
    (others,) = (tmp_path / "others.txt").read_text().splitlines()
    assert others.startswith("step 2 is not measured: data must be the same images in every")
    sharded = (tmp_path / "sharded.txt").read_text().splitlines()
    assert len(sharded) == 1
    assert sharded[0].startswith("step 1 is not measured: the model must not be sharded")


class RaisingLogger:
    def log(self, step, values):
        raise RuntimeError("no connection")

    def close(self):
        pass


def backwards(monitor):
    for step in (4, 2, 3, 1):
        monitor.step(MODEL, step)


def diverged(monitor):
    model = Net()
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    for step in (2, 4):
        monitor.step(model, step)
    assert not monitor.studies


def metric_that_is_text(monitor):
    loss = torch.ones((), requires_grad=True) * 2
    for step in (2, 4):
        monitor.step(MODEL, step, metrics={"loss": loss, "phase": "warm-up"})
        assert monitor.studies[step].header["metrics"] == {"loss": 2.0}


def failing_logger(monitor):
    monitor.step(MODEL, 2)
    monitor.step(MODEL, 4)


def full_disk(monitor):
    error = OSError(28, "No space left on device")
    with patch.object(Path, "touch", side_effect=error):
        assert monitor.step(MODEL, 2) is monitor.studies[2]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("act", "options", "sentence"),
    [
        (backwards, {}, "step must not decrease, got 2 after 4"),
        (diverged, {}, "step 2 is not measured: its weights are not finite"),
        (metric_that_is_text, {}, "could not convert string to float: 'warm-up'"),
        (full_disk, {}, "step 2, not stored: "),
        (failing_logger, {"log": [RaisingLogger()]}, "step 2, not logged by RaisingLogger: no"),
    ],
)
def test_a_fault_is_one_sentence(caplog, act, options, sentence, tmp_path):
    act(monitor_of(tmp_path if act is full_disk else None, **options))
    messages = [record.message for record in caplog.records]
    assert sum(sentence in message for message in messages) == 1, messages


def test_other_images_in_the_folder_are_refused_once(tmp_path, caplog):
    monitor_of(tmp_path).step(Net(), 2)
    vp.Monitor([drawn(5, 16)], ANALYSES, every=2, out=tmp_path).step(Net(), 4)
    assert "studies of the same images" in caplog.text
    assert not (tmp_path / "step-00000004").exists()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"every": 1.5}, "every must be an integer of at least 1, got 1.5"),
        ({"log": "csv"}, "log must be a list of loggers, got 'csv'"),
        ({"log": [3]}, "log must be loggers, names or functions, got 3"),
        ({"share": 0.0}, "share must be above 0"),
        ({"on_alarm": "end"}, "on_alarm must be a function or \"stop\", got 'end'"),
        ({"effort": "huge"}, "effort must be one of quick, standard, full, got 'huge'"),
        ({"folder": "/proc/none"}, "out must be a folder that can be written to"),
        ({"log": ["tensorboard"]}, "out must be a folder for the logger"),
    ],
)
def test_bad_input(options, sentence):
    with pytest.raises(vp.InputError, match=sentence):
        monitor_of(**options)


@pytest.mark.usefixtures("unchecked")
def test_metrics_in_the_place_of_the_optimizer_are_refused():
    with pytest.raises(vp.InputError, match="optimizer must be one or several optimizers"):
        monitor_of().step(MODEL, 1, {"loss": 1.0})

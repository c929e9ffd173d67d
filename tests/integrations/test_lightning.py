"""The monitor in Lightning's Trainer."""

import csv
import warnings

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.nn.functional import cross_entropy

from visprism import Monitor, Study, evolve
from visprism.integrations.lightning import MonitorCallback
from visprism.results import Evolution


class Classifier(LightningModule):
    def __init__(self, network):
        super().__init__()
        self.net = network

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, _):
        loss = cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def fitted(module, loader, callbacks=(), fits=(2,), path=None, **options):
    """The weights after fits up to these epochs, from a checkpoint."""
    seed_everything(0, verbose=False)
    with warnings.catch_warnings(action="ignore"):  # of Lightning, about workers and devices
        trainer = Trainer(
            accelerator="cpu", callbacks=list(callbacks), log_every_n_steps=1,
            enable_progress_bar=False, enable_model_summary=False,
            **{"enable_checkpointing": False, "logger": False} | options,
        )  # fmt: skip
        for epochs in fits:
            trainer.fit_loop.max_epochs = epochs
            trainer.fit(module, loader(), ckpt_path=path)
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def test_a_module_is_measured_and_its_weights_are_those_without(
    tmp_path, network, loader, monitor
):
    start = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    board = TensorBoardLogger(tmp_path / "board", name="", version="")
    loggers = [CSVLogger(tmp_path, name="", version=""), board]
    callback = MonitorCallback(monitor)
    measured = fitted(Classifier(network), loader, [callback], logger=loggers)
    network.load_state_dict(start)
    plain = fitted(Classifier(network), loader)
    torch.testing.assert_close(measured, plain, rtol=0, atol=0)
    assert list(monitor.studies) == [2, 4, 6, 8]
    assert not [f for study in monitor.studies.values() for f in study.failures]
    stored = Study.load(tmp_path / "visprism" / "step-00000004")
    metrics = stored.header["metrics"]
    assert metrics["loss"] == metrics["train_loss"] > 0
    with (tmp_path / "metrics.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["visprism/calibration/nll"]]
    answers = [a for r in stored["calibration"].values() for a in r.answers()]
    assert [int(row["step"]) for row in rows] == [2, 4, 6, 8]
    logged = float(rows[1]["visprism/calibration/nll"])
    assert [logged] == [answer.value for answer in answers if answer.quantity == "NLL"]
    tags = EventAccumulator(board.log_dir).Reload().Tags()
    assert "visprism/calibration/nll" in tags["scalars"]


def test_batches_of_one_update_count_once_and_a_part_can_be_measured(network, loader, brief):
    callback = MonitorCallback(brief, network=lambda module: module.net)
    fitted(Classifier(network), loader, [callback], accumulate_grad_batches=2)
    assert list(brief.studies) == [2, 4]
    assert brief.studies[2].models == ("Net",)
    metrics = brief.studies[2].header["metrics"]
    assert metrics["loss"] == pytest.approx(metrics["train_loss"])


class Steps(CSVLogger):
    def log_metrics(self, metrics, step=None):
        if "visprism/calibration/nll" in metrics:
            self.steps.append(step)


def test_two_fits_with_one_callback_log_each_measurement_once(tmp_path, network, loader, brief):
    callback, logger = MonitorCallback(brief), Steps(tmp_path, name="", version="")
    logger.steps = []
    fitted(Classifier(network), loader, [callback], fits=(1, 2), logger=logger)
    assert logger.steps == [2, 4, 6, 8]


def test_the_update_before_a_resumption_is_not_measured_again(tmp_path, network, loader, brief):
    saved, way = ModelCheckpoint(tmp_path, every_n_train_steps=2), {"fits": (1,)}
    way |= {"accumulate_grad_batches": 2, "enable_checkpointing": True}
    fitted(Classifier(network), loader, [MonitorCallback(brief), saved], **way)
    again = Monitor(brief.data, brief.analyses, every=2, share=1.0, out=brief.out)
    before = again.studies[2]
    callbacks, path = [MonitorCallback(again)], saved.best_model_path
    fitted(Classifier(network), loader, callbacks, path=path, accumulate_grad_batches=2)
    assert list(again.studies) == [2, 4]
    assert again.studies[2] is before


def test_its_checkpoints_have_curves(tmp_path, network, loader, images):
    saved = ModelCheckpoint(tmp_path / "saved", every_n_train_steps=2, save_top_k=-1)
    fitted(Classifier(network), loader, [saved], enable_checkpointing=True)
    study = evolve(tmp_path / "saved", images, model=network, analyses="calibration")
    curves = [r for e in study.entries for r in e.results if isinstance(r, Evolution)]
    (nll,) = [curve for curve in curves if curve.quantity == "NLL"]
    assert nll.step.tolist() == [2, 4, 6, 8]
    assert len(set(nll.value.tolist())) == 4


def test_an_alarm_ends_the_training(network, loader, monitor):
    monitor.on_alarm = "stop"
    with torch.no_grad():
        network.head.bias.fill_(float("nan"))
    callback = MonitorCallback(monitor)
    fitted(Classifier(network), loader, [callback])
    assert [(alarm.step, alarm.code) for alarm in monitor.alarms] == [(1, "VP207")]
    assert callback._step == 1

"""Laws of loggers (src/visprism/core/loggers.py)."""

import csv
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock, call

import pytest
from stopped import StopError, stopping

from visprism import Run, fit
from visprism.core.loggers import TensorBoardLogger, make_loggers

ROW = {"epoch": 1.0, "step": 6.0, "loss": 0.5}


def read(folder, name):
    """(step, value) of each point of a curve that the files hold, in order."""
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard"
    )
    accumulator = reader.EventAccumulator(str(folder / "tensorboard"), {"scalars": 0})
    return [(e.step, e.value) for e in accumulator.Reload().Scalars(name)]


# A training checkpoint after every step, or every epoch.
@pytest.mark.parametrize(("stops", "checkpoint_minutes"), [([7, 11, 16], 0.0), ([5, 11], 10.0)])
def test_a_resumed_run_has_every_point_once(
    tmp_path, make_model, make_feed, recipe, monkeypatch, stops, checkpoint_minutes
):
    monkeypatch.setattr("visprism.training.loop._LOG_EVERY", 2)
    # Files are named by the second and counted by process; a tenth would come before a second.
    files = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    monkeypatch.setattr(files, "_global_uid", files.AtomicCounter(0))

    def trained(folder, progress=None):
        return fit(
            make_model(),
            make_feed(recipe),
            recipe,
            folder=folder,
            run=Run(progress=progress),
            checkpoint_minutes=checkpoint_minutes,
            loggers=[TensorBoardLogger(folder)],  # never closed, as of a run that is killed
        )

    history = trained(tmp_path / "whole")
    for at in stops:
        with pytest.raises(StopError):
            trained(tmp_path / "run", stopping(at))
    trained(tmp_path / "run")
    between = [step for step in range(2, 18, 2) if step % 6]
    points = read(tmp_path / "run", "loss")
    assert [step for step, _ in points] == between
    assert points == read(tmp_path / "whole", "loss")
    rows = read(tmp_path / "run", "train_loss")
    assert [step for step, _ in rows] == history.step.tolist()
    assert [value for _, value in rows] == pytest.approx(history.train_loss.tolist())


@pytest.mark.parametrize("handle", [{"wandb": "id"}, {"trackio": "name"}], ids=str)
def test_a_resumed_run_continues_the_run_of_the_service(handle, tmp_path, monkeypatch):
    ((name, identity),) = handle.items()
    service = MagicMock(__spec__=SimpleNamespace(name=name))
    run = service.init.return_value
    run.id, run.name = "k3f9", "mine"
    monkeypatch.setitem(sys.modules, name, service)
    for step in (6, 12):
        (logger,) = make_loggers([name], tmp_path / "mine", {"lr": 0.1})
        assert service.init.call_count == step // 6 - 1  # before there is anything to tell
        logger.log(step, ROW)
        logger.close()
    first = {"project": "visprism", "name": "mine", "config": {"lr": 0.1}}
    again = first | {identity: getattr(run, identity), "resume": "allow"}
    assert service.init.call_args_list == [call(**first), call(**again)]
    points = [call({"epoch": 1.0, "loss": 0.5}, step=step) for step in (6, 12)]
    assert run.log.call_args_list == points
    assert run.finish.call_count == 2


def test_rows_of_a_resumed_run_follow_those_before_its_checkpoint(tmp_path):
    for steps in [(2, 4, 6), (4, 6, 8)]:
        (logger,) = make_loggers(["csv"], tmp_path, {})
        for step in steps:
            logger.log(step, {"a": step / 3, "b, c": float(steps[0])})
        logger.close()
    with (tmp_path / "log.csv").open(newline="") as file:
        rows = [(int(r["step"]), r["name"], float(r["value"])) for r in csv.DictReader(file)]
    assert rows == [
        (step, *pair)
        for step, first in [(2, 2.0), (4, 4.0), (6, 4.0), (8, 4.0)]
        for pair in [("a", step / 3), ("b, c", first)]
    ]


@pytest.fixture
def mlflow(monkeypatch):
    """The module and its client, as one that remembers what it is given."""
    service = MagicMock(__spec__=SimpleNamespace(name="mlflow"))
    service.MlflowClient.return_value = service
    service.active_run.return_value = service.get_experiment_by_name.return_value = None
    service.create_experiment.return_value = "7"
    service.create_run.return_value.info.run_id = "r1"
    monkeypatch.setitem(sys.modules, "mlflow", service)
    return service


def test_mlflow_gets_a_run_that_a_resumed_run_continues(tmp_path, mlflow):
    for step in (6, 12):
        (logger,) = make_loggers(["mlflow"], tmp_path / "mine", {"lr": 0.1})
        logger.log(step, {"step": float(step), "loss": 0.5})
        logger.close()
    mlflow.create_experiment.assert_called_once_with("visprism")
    mlflow.create_run.assert_called_once_with("7", run_name="mine")
    mlflow.log_param.assert_called_once_with("r1", "lr", 0.1)
    points = [call({"loss": 0.5}, step=step, run_id="r1") for step in (6, 12)]
    assert mlflow.log_metrics.call_args_list == points
    assert mlflow.set_terminated.call_args_list == [call("r1")] * 2


def test_the_active_run_of_mlflow_is_used_and_not_ended(tmp_path, mlflow):
    mlflow.active_run.return_value = SimpleNamespace(info=SimpleNamespace(run_id="theirs"))
    (logger,) = make_loggers(["mlflow"], tmp_path, {"lr": 0.1})
    logger.log(6, {"loss": 0.5})
    logger.close()
    mlflow.log_metrics.assert_called_once_with({"loss": 0.5}, step=6, run_id="theirs")
    for unused in (mlflow.create_run, mlflow.log_param, mlflow.set_terminated):
        unused.assert_not_called()

"""Laws of loggers (src/visprism/training/loggers.py)."""

import sys
from types import SimpleNamespace

import pytest
from internals import TensorBoardLogger, make_loggers
from stopped import StopError, stopping

from visprism import Run, fit

ROW = {"epoch": 1.0, "step": 6.0, "loss": 0.5}


def read(folder, name):
    """(step, value) of each point of a curve that the files hold, in order."""
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard"
    )
    accumulator = reader.EventAccumulator(str(folder / "tensorboard"), {"scalars": 0})
    return [(e.step, e.value) for e in accumulator.Reload().Scalars(name)]


@pytest.mark.parametrize(
    "checkpoint_minutes", [0.0, 10.0]
)  # a training checkpoint after every step, or every epoch
@pytest.mark.parametrize("stops", [[5], [6], [11], [7, 11, 16]])
def test_a_resumed_run_has_every_point_once(
    tmp_path, make_model, make_feed, recipe, monkeypatch, stops, checkpoint_minutes
):
    monkeypatch.setattr("visprism.training.loop._LOG_EVERY", 2)

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


class ServiceRun(SimpleNamespace):
    """Takes what a run of wandb or Trackio takes, and remembers it."""

    def log(self, values, step=None):
        self.points.append((dict(values), step))

    def finish(self):
        self.points.append("finished")


@pytest.fixture(params=["wandb", "trackio"])
def service(request, monkeypatch):
    """A module whose `init` has the arguments that both document, by name."""
    runs = []

    def init(*, project, name=None, config=None, resume="never", **more):
        assert set(more) <= ({"id"} if request.param == "wandb" else set())
        call = {"project": project, "name": name, "config": config, "resume": resume, **more}
        identity = {"id": more.get("id", "k3f9"), "name": name}
        runs.append(ServiceRun(call=call, points=[], **identity))
        return runs[-1]

    module = SimpleNamespace(init=init, __spec__=SimpleNamespace(name=request.param))
    monkeypatch.setitem(sys.modules, request.param, module)
    return request.param, runs


def test_a_service_is_called_as_its_interface_documents(service, tmp_path):
    name, runs = service
    (logger,) = make_loggers([name], tmp_path / "mine", {"lr": 0.1})
    assert not runs  # before there is anything to tell
    logger.log(6, ROW)
    logger.log(12, {"loss": 0.25})
    logger.close()
    (run,) = runs
    assert run.call == {
        "project": "visprism", "name": "mine", "config": {"lr": 0.1}, "resume": "never"
    }  # fmt: skip
    assert run.points == [({"epoch": 1.0, "loss": 0.5}, 6), ({"loss": 0.25}, 12), "finished"]


def test_a_resumed_run_continues_the_run_of_the_service(service, tmp_path):
    name, runs = service
    for step in (6, 12):
        (logger,) = make_loggers([name], tmp_path / "mine", {})
        logger.log(step, ROW)
        logger.close()
    handle = {"wandb": "id", "trackio": "name"}[name]
    assert runs[1].call["resume"] == "allow"
    assert runs[1].call[handle] == getattr(runs[0], handle)

"""The tasks of srun are the processes of a training."""

import os

import pytest

from visprism.core.processes import join_tasks

TASK = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5", "SLURM_LOCALID": "1"}
TASK |= {"SLURM_JOB_ID": "1234", "SLURM_STEP_ID": "0"}
NAMES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK")


@pytest.fixture
def environment(monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for name in NAMES:
        os.environ.pop(name, None)
    return os.environ


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("localhost", "localhost"),
        ("gpu[03-04,7]", "gpu03"),
        ("a1,b[2-3]", "a1"),
        ("n[9]", "n9"),
    ],
)
def test_a_task_is_the_process_of_its_number_and_meets_on_the_first_node(
    environment, nodes, first
):
    environment.update(TASK | {"SLURM_STEP_NODELIST": nodes})
    join_tasks()
    values = [environment[name] for name in NAMES]
    assert values == [first, str(15000 + 1234), "5", "8", "1"]


def test_a_single_task_and_torchrun_are_left_as_they_are(environment):
    for given in ({"SLURM_NTASKS": "8"}, TASK | {"WORLD_SIZE": "2"}):
        environment.update(given)
        join_tasks()
        assert "MASTER_ADDR" not in environment

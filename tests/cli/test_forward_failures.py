"""What the command line says where a model fails on the images that it is given."""

import pytest

from visprism.cli import main

MODELS = """
import torch
from torch import nn


class Two(nn.Module):
    def forward(self, x, y):
        return x


def two():
    return Two()


def grey():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.LazyLinear(10))
"""


@pytest.mark.parametrize("name", ["two", "grey"])
def test_a_model_that_wants_something_else_is_told_what_it_is_given(tmp_path, capsys, name):
    file = tmp_path / "mine.py"
    file.write_text(MODELS)
    assert main(["anatomy", f"{file}:{name}"]) == 2
    said = capsys.readouterr().err
    assert "RGB images in single precision as its only argument" in said
    assert "leave --size out" not in said
    assert "Traceback" not in said

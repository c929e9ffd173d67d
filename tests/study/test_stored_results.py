"""A stored result is used again only for the code and the folder that it belongs to."""

import os

import pytest
import torch
from torch import nn

from visprism import Finished, InputError, Study, examine
from visprism.study.fingerprints import code_of, fingerprint_of


class Scaled(nn.Module):
    """A network whose logits say nothing about its blocks: the head is zero."""

    def __init__(self, scale=1.0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.stem = nn.Conv2d(3, 4, 3, padding=1)
            self.branch = nn.Conv2d(4, 4, 3, padding=1)
            self.head = nn.Linear(4, 5)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.scale = scale

    def forward(self, x):
        x = self.stem(x)
        x = x + self.scale * self.branch(x)
        return self.head(x.mean((2, 3)))


class Rolled(Scaled):
    """The same weights in another order of operations."""

    def forward(self, x):
        x = self.stem(x)
        x = x + self.scale * self.branch(x).roll(3, 1)
        return self.head(x.mean((2, 3)))


def resumed(model, loader, out):
    """Whether each result is that of an earlier run."""
    events = []
    examine({"m": model}, loader, analyses=["variance"], out=out, listener=events.append)
    return [e.resumed for e in events if isinstance(e, Finished)]


@pytest.mark.parametrize("changed", [Scaled(-5.0), Rolled()], ids=["attribute", "forward"])
def test_a_model_of_other_code_with_the_same_weights_and_logits_is_measured(
    changed, loader, tmp_path
):
    assert resumed(Scaled().eval(), loader, tmp_path) == [False]
    assert resumed(Scaled().eval(), loader, tmp_path) == [True]
    assert resumed(changed.eval(), loader, tmp_path) == [False]


def test_the_place_of_a_method_in_its_file_does_not_matter():
    source = "class A:\n    def forward(self, x):\n        return x + {}\n"
    classes = []
    for text in (source.format(1), "\n\n\n" + source.format(1), source.format(2)):
        namespace = {"__name__": "models"}
        exec(text, namespace)
        classes.append(namespace["A"])
    first, moved, other = map(code_of, classes)
    assert first == moved
    assert first != other
    assert fingerprint_of(Scaled()) == fingerprint_of(Scaled())


def test_a_folder_that_another_run_writes_to_is_refused(net, loader, brightness, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(InputError, match="out must not be in use, and another run writes to"):
        examine(net(), loader, analyses=[brightness], out=tmp_path)
    os.close(descriptor)
    study = examine(net(), loader, analyses=[brightness], out=tmp_path)
    assert Study.load(tmp_path) == study


@pytest.mark.parametrize("error", [KeyError("x"), AttributeError("x"), TypeError("x")])
def test_an_error_of_any_type_in_one_model_does_not_cost_the_other(
    error, net, loader, brightness
):
    class Failing(type(brightness)):
        def measure(self, subject, run):
            if subject.name == "a":
                raise error
            return super().measure(subject, run)

    study = examine({"a": net(0), "b": net(1)}, loader, analyses=[Failing()])
    assert [(f.model, f.kind) for f in study.failures] == [("a", "failed")]
    assert type(error).__name__ in study.failures[0].reason
    assert [e.models for e in study.entries] == [("b",)]


def test_three_models_have_the_difference_of_each_pair(net, loader, brightness):
    models = {name: net(seed) for seed, name in enumerate("abc")}
    study = examine(models, loader, analyses=[brightness])
    (row,) = study.table()
    assert list(row.differences) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert row.difference_text().count("; ") == 2
    assert row.difference_text().startswith("b - a: ")


def test_a_loader_that_fails_is_named_with_the_batches_before(net, loader, brightness):
    def failing():
        yield from loader[:2]
        raise RuntimeError("disk gone")

    with pytest.raises(
        InputError, match="data must be readable to its end, got RuntimeError after 2 batches"
    ):
        examine(net(), failing(), analyses=[brightness])


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([torch.zeros(2, 3, 8, 8).numpy()], "images must be tensors, got ndarray. Convert"),
    ],
)
def test_targets_and_images_of_another_type_are_refused_with_the_remedy(
    batches, message, net, brightness
):
    with pytest.raises(InputError, match=message):
        examine(net(), batches, analyses=[brightness])


def test_an_empty_folder_name_and_a_flag_for_minutes_are_refused(net, loader, brightness):
    with pytest.raises(InputError, match="out must be a path or None, got ''"):
        examine(net(), loader, analyses=[brightness], out="")
    with pytest.raises(InputError, match="minutes must be a finite number or None, got True"):
        examine(net(), loader, analyses=[brightness], minutes=True)

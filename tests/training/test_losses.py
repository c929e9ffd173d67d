"""Laws of training losses (src/visprism/training/losses.py)."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from visprism import Recipe, fit
from visprism.training.losses import distillation_loss, task_loss

RECIPE = Recipe(epochs=1, batch_size=4, lr=0.1, distillation="hard", distillation_weight=0.25)
LOGITS, TARGETS = torch.tensor([[math.log(3), 0.0]]), torch.tensor([[1.0, 0.0]])


def test_cross_entropy_by_hand():
    # softmax gives 3/4 and 1/4.
    assert task_loss(LOGITS, TARGETS).item() == pytest.approx(math.log(4 / 3))
    half = torch.tensor([[0.5, 0.5]])
    expected = 0.5 * math.log(4 / 3) + 0.5 * math.log(4)
    assert task_loss(LOGITS, half).item() == pytest.approx(expected)


def test_hard_distillation_by_hand():
    # The teacher's choice is class 1, which the student gives 1/4.
    loss = distillation_loss(
        task_loss(LOGITS, TARGETS), LOGITS, torch.tensor([[0.0, 1.0]]), RECIPE
    )
    assert loss.item() == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(4))


def test_soft_distillation_by_hand():
    # At T = 2 the teacher's 4 log 2 becomes 4 : 1, the student's log 9 becomes 3 : 1.
    recipe = replace(RECIPE, distillation="soft", temperature=2.0)
    student, teacher = torch.tensor([[math.log(9), 0.0]]), torch.tensor([[math.log(16), 0.0]])
    divergence = 0.8 * math.log(0.8 / 0.75) + 0.2 * math.log(0.2 / 0.25)
    expected = 0.75 * math.log(10 / 9) + 0.25 * 4 * divergence
    loss = distillation_loss(task_loss(student, TARGETS), student, teacher, recipe)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_of_two_outputs_the_second_follows_the_teacher():
    teacher = torch.tensor([[0.0, 1.0]])
    token = torch.tensor([[0.0, math.log(9)]])
    loss = distillation_loss(task_loss(LOGITS, TARGETS), (LOGITS, token), teacher, RECIPE)
    assert loss.item() == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(10 / 9))
    maps = torch.ones(1, 2, 4, 4)
    for outputs in ((LOGITS, token), (LOGITS,), {"features": maps, "logits": LOGITS}):
        assert task_loss(outputs, TARGETS).item() == pytest.approx(math.log(4 / 3))


def test_the_student_of_a_teacher_alone_learns_its_classes(make_model, make_feed, recipe):
    """With all weight on a teacher that says the opposite of the labels, it does so too."""

    class Contrary(nn.Module):
        def forward(self, x):
            halves = x.unflatten(3, (2, 2)).mean((1, 2, 4))
            return halves.flip(1)  # class 0 is where the left is bright

    recipe = replace(recipe, distillation="hard", distillation_weight=1.0)
    student, feed = make_model(), make_feed(recipe)
    fit(student, feed, recipe, teacher=Contrary())
    images, probabilities = next(iter(feed.epoch(0)))
    assert (student(images).argmax(1) != probabilities.argmax(1)).all()

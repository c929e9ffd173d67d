"""Schedules: the learning rate of each step, a function of its number alone."""

import math

from visprism.training.recipe import Recipe


def learning_rate(step: int, steps_per_epoch: int, recipe: Recipe) -> float:
    """Learning rate of a step, from 0 on.

    Over the w steps of the warm-up it rises as lr k / w, so the first step has 0. Of the k-th
    step after it, of K in all, it is

    - ``"cosine"``: lr (1 + cos(pi k / K)) / 2;
    - ``"cosine by epoch"``: the same, k cut down to a whole epoch, as the paper's code has it;
    - ``"step"``: lr times `factor` for each of `milestones` that is past;
    - ``"constant"``: lr.

    Source: Loshchilov and Hutter (2017), SGDR, eq. 5.
    """
    steps = recipe.epochs * steps_per_epoch
    warm = warm_steps(steps_per_epoch, recipe)
    if step < warm:
        return recipe.lr * step / warm
    past = step - warm
    if recipe.schedule == "constant":
        return recipe.lr
    if recipe.schedule == "step":
        passed = sum(past >= round(m * steps_per_epoch) for m in recipe.milestones)
        return recipe.lr * recipe.factor**passed
    if recipe.schedule == "cosine by epoch":
        past -= past % steps_per_epoch
    return recipe.lr * 0.5 * (1 + math.cos(math.pi * past / (steps - warm)))


def warm_steps(steps_per_epoch: int, recipe: Recipe) -> int:
    """Number of steps of the warm-up."""
    return round(recipe.warmup * steps_per_epoch)

"""Laws of recipes (src/visprism/training/recipe.py, recipes.py, recipe_files.py)."""

from dataclasses import replace

import pytest
from torch import nn

import visprism as vp
from visprism import RECIPES, InputError, Recipe, load_recipe, read_metadata, save_checkpoint
from visprism.training.recipe import as_yaml, recipe_fields, recipe_from_fields

RECIPE = Recipe(epochs=3, batch_size=8, lr=0.05)


def test_the_strong_recipe_is_that_of_the_paper():
    # Park and Kim (2022), appendix A.
    strong = recipe_fields(RECIPES["strong_cifar"]())
    assert {
        "optimizer": "adamw", "lr": 1.25e-4, "weight_decay": 0.05, "decay_params": "all",
        "batch_size": 96, "warmup": 5.0, "epochs": 305, "clip": 5.0, "smoothing": 0.1,
        "mixup": 1.0, "cutmix": 0.8, "mix_probability": 1.0, "padding": 4, "flip": 0.5,
        "rand_augment": "rand-m9-n2-mstd1.0", "drop_path": 0.1, "erasing": 0.0,
    }.items() <= strong.items()  # fmt: skip
    large = recipe_fields(RECIPES["strong_imagenet"]())
    different = {name: large[name] for name in large if large[name] != strong[name]}
    assert different == {
        "batch_size": 128, "rand_augment": "rand-m9-n2-mstd0.5", "erasing": 0.25, "clip": 0.0,
        "padding": 0, "area": 0.08, "erasing_mode": "const", "crop_interpolation": "random",
    }  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_comes_back_from_yaml_and_from_metadata(name, tmp_path):
    recipe, path = RECIPES[name](), tmp_path / "recipe.yaml"
    path.write_text(as_yaml(recipe))
    assert load_recipe(str(path)) == recipe
    save_checkpoint(nn.Linear(1, 1), tmp_path / "a.safetensors", recipe=recipe)
    assert recipe_from_fields(read_metadata(tmp_path / "a.safetensors").recipe) == recipe


def test_a_file_may_begin_with_a_recipe(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("base: weak_cnn\nlr: 1e-3\nmilestones: [60, 120]\nflip: 0\n")
    recipe = load_recipe(str(path))
    weak = RECIPES["weak_cnn"]()
    augmentation = replace(weak.augmentation, flip=0.0)
    expected = replace(weak, lr=1e-3, milestones=(60, 120), augmentation=augmentation)
    assert recipe == expected


def test_what_was_for_another_schedule_or_optimizer_goes_with_it():
    weak = RECIPES["weak_cnn"]()
    assert weak.milestones
    assert weak.replace(**{"schedule": "cosine"}).milestones == ()
    distil = RECIPES["distill"]().replace(**{"temperature": 2, "distillation": "soft"})
    assert distil.replace(**{"distillation": "none"}).temperature == Recipe.temperature
    with pytest.raises(InputError, match="milestones must be none without schedule=step, got"):
        weak.replace(**{"schedule": "cosine", "milestones": "60"})


def test_fewer_epochs_than_the_warm_up_has_shorten_it_alike():
    recipe = replace(RECIPE, epochs=8, warmup=2.0)
    assert recipe.replace(**{"epochs": 4}).warmup == 2.0
    assert recipe.replace(**{"epochs": 1}).warmup == 0.25
    with pytest.raises(InputError, match=r"warmup must be less than epochs \(2\), got 2"):
        recipe.replace(**{"epochs": 2, "warmup": 2})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer of at least 1, got 0"),
        ({"lr": -1.0}, r"lr must be a number above 0, got -1\.0"),
        ({"lr": float("nan")}, "lr must be a number above 0, got nan"),
        ({"warmup": 3.0}, r"warmup must be less than epochs \(3\), got 3\. Set warmup=0"),
        ({"grad_accum_steps": 9}, r"grad_accum_steps must be at most batch_size \(8\), got 9"),
        ({"schedule": "step"}, r"below epochs - warmup \(3\) .*, got none"),
        ({"schedule": "step", "milestones": (1, 3)}, r"milestones must be below .*, got 1,3"),
        ({"milestones": (1, 2)}, "milestones must be none without schedule=step, got 1,2"),
        ({"lr_decay": 0.5}, r"lr_decay must be 0\.2 without schedule=step, got 0\.5"),
        ({"adaptive": True}, "adaptive must be False without SAM, such as sam_rho=0.5, got"),
        ({"distillation": "hard", "temperature": 1.0}, "temperature must be 3 without"),
    ],
)
def test_a_recipe_that_cannot_be_followed(wrong, message):
    with pytest.raises(ValueError, match=message):
        replace(RECIPE, **wrong)


def test_the_recipe_without_augmentation_is_that_of_the_papers_code():
    """configs/cifar100_vit_noaug.yaml: neither auto_augment, re_prob, mixup nor max_norm."""
    strong, plain = (
        recipe_fields(RECIPES[name]()) for name in ("strong_cifar", "cifar100_vit_noaug")
    )
    different = {name: plain[name] for name in plain if plain[name] != strong[name]}
    assert different == {
        "clip": 0.0, "rand_augment": "", "mixup": 0.0, "cutmix": 0.0, "smoothing": 0.0,
    }  # fmt: skip


def test_the_general_imagenet_recipe_is_that_of_the_papers_code():
    """configs/imagenet_general.yaml: SGD for 90 epochs after one of warm-up."""
    general = recipe_fields(RECIPES["imagenet_general"]())
    assert {
        "optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4,
        "decay_params": "all", "batch_size": 256, "epochs": 91, "warmup": 1.0,
        "schedule": "step", "milestones": [30, 60, 80], "lr_decay": 0.1, "clip": 0.0,
        "area": 0.08, "flip": 0.5, "crop_interpolation": "random", "erasing": 0.0,
        "rand_augment": "", "mixup": 0.0, "cutmix": 0.0, "smoothing": 0.0, "drop_path": 0.0,
    }.items() <= general.items()  # fmt: skip


def test_milestones_follow_the_epochs_and_names_of_other_trainers_are_known():
    short = vp.load_recipe("weak_cnn").replace(epochs=2)
    assert short.milestones == pytest.approx((0.3, 0.6, 0.8))
    with pytest.raises(vp.InputError, match=r"no field 'learning_rate'. Did you mean lr\?"):
        short.replace(learning_rate=1)
    with pytest.raises(vp.InputError, match=r"Did you mean \w+, \w+, \w+\?"):
        short.replace(foo=1)

"""Laws of recipes (src/visprism/training/recipe.py, recipes.py, settings.py)."""

from dataclasses import fields, replace

import pytest

from visprism.core.errors import InputError
from visprism.data import Augmentation
from visprism.training import RECIPES, Recipe, as_yaml, changed, load_recipe
from visprism.training.settings import flat

RECIPE = Recipe(epochs=3, batch_size=8, lr=0.05)


def test_the_strong_recipe_is_that_of_the_paper():
    # Park and Kim (2022), appendix A.
    strong = flat(RECIPES["strong_cifar"]())
    assert {
        "optimizer": "adamw", "lr": 1.25e-4, "weight_decay": 0.05, "decay": "all",
        "batch_size": 96, "warmup": 5.0, "epochs": 305, "clip": 5.0, "smoothing": 0.1,
        "mixup": 1.0, "cutmix": 0.8, "mix_probability": 1.0, "padding": 4, "flip": 0.5,
        "rand_augment": "rand-m9-n2-mstd1.0", "drop_path": 0.1, "erasing": 0.0,
    }.items() <= strong.items()  # fmt: skip
    large = flat(RECIPES["strong_imagenet"]())
    different = {name: large[name] for name in large if large[name] != strong[name]}
    assert different == {
        "batch_size": 128, "rand_augment": "rand-m9-n2-mstd0.5", "erasing": 0.25, "clip": 0.0,
        "padding": 0, "area": 0.08,
    }  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_comes_back_from_yaml(name, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(as_yaml(RECIPES[name]()))
    assert load_recipe(str(path)) == RECIPES[name]()


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_opens_with_its_claim_and_its_command(name):
    doc = RECIPES[name].__doc__
    assert "Claim: " in doc
    assert "Run:   visprism " in doc


def test_no_field_of_the_augmentation_hides_one_of_the_recipe():
    assert not {f.name for f in fields(Recipe)} & {f.name for f in fields(Augmentation)}


def test_a_file_may_begin_with_a_recipe(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("base: weak_cnn\nlr: 1e-3\nmilestones: [60, 120]\nflip: 0\n")
    found = load_recipe(str(path))
    weak = RECIPES["weak_cnn"]()
    augmentation = replace(weak.augmentation, flip=0.0)
    expected = replace(weak, lr=1e-3, milestones=(60, 120), augmentation=augmentation)
    assert found == expected


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("lr", "1e-3", 1e-3),
        ("epochs", "7", 7),
        ("images", "none", None),
        ("images", "50", 50),
        ("compile", "true", True),
        ("schedule", "cosine by epoch", "cosine by epoch"),
        ("optimizer", "lamb", "lamb"),
    ],
)
def test_text_becomes_what_its_field_is(name, text, value):
    assert getattr(changed(RECIPE, {name: text}), name) == value


def test_milestones_are_numbers_with_commas_between_them():
    steps = {"schedule": "step", "epochs": "200", "milestones": "60,120,160"}
    assert changed(RECIPE, steps).milestones == (60, 120, 160)


def test_what_was_for_another_schedule_or_optimiser_goes_with_it():
    weak = RECIPES["weak_cnn"]()
    assert weak.milestones
    assert changed(weak, {"schedule": "cosine"}).milestones == ()
    distil = changed(RECIPES["distill"](), {"temperature": 2, "distil": "soft"})
    assert changed(distil, {"distil": "none"}).temperature == Recipe.temperature
    with pytest.raises(InputError, match="milestones is 60 and would do nothing"):
        changed(weak, {"schedule": "cosine", "milestones": "60"})


def test_settings_of_mixing_go_with_it():
    mixing = {"mixup": 1, "cutmix": 1, "mix_probability": 0.4, "switch_probability": 0.3}
    recipe = changed(RECIPE, mixing)
    assert changed(recipe, {"cutmix": 0}).augmentation == Augmentation(
        mixup=1.0, mix_probability=0.4
    )
    assert changed(recipe, {"mixup": 0, "cutmix": 0}).augmentation == Augmentation()


def test_fewer_epochs_than_the_warm_up_has_shorten_it_alike():
    recipe = replace(RECIPE, epochs=8, warmup=2.0)
    assert changed(recipe, {"epochs": 4}).warmup == 2.0
    assert changed(recipe, {"epochs": 1}).warmup == 0.25
    with pytest.raises(InputError, match="warmup is 2 of 2 epochs"):
        changed(recipe, {"epochs": 2, "warmup": 2})


def test_fields_of_the_augmentation_are_named_alone_or_in_full():
    for name in ("cutmix", "augmentation.cutmix"):
        assert changed(RECIPE, {name: "0.5"}).augmentation == Augmentation(cutmix=0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 1}, "no field 'learning_rate'"),
        ({"epoch": 1}, r"no field 'epoch'; did you mean epochs"),
        ({"lr": "fast"}, "lr is 'fast'; wants a number"),
        ({"epochs": "1.5"}, r"epochs is '1\.5'; wants a whole number"),
        ({"epochs": True}, "epochs is True; wants a whole number"),
        ({"compile": "maybe"}, "compile is 'maybe'; wants true or false"),
        ({"decay": "some"}, "decay is 'some'; wants one of matrices, all"),
        ({"milestones": "60,x"}, "milestones is 'x'; wants a whole number"),
        ({"mixup": -1.0}, r"mixup is -1\.0; wants 0"),
        ({"mixup": "inf"}, "mixup is inf; wants a finite number"),
        ({"area": "nan"}, "area is nan; wants a finite number"),
        ({"smoothing": 1}, r"smoothing is 1, which leaves nothing of the class"),
        ({"lr": "1_0"}, "lr is '1_0'; wants a number"),
        ({"Epoch": 1}, r"no field 'Epoch'; did you mean epochs"),
        ({"epochs": 10**6 + 1}, "epochs is 1000001; wants at most a million"),
        ({"optimizer": "adamww"}, r"unknown optimizer 'adamww'; did you mean .*adamw"),
        ({"optimizer": "adahessian"}, "'adahessian' wants second derivatives"),
    ],
)
def test_what_is_no_field_or_not_of_its_type(changes, message):
    with pytest.raises(ValueError, match=message):
        changed(RECIPE, changes)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs is 0; wants more than 0"),
        ({"lr": -1.0}, r"lr is -1\.0; wants more than 0"),
        ({"lr": float("nan")}, "lr is nan; wants a finite number"),
        ({"clip": -1.0}, r"clip is -1\.0; wants 0 or more"),
        ({"ema": 1.0}, r"ema is 1\.0; wants a part from 0 to below 1"),
        ({"lr": float("inf")}, "lr is inf; wants a finite number"),
        ({"momentum": -3.0}, r"momentum is -3\.0; wants a part from 0 to below 1"),
        ({"factor": 0.0}, r"factor is 0\.0; wants above 0 and at most 1"),
        (
            {"milestones": (4, 2)},
            "milestones are 4, 2; wants whole epochs above 0, in ascending",
        ),
        ({"milestones": (-1, 2)}, "milestones are -1, 2; wants whole epochs above 0"),
        ({"images": 0}, "images is 0; wants 1 or more, or none: all"),
        ({"distil_weight": 1.5}, r"distil_weight is 1\.5; wants a part from 0 to 1"),
        ({"warmup": 3.0}, "warmup is 3 of 3 epochs; wants fewer, .* as --set warmup=0"),
        ({"parts": 9}, "parts is 9 for a batch of 8; wants at most one part for each image"),
        ({"schedule": "step"}, "schedule is 'step' without milestones; name the epochs"),
        (
            {"schedule": "step", "milestones": (1, 3)},
            "milestones are 1, 3 after 0 of warm-up, but training ends after 3 epochs; wants",
        ),
        (
            {"milestones": (1, 2)},
            "milestones is 1,2 and would do nothing; it is for schedule=step, without which it "
            "stays empty",
        ),
        ({"factor": 0.5}, r"factor is 0\.5 and would do nothing; it is for schedule=step"),
        (
            {"adaptive": True},
            "adaptive is true and would do nothing; it is for SAM, as sam=0.5",
        ),
        ({"momentum": 0.5}, r"momentum is 0\.5 and would do nothing; it is for optimizer=sgd"),
        ({"optimizer": "sgd", "beta2": 0.9}, r"beta2 is 0\.9 .* for optimizer=adamw, without"),
        ({"distil_weight": 0.1}, r"distil_weight is 0\.1 .* nothing; it is for a teacher"),
        (
            {"distil": "hard", "temperature": 1.0},
            r"temperature is 1\.0 .* it is for distil=soft",
        ),
    ],
)
def test_a_recipe_that_cannot_be_followed(wrong, message):
    with pytest.raises(ValueError, match=message):
        replace(RECIPE, **wrong)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1\n", "holds no fields; wants lines such as lr: 1e-3"),
        ("a: [1\n", "is no YAML"),
        ("epochs: 3\n", "lacks batch_size, lr; name them, or base"),
        ("base: [1]\n", r"has base: \[1\]; wants the name of a recipe"),
        ("base: 3\n", "has base: 3; wants the name of a recipe"),
        ("base: quick\nlr: 1\nepochs: 3\nlr: 2\n", "holds lr twice; wants it once"),
        ("base: quick\noptimizer: [a]\n", r"optimizer is \['a'\]; wants one word"),
        ("base: strong\n", "unknown recipe 'strong'; did you mean strong_"),
    ],
)
def test_a_file_that_is_no_recipe(text, message, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_recipe(str(path))


def test_a_recipe_that_is_not_there():
    with pytest.raises(ValueError, match="unknown recipe 'quik'; did you mean quick"):
        load_recipe("quik")
    with pytest.raises(ValueError, match=r"nowhere\.yaml cannot be read \(No such file"):
        load_recipe("nowhere.yaml")

"""Values that methods and classes refuse, in a sentence with the name of the argument."""

import beartype
import jaxtyping
import numpy as np
import pytest
import torch
from jaxtyping import Float
from results_by_hand.feature_maps import variances
from results_by_hand.loss import landscape, rings
from torch import nn

import visprism as vp
from visprism.core.errors import InputError

DATA = vp.load_data("shapes?size=16", limit=5)
RESULT, SURFACE, RINGS = variances(), landscape(), rings()
RECIPE = vp.Recipe(epochs=1, batch_size=4, lr=0.1)
LARGE = 10**400  # larger than any float

REFUSED = {
    "mask": (lambda: RESULT.select(np.ones(3, bool)), "rows must be a mask or indices of"),
    "row": (lambda: RESULT.select(np.array([10**6])), "rows must be a mask or indices of"),
    "column": (lambda: RESULT.intervals_of("sharpness"), "name must be one of"),
    "quantity": (lambda: SURFACE.table("sharpness", 0), "name must be one of"),
    "pair": (lambda: SURFACE.table("nll", -1), "pair must be one of"),
    "radius": (
        lambda: RINGS.pair_means("frozen", -1.0),
        "batch_norm and radius must have been",
    ),
    "positions": (
        lambda: DATA.subset(np.array([5])),
        "positions must be between 0 and 4, got 5",
    ),
    "batch size": (
        lambda: vp.Batches(DATA, vp.Preprocessing((16, 16)), 0, range(1)),
        "batch_size must be positive, got 0",
    ),
    "data sets": (
        lambda: vp.hessian_spectrum(nn.Linear(2, 2), {}),
        "batches must hold at least one data set",
    ),
    "heads": (
        lambda: vp.relative_scores(torch.zeros(0, 3, 3)),
        "table must hold at least one head",
    ),
    "integer of a recipe": (
        lambda: RECIPE.replace(epochs=float("inf")),
        "epochs must be an integer",
    ),
    "name of a registry": (lambda: vp.MODELS[3], "unknown model 3"),
    "values of a mapping": (
        lambda: vp.save_checkpoint(nn.Linear(2, 2), "unused", metrics={"accuracy": "high"}),
        "metrics must be a mapping of texts to finite numbers or None",
    ),
    "number of an analysis": (lambda: vp.CKA(bandwidth=LARGE), "bandwidth must be a number"),
}


@pytest.fixture(autouse=True)
def without_type_checks(monkeypatch):
    """The type checks of the tests are off, as where a user calls the package."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize(("refused", "message"), REFUSED.values(), ids=REFUSED)
def test_a_value_is_refused_in_a_sentence_with_its_name(refused, message):
    with pytest.raises(InputError, match=message):
        refused()


def test_a_caller_may_use_the_same_names_of_axes(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", False)

    @jaxtyping.jaxtyped(typechecker=beartype.beartype)
    def chosen(scores: Float[np.ndarray, " m"], number: int) -> vp.ImageSet:
        return DATA.subset(np.argsort(scores)[:number])

    assert len(chosen(np.arange(5.0), 2)) == 2


def test_the_type_and_shape_of_an_array_are_named():
    with pytest.raises(InputError, match=r"positions must be an array of type int and shape"):
        DATA.subset(np.zeros(2))

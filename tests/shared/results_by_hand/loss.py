"""Results of the loss and of training, written by hand."""

import numpy as np

from results_by_hand.base import PROVENANCE, complete
from visprism.estimates.estimated import Estimated
from visprism.results import (
    CurvatureDuringTraining,
    Eigenvalues,
    Evolution,
    HessianCurves,
    History,
    LossByDistance,
    LossIncrease,
    LossSurface,
    SpectralDensity,
    WeightTrajectory,
)


def history():
    return complete(
        History,
        epoch=np.array([1, 2, 3]),
        step=np.array([10, 20, 30]),
        train_loss=np.array([2.0, 1.2, 0.9]),
        test_accuracy=np.array([0.3, np.nan, 0.6]),
        test_nll=np.array([1.9, np.nan, 1.1]),
        ema_accuracy=np.array([0.2, np.nan, 0.65]),
        ema_nll=np.array([2.1, np.nan, 1.0]),
    )


def landscape():
    """Two planes of 5 x 5 points; beyond a corner of the first the loss is infinite."""
    b, a = (axis.ravel() for axis in np.meshgrid(*[np.linspace(-1, 1, 5)] * 2, indexing="ij"))
    pair = np.repeat([0, 1], 25)
    a, b = np.tile(a, 2), np.tile(b, 2)
    nll = 0.5 + (a**2 + 4 * b**2) * (1 + pair) * 2
    return complete(
        LossSurface,
        pair=pair,
        a=a,
        b=b,
        nll=np.where((pair == 0) & (a + b > 1.9), np.inf, nll),
        rise=nll - 0.5,
        classes=10,
    )


def trajectory():
    return complete(
        WeightTrajectory,
        snapshot=np.arange(4),
        first=np.array([-3.0, -1.0, 1.5, 2.5]),
        second=np.array([-1.0, 1.0, 0.5, -0.5]),
        step=np.array([np.nan, 2.8, 2.5, 1.4]),
        first_share=0.7,
        second_share=0.2,
        distance=5.6,
    )


def training_curvature():
    """Adam at its edge: two matrices after each of three steps."""
    return complete(
        CurvatureDuringTraining,
        step=np.repeat([100, 200, 300], 2),
        matrix=np.tile(["hessian", "preconditioned"], 3),
        point=np.full(6, "weights"),
        rank=np.ones(6, dtype=int),
        eigenvalue=np.array([10.0, 2e4, 30.0, 3.7e4, 25.0, 3.9e4]),
        converged=np.array([True] * 5 + [False]),
        threshold=np.tile([np.nan, 3.8e4], 3),
        alignment=np.tile([0.2, 0.1], 3),
        optimizer="AdamW",
        parameters=1000,
        tol=0.01,
    )


def evolution():
    """The accuracy of two parts after three steps."""
    value = np.array([0.1, 0.4, 0.6, 0.2, 0.3, 0.3])
    return Evolution(
        step=np.tile([0, 100, 200], 2),
        part=np.repeat(["conv", "mlp"], 3),
        value=Estimated(value, value - 0.05, value + 0.05),
        quantity="accuracy",
        unit="%",
        provenance=PROVENANCE,
    )


def hessian_curves():
    return HessianCurves(
        sign=np.array([-1, -1, -1, 1, 1, 1]),
        value=np.array([-1.0, -2.0, -4.0, 5.0, 10.0, 20.0]),
        density=np.array([0.0, 0.05, 0.0, 0.0, 0.08, 0.0]),
        provenance=PROVENANCE,
    )


def eigenvalues():
    return complete(
        Eigenvalues,
        rank=np.arange(1, 4),
        value=np.array([10.0, -8.0, 5.0]),
        residual=np.array([0.01, 0.1, 1.0]),
        converged=np.array([True, True, False]),
        which="LM",
        tol=1e-3,
        nll=1.5,
    )


def spectral_density():
    return complete(
        SpectralDensity,
        run=np.repeat([0, 1], 3),
        node=np.array([-2.0, 0.0, 50.0, -1.5, 0.1, 49.0]),
        weight=np.array([1e-3, 0.998, 1e-3, 2e-3, 0.997, 1e-3]),
        parameters=1000,
        nll=1.5,
    )


def loss_by_distance():
    radii = np.array([0.1, 0.5, 1.0])
    by_pair = np.stack([0.9 * radii**2, 1.1 * radii**2])
    return complete(
        LossByDistance,
        batch_norm=np.full(3, "frozen"),
        radius=radii,
        rise=Estimated(radii**2, 0.8 * radii**2, 1.2 * radii**2, by_pair),
        pairs=2,
        classes=10,
    )


def sharpness():
    by_batch = np.linspace(0.1, 0.4, 24).reshape(2, 12).T
    return complete(
        LossIncrease,
        measure=np.array(["sam", "gaussian"]),
        rho=np.array([0.05, 1.0]),
        steps=np.array([1, 0]),
        sharpness=Estimated(by_batch.mean(0), by_unit=by_batch),
        batches=12,
    )

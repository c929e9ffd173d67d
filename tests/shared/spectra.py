"""Hessian spectra with given eigenvalues."""

import numpy as np

from visprism.results import HessianSpectrum


def spectrum_of(values):
    """A spectrum with these leading eigenvalues, one row of `values` for each mini-batch."""
    values = np.asarray(values, dtype=float)
    n, k = values.shape
    full = np.concatenate([values, values.max(1)[:, None], values.min(1)[:, None]], 1)
    rows = n * (k + 2)
    return HessianSpectrum(
        batch=np.repeat(np.arange(n), k + 2),
        nll=np.repeat(np.arange(n) + 1.0, k + 2),
        which=np.tile([*["LM"] * k, "LA", "SA"], n),
        rank=np.tile([*range(1, k + 1), 0, 0], n),
        value=full.ravel(),
        residual=np.zeros(rows),
        converged=np.ones(rows, dtype=bool),
        k=k,
        tol=1e-2,
        parameters=100,
        products=1,
    )

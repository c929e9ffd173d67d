"""Laws of eigenpairs and Krylov spaces (src/visprism/loss/krylov.py), on matrices."""

import numpy as np
import pytest
import torch

from visprism.core.run import stream
from visprism.loss.krylov import Request
from visprism.loss.krylov import eigenpairs as eigenpairs_of


def eigenpairs(product, first, *, k, which="LM", **options):
    """What is found for a single request."""
    (pairs,) = eigenpairs_of(product, first, [Request(k, which)], **options)
    return pairs


def matrix(spectrum, seed=0):
    """A symmetric matrix with these eigenvalues and random eigenvectors."""
    values = torch.as_tensor(spectrum, dtype=torch.float64)
    noise = torch.randn(len(values), len(values), generator=stream(seed, "matrix"))
    vectors = torch.linalg.qr(noise.double()).Q
    return (vectors * values) @ vectors.T


def operator(matrix):
    """The product of a symmetric matrix with each row."""
    return lambda V: V @ matrix.to(V)


def start(p, seed=0, dtype=torch.float64):
    return torch.randn(p, generator=stream(seed, "start")).to(dtype)


# A bulk and outliers at both ends, as a Hessian has them.
HESSIAN = [*np.linspace(-1, 1, 180), -40.0, -25.0, -8.0, 100.0, 60.0, 41.0, 33.0, 12.0, 9.0]


# What it computes.
@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("LM", [100, 60, 41, -40, 33]),
        ("LA", [100, 60, 41, 33, 12]),
        ("SA", [-40, -25, -8, -1, -1 + 2 / 179]),
        ("BE", [100, 60, 41, -40, -25]),
    ],
)
def test_the_eigenvalues_asked_for_come_in_their_order(which, expected):
    A = matrix(HESSIAN)
    pairs = eigenpairs(operator(A), start(len(A)), k=5, which=which, tol=1e-10)
    np.testing.assert_allclose(pairs.values, expected, rtol=1e-9)
    assert pairs.converged.all()
    residual = (pairs.vectors @ A - pairs.values[:, None] * pairs.vectors).norm(dim=1)
    assert (residual <= pairs.residuals + 1e-9).all()


def test_a_full_basis_is_compressed_and_the_answer_is_the_same():
    A = matrix(np.concatenate([np.linspace(1, 50, 300), [50.5, 51, 51.5]]))
    pairs = eigenpairs(operator(A), start(303), k=3, tol=1e-9, max_products=900)
    assert pairs.products > 2 * 3 + 20 + 2  # more than the basis holds
    np.testing.assert_allclose(pairs.values, [51.5, 51, 50.5], rtol=1e-9)


def test_a_space_that_is_exhausted_early_goes_on_in_a_new_direction():
    A = torch.diag(torch.tensor([3.0, 2.0, 1.0, -5.0], dtype=torch.float64))
    first = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)  # an eigenvector
    pairs = eigenpairs(operator(A), first, k=4, which="LA")
    np.testing.assert_allclose(pairs.values, [3, 2, 1, -5], atol=1e-12)


@pytest.mark.parametrize(
    ("which", "expected"), [("SA", [-2, 0, 0, 0, 0]), ("LA", [3, 2, 2, 2, 0])]
)
def test_copies_of_an_eigenvalue_are_found_before_what_comes_after_them(which, expected):
    A = matrix([3.0, -2.0, 2.0, 2.0, 2.0, *np.zeros(100)])
    pairs = eigenpairs(operator(A), start(105), k=5, which=which)
    np.testing.assert_allclose(pairs.values, expected, atol=1e-12)
    nonzero = np.array(expected) != 0
    np.testing.assert_array_equal(pairs.converged, nonzero)  # of 0 no relative error is known


def test_what_lies_at_the_rounding_of_products_is_not_said_to_have_converged():
    A = matrix([1000.0, 1e-3, -1e-3, 5e-4, *np.zeros(100)])
    single = start(104, dtype=torch.float32)
    pairs = eigenpairs(operator(A), single, k=5, which="SA")
    said = pairs.converged
    assert (pairs.residuals[said] <= 1e-3 * pairs.values[said].abs()).all()
    assert pairs.values.max() < 1  # 1000 is no small eigenvalue
    assert pairs.products < 100


def synthetic_spectrum(kind, seed, p=1500):
    """Spectra that mislead a test of convergence: clusters, both signs, or low rank."""
    rng = np.random.default_rng([seed, len(kind)])
    spectrum = np.zeros(p)
    if kind == "clusters":
        pairs = np.repeat(10 ** rng.uniform(0, 2, rng.integers(4, 9)), 2)
        pairs *= (1 + 10 ** rng.uniform(-4, -1, len(pairs))) * rng.choice([-1, 1], len(pairs))
        spectrum[: len(pairs)] = pairs
        spectrum[len(pairs) :] = rng.normal(0, 0.5, p - len(pairs))
    elif kind == "both signs":
        positive = 10 ** rng.uniform(0, 2, 10)
        spectrum[:10], spectrum[10:20] = positive, -positive * rng.uniform(0.8, 1.2, 10)
        spectrum[20:] = rng.normal(0, 0.3, p - 20)
    else:
        rank = rng.integers(12, 60)
        spectrum[:rank] = rng.choice([-1, 1], rank, p=[0.3, 0.7]) * 10 ** rng.uniform(
            -1, 2, rank
        )
    return spectrum


@pytest.mark.parametrize(
    ("number", "most"), [(30, 0), pytest.param(400, 1 / 200, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", ["clusters", "both signs", "low rank"])
def test_a_converged_flag_is_wrong_at_most_once_in_200_spectra(kind, number, most):
    """In single precision, at the default tolerance of mini-batch spectra."""
    wrong, tol = 0, 1e-2
    for seed in range(number):
        spectrum = synthetic_spectrum(kind, seed)
        diagonal = torch.tensor(spectrum, dtype=torch.float32)
        first = torch.randn(len(spectrum), generator=stream(seed, "start"))
        pairs = eigenpairs(lambda V, d=diagonal: V * d, first, k=5, tol=tol)
        exact = np.sort(np.abs(spectrum))[::-1][:5]
        error = np.abs(np.abs(pairs.values.double().numpy()) - exact) / exact
        wrong += bool(pairs.converged.all()) and bool((error > tol).any())
    assert wrong / number <= most


def test_a_budget_ends_it_and_says_that_nothing_has_converged():
    A = matrix(np.linspace(0, 1, 400))
    pairs = eigenpairs(operator(A), start(400), k=3, tol=1e-12, max_products=6)
    assert pairs.products == 6
    assert not pairs.converged.any()
    exact = np.linspace(0, 1, 400)
    nearest = np.abs(pairs.values.numpy()[:, None] - exact).min(1)
    assert (nearest <= pairs.residuals.numpy() + 1e-12).all()

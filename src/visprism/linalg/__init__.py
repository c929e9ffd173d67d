"""Linear algebra of symmetric operators given by their products with vectors.

An operator is a function V -> A V of a tensor (b, s, p): b independent operators side by side,
each applied to s vectors of length p, which are rows.
"""

from visprism.linalg.eigenpairs import WHICH, Eigenpairs, Request, Which, eigenpairs
from visprism.linalg.krylov import Krylov, Product, Ritz
from visprism.linalg.quadrature import Quadrature, quadrature
from visprism.linalg.trace import TraceEstimates, hutchinson, hutchpp

__all__ = [
    "WHICH",
    "Eigenpairs",
    "Krylov",
    "Product",
    "Quadrature",
    "Request",
    "Ritz",
    "TraceEstimates",
    "Which",
    "eigenpairs",
    "hutchinson",
    "hutchpp",
    "quadrature",
]

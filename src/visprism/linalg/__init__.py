"""Linear algebra of symmetric operators that are known by their products alone.

An operator is a function V -> A V of a tensor (b, s, p): b independent operators side by side,
each applied to s vectors of length p, which are rows. Nothing here knows of networks.
"""

from visprism.linalg.eigenpairs import WHICH, Eigenpairs, Request, Which, eigenpairs
from visprism.linalg.krylov import Krylov, Product, Ritz
from visprism.linalg.quadrature import Quadrature, quadrature
from visprism.linalg.trace import Samples, hutchinson, hutchpp

__all__ = [
    "WHICH",
    "Eigenpairs",
    "Krylov",
    "Product",
    "Quadrature",
    "Request",
    "Ritz",
    "Samples",
    "Which",
    "eigenpairs",
    "hutchinson",
    "hutchpp",
    "quadrature",
]

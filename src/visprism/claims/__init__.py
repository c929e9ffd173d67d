"""The claims of Park & Kim (2022) as experiments: trained networks, rules and verdicts."""

from visprism.claims.claim import Claim, Hypothesis
from visprism.claims.decisions import Decision, decide
from visprism.claims.experiment import RawNumbers, run_claims
from visprism.claims.paper import CLAIMS
from visprism.claims.report import page
from visprism.claims.verdicts import ClaimVerdict, effects_of, trained_runs, verdicts_of

__all__ = [
    "CLAIMS",
    "Claim",
    "ClaimVerdict",
    "Decision",
    "Hypothesis",
    "RawNumbers",
    "decide",
    "effects_of",
    "page",
    "run_claims",
    "trained_runs",
    "verdicts_of",
]

"""Verdicts: what the raw numbers of an experiment say about each claim."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from visprism.claims.claim import Claim, Hypothesis
from visprism.claims.decisions import Decision, Verdict, decide, joint
from visprism.claims.experiment import RawNumbers
from visprism.claims.paper import CLAIMS
from visprism.core.provenance import Provenance
from visprism.results.claims import ClaimEffects, ClaimRuns

DEPENDS = "depends on the protocol"


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim, what was decided about each of its hypotheses, and what follows."""

    claim: Claim
    decisions: Mapping[Hypothesis, Decision]

    @property
    def by_protocol(self) -> dict[str, Verdict]:
        """The verdict under each protocol; hypotheses of one protocol hold together."""
        protocols = dict.fromkeys(h.protocol for h in self.claim.hypotheses)
        return {
            protocol: joint(
                [d.verdict for h, d in self.decisions.items() if h.protocol == protocol]
            )
            for protocol in protocols
        }

    @property
    def verdict(self) -> str:
        """That of all protocols; protocols that are decided differently are said to be."""
        verdicts = set(self.by_protocol.values())
        if len(verdicts) == 1:
            return verdicts.pop()
        if {"supported", "contradicted"} <= verdicts:
            return DEPENDS
        return "undecided"


def verdicts_of(raw: RawNumbers) -> list[ClaimVerdict]:
    """A verdict on each claim for which every arm has at least one measured network."""
    verdicts = []
    for claim in CLAIMS.values():
        values = {h: _values(raw, h) for h in claim.hypotheses}
        if all(t and (c is None or c) for t, c in values.values()):
            decisions = {
                h: decide(t, c, h.direction, logarithm=h.measured.logarithm and c is not None)
                for h, (t, c) in values.items()
            }
            verdicts.append(ClaimVerdict(claim, decisions))
    return verdicts


def effects_of(verdicts: Iterable[ClaimVerdict], raw: RawNumbers) -> ClaimEffects:
    """The decisions of all claims as one table."""
    rows = [(v.claim.code, h, d) for v in verdicts for h, d in v.decisions.items()]
    hypotheses, decisions = [h for _, h, _ in rows], [d for _, _, d in rows]
    return ClaimEffects(
        claim=np.array([code for code, _, _ in rows], dtype=str),
        protocol=np.array([h.protocol for h in hypotheses], dtype=str),
        quantity=np.array([h.quantity for h in hypotheses], dtype=str),
        treatment=np.array([h.treatment for h in hypotheses], dtype=str),
        control=np.array([h.control for h in hypotheses], dtype=str),
        direction=np.array([h.direction for h in hypotheses], dtype=str),
        unit=np.array([_unit(h) for h in hypotheses], dtype=str),
        effect=np.array([d.effect for d in decisions], dtype=float),
        low=np.array([d.low for d in decisions], dtype=float),
        high=np.array([d.high for d in decisions], dtype=float),
        seeds=np.array([d.seeds[0] for d in decisions], dtype=int),
        control_seeds=np.array(
            [d.seeds[1] if len(d.seeds) > 1 else 0 for d in decisions], dtype=int
        ),
        verdict=np.array([d.verdict for d in decisions], dtype=str),
        reason=np.array([d.reason for d in decisions], dtype=str),
        seeds_to_decide=np.array([d.seeds_to_decide for d in decisions], dtype=int),
        scale=raw.scale,
        provenance=_provenance(raw),
    )


def trained_runs(raw: RawNumbers) -> ClaimRuns:
    """The trained networks as one table."""
    runs = raw.runs
    return ClaimRuns(
        run=np.array([r.name for r in runs], dtype=str),
        arm=np.array([r.arms[0] for r in runs], dtype=str),
        seed=np.array([r.seed for r in runs], dtype=int),
        images=np.array([r.images for r in runs], dtype=int),
        epochs=np.array([r.epochs for r in runs], dtype=int),
        minutes=np.array([r.minutes for r in runs], dtype=float),
        accuracy=np.array([r.accuracy[0] for r in runs], dtype=float),
        low=np.array([r.accuracy[1] for r in runs], dtype=float),
        high=np.array([r.accuracy[2] for r in runs], dtype=float),
        provenance=_provenance(raw),
    )


def _values(raw: RawNumbers, h: Hypothesis) -> tuple[list[float], list[float] | None]:
    control = raw.values(h.control, h.quantity) if h.control else None
    return raw.values(h.treatment, h.quantity), control


def _unit(hypothesis: Hypothesis) -> str:
    quantity = hypothesis.measured
    return "ratio" if quantity.logarithm and hypothesis.control else quantity.unit


def _provenance(raw: RawNumbers) -> Provenance:
    return Provenance.from_stored({**raw.origin, "data": raw.data})

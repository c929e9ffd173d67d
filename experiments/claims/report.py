"""The report of the study of claims: effects with verdicts as a table, a picture and a page."""

from math import isfinite, nan
from pathlib import Path
from tempfile import TemporaryDirectory

import jinja2
import msgspec
import numpy as np
from markupsafe import Markup

import visprism as vp
from experiments.claims import effects as results
from experiments.claims.effects import ClaimEffects
from experiments.claims.experiment import RawNumbers
from experiments.claims.hypotheses import PRIMARY, WARM_UP, Hypothesis, secondary_of
from experiments.claims.networks import scale_of
from experiments.claims.statements import STATEMENTS
from experiments.claims.verdicts import (
    CANT_TELL,
    NO_EFFECT,
    NOT_RUN,
    PRELIMINARY,
    Decision,
    decide,
    decide_all,
    estimate,
)


def effects_of(raw: RawNumbers) -> ClaimEffects:
    """Each primary hypothesis of the scale, at equal training NLL too; then secondary ones."""
    scale = raw.networks
    primary = {row: h for row, h in PRIMARY.items() if h.testable(scale)}
    family = {row: raw.tested(h) for row, h in primary.items()}
    decided = decide_all(family, fewest_seeds=scale.fewest_seeds, holm=len(family))
    rows = []
    for row, h in primary.items():
        decision, note = decided[row], ""
        equal, effects, sign = None, np.array([]), 1
        if h.equal_fit:
            effects, sign = raw.tested(h, at_equal_fit=True).weakest()
            equal = decide(
                effects,
                h.margin,
                sign=sign,
                confidence=decision.confidence,
                fewest_seeds=scale.fewest_seeds,
            )
            both = {equal.verdict, decision.verdict}
            if len(both) == 2 and not both & {NOT_RUN, PRELIMINARY}:
                note = f"at equal training NLL: {equal.verdict}"
        if decision.verdict in (NOT_RUN, PRELIMINARY):
            missing = _missing(raw, h)
            other = "the networks have none" if _measured(raw, h) else "not measured"
            note = f"needs {missing} more networks" if missing else other
        seeds, side = family[row].weakest()
        rows.append(_row(raw, h, results.PRIMARY, decision, seeds, side, note))
        if equal is not None:
            rows.append(_row(raw, h, results.EQUAL_FIT, equal, effects, sign, ""))
    for h in secondary_of(primary.values(), scale):
        effects, sign = raw.tested(h).weakest()
        if len(effects):
            d = estimate(effects)
            rows.append(_row(raw, h, results.SECONDARY, d, effects, sign, ""))
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    origin = msgspec.convert({**raw.origin, "data": raw.data}, vp.Provenance)
    return ClaimEffects(**columns, scale=raw.scale, provenance=origin)


def _missing(raw: RawNumbers, h: Hypothesis) -> int:
    """How many networks a row needs."""
    trained = {(name, run.seed) for run in raw.runs for name in run.networks}
    needed = {(name, seed) for name in h.networks for seed in raw.networks.seeds}
    return len(needed - trained)


def _measured(raw: RawNumbers, h: Hypothesis) -> bool:
    """Whether the quantity was looked for in each network of a row."""
    keys = [
        run.quantities.keys() for name in h.networks for run in raw.of_network(name).values()
    ]
    return all(any(k.startswith(f"{h.quantity} @") for k in stored) for stored in keys)


def _row(
    raw: RawNumbers,
    h: Hypothesis,
    comparison: str,
    d: Decision,
    effects: np.ndarray,
    sign: int,
    note: str,
) -> dict[str, object]:
    """A row of the effects. Effects of too few seeds for an interval are not stated."""
    verdict = "" if comparison == results.SECONDARY else str(d.verdict)
    plain = estimate(effects)
    if verdict == CANT_TELL and (plain.low > 0 or plain.high < 0):
        verdict += results.AFTER_ADJUSTMENT
    stated = d if verdict != NOT_RUN else Decision(nan, nan, nan, d.seeds)
    if d.below_margin and verdict.startswith(("reproduced", "opposite")):
        note = "; ".join(filter(None, ["smaller than the margin", note]))
    return {
        "row": h.row,
        "words": h.words,
        "comparison": comparison,
        "hypothesis": h.text(raw.networks),
        "quantity": str(h.quantity) + (f", {WARM_UP}" if h.phase == WARM_UP else ""),
        "sign": sign,
        "unit": results.RATIO if h.logarithm else h.unit,
        "effect": stated.effect,
        "low": stated.low,
        "high": stated.high,
        "confidence": stated.confidence if isfinite(stated.low) else nan,
        "plain_low": plain.low if stated is d else nan,
        "plain_high": plain.high if stated is d else nan,
        "seeds": d.seeds,
        "seeds_of_claim": int((sign * effects > 0).sum()),
        "margin": h.margin,
        "verdict": verdict,
        "seeds_needed": d.seeds_needed,
        "seeds_needed_observed": d.seeds_needed_observed,
        "note": note,
        "networks": "; ".join(raw.fits(h)),
    }


HEADER = (
    "row",
    "hypothesis",
    "effect [interval]",
    "unadjusted 95% interval",
    "seeds on the side of the claim",
    "margin",
    "verdict",
    "seeds for 80% power: observed effect; margin",
    "networks",
)


def table(effects: ClaimEffects, comparison: str) -> list[tuple[str, ...]]:
    """The rows of one comparison as text, in the columns of `HEADER`."""
    lines: list[tuple[str, ...]] = []
    for i in np.flatnonzero(effects.comparison == comparison).tolist():
        verdict = str(effects.verdict[i])
        if verdict == NO_EFFECT:
            verdict += f" (90%: {effects.narrow_text(i)})"
        if effects.note[i]:
            verdict += f" ({effects.note[i]})"
        confidence, margin = float(effects.confidence[i]), float(effects.margin[i])
        level = f" ({100 * confidence:.3g}%)" if isfinite(confidence) else ""
        lines.append(
            (
                str(effects.row[i]),
                f"{effects.quantity[i]}: {effects.hypothesis[i]}",
                effects.effect_text(i) + level,
                effects.plain_text(i),
                f"{effects.seeds_of_claim[i]}/{effects.seeds[i]}",
                effects.margin_text(margin, effects.unit[i]) if margin else "",
                verdict,
                _power_text(effects.seeds_needed_observed[i], effects.seeds_needed[i]),
                str(effects.networks[i]),
            )
        )
    return lines


def _power_text(observed: int, margin: int) -> str:
    """Numbers of seeds; empty where a row is decided."""
    if not margin:
        return ""
    return "; ".join(str(n) if n > 0 else "over 1,000" for n in (observed, margin))


def markdown_table(effects: ClaimEffects, comparison: str) -> str:
    """The rows of one comparison as a Markdown table."""
    lines = [HEADER, ("---",) * len(HEADER), *table(effects, comparison)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def declarations() -> str:
    """The primary hypotheses as a Markdown table: direction, quantity, margin and seeds."""
    lines = [("row", "primary hypothesis", "quantity", "margin", "seeds"), ("---",) * 5]
    seeds = str(scale_of("small").fewest_seeds)
    for row, h in PRIMARY.items():
        quantity = str(h.quantity) + (f", {WARM_UP}" if h.phase == WARM_UP else "")
        text = h.text(scale_of("small"))
        if h.also:
            other = "lower" if h.direction == "higher" else "higher"
            text += f", and {other} in the {h.also}"
        margin = ClaimEffects.margin_text(h.margin, results.RATIO if h.logarithm else h.unit)
        lines.append((row, text, quantity, margin, seeds))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(raw: RawNumbers) -> str:
    """The report as one HTML page that needs nothing else."""
    effects = effects_of(raw)
    with TemporaryDirectory() as folder:
        (file,) = vp.save_figure(vp.panel({"": effects}), Path(folder) / "effects", ["svg"])
        picture = file.read_text("utf-8")
    names = (results.PRIMARY, results.EQUAL_FIT, results.SECONDARY)
    template = Path(__file__).with_name("claims.html").read_text("utf-8")
    return jinja2.Template(template, autoescape=True, trim_blocks=True).render(
        raw=raw,
        header=HEADER,
        tables={name: table(effects, name) for name in names},
        statements=STATEMENTS.values(),
        picture=Markup(picture[picture.index("<svg") :]),
        hours=sum(run.minutes for run in raw.runs) / 60,
    )

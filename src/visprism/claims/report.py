"""The report of the study of claims: one page, and the same tables as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import jinja2
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from visprism.claims.experiment import RawNumbers
from visprism.claims.paper import CLAIMS
from visprism.claims.verdicts import ClaimVerdict, effects_of, trained_runs, verdicts_of
from visprism.figures import panel, render_figure
from visprism.report.inline import Glyphs, inline_svg
from visprism.results.claims import ClaimEffects, ClaimRuns

NOT_TESTED = "not tested"


@dataclass(frozen=True)
class ClaimSection:
    """What is shown of one claim; without a verdict where its networks are not trained."""

    code: str
    statement: str
    source: str
    verdict: str
    by_protocol: dict[str, str]
    effects: ClaimEffects | None
    command: str

    @property
    def seeds(self) -> str:
        """Number of trained seeds of each arm: ``3``, or ``2 to 3``."""
        if self.effects is None:
            return "0"
        columns = (self.effects.seeds, self.effects.control_seeds)
        counts = [int(n) for column in columns for n in column if n]
        low, high = min(counts), max(counts)
        return str(low) if low == high else f"{low} to {high}"

    def effect_lines(self, protocol: str) -> list[str]:
        """Hypothesis, effect and verdict of each row of a protocol."""
        if self.effects is None:
            return []
        rows = np.flatnonzero(self.effects.protocol == protocol)
        return [
            f"{self.effects.quantity[i].partition(', NLL')[0]}, "
            f"{self.effects.hypothesis_text(int(i))}: {self.effects.effect_text(int(i))}"
            for i in rows
        ]


def sections_of(raw: RawNumbers) -> list[ClaimSection]:
    """A section for each claim, in the order of their numbers."""
    verdicts = {v.claim.code: v for v in verdicts_of(raw)}
    return [_section(code, verdicts.get(code), raw) for code in CLAIMS]


def _section(code: str, verdict: ClaimVerdict | None, raw: RawNumbers) -> ClaimSection:
    claim = CLAIMS[code]
    return ClaimSection(
        code,
        claim.statement,
        claim.source,
        verdict.verdict if verdict else NOT_TESTED,
        dict(verdict.by_protocol) if verdict else {},
        effects_of([verdict], raw) if verdict else None,
        f"visprism claims run {code} --scale {raw.scale} --out claims",
    )


def claim_figure(effects: ClaimEffects) -> Figure:
    """The effects of a claim, one axis for each unit."""
    by_unit = {
        {"%": "points", "ratio": "ratios", "": "values"}.get(unit, unit): effects.select(
            effects.unit == unit
        )
        for unit in dict.fromkeys(effects.unit.tolist())
    }
    return panel(by_unit)


def page(raw: RawNumbers) -> str:
    """The report as one HTML page that needs nothing else."""
    glyphs = Glyphs()
    sections = sections_of(raw)
    drawings = {
        s.code: inline_svg(
            render_figure(claim_figure(s.effects), "svg").decode(),
            prefix=s.code,
            label=f"Effects of the hypotheses of claim {s.code}",
            glyphs=glyphs,
            blocks=frozenset(),
        )
        for s in sections
        if s.effects is not None
    }
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("visprism.claims"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (files("visprism.report") / "templates" / "style.css").read_text(encoding="utf-8")
    return environment.get_template("claims.html").render(
        raw=raw,
        sections=sections,
        drawings=drawings,
        runs=_rows(trained_runs(raw)),
        total=trained_runs(raw).findings()[0],
        glyphs=glyphs,
        style=Markup(style),
    )


def markdown_table(raw: RawNumbers) -> str:
    """The verdicts as a Markdown table: a row for each claim and protocol."""
    lines = [
        "| claim | protocol | verdict | effects with 95 % intervals over seeds | seeds |",
        "|---|---|---|---|---|",
    ]
    for section in sections_of(raw):
        for protocol, verdict in (section.by_protocol or {"": section.verdict}).items():
            effects = "; ".join(section.effect_lines(protocol))
            lines.append(
                f"| {section.code} | {protocol} | {verdict} | {effects} | {section.seeds} |"
            )
    return "\n".join(lines)


def markdown_runs(raw: RawNumbers) -> str:
    """The trained networks as a Markdown table."""
    lines = [
        "| run | training images | epochs | minutes | test accuracy [95 % interval] |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in _rows(trained_runs(raw))),
    ]
    return "\n".join(lines)


def _rows(runs: ClaimRuns) -> Sequence[tuple[str, ...]]:
    return [
        (
            str(runs.run[i]),
            f"{runs.images[i]:,}",
            str(runs.epochs[i]),
            f"{runs.minutes[i]:.1f}",
            f"{runs.accuracy[i]:.1%} [{runs.low[i]:.1%}, {runs.high[i]:.1%}]",
        )
        for i in range(len(runs))
    ]

"""The report of the study of claims: one page, and the same tables as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import ceil

import jinja2
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from visprism.claims.experiment import MeasuredRun, RawNumbers
from visprism.claims.paper import CLAIMS
from visprism.claims.verdicts import ClaimVerdict, effects_of, trained_runs, verdicts_of
from visprism.drawing import panel
from visprism.drawing.save import render_figure
from visprism.drawing.claims import claim_rows
from visprism.drawing.style import KIND_COLORS, paper_style
from visprism.report import inline_svg
from visprism.results.claims import ClaimEffects, ClaimRuns

NOT_TESTED = "not tested"
_ROW, _AXIS, _CAPTION = 0.19, 0.5, 0.2  # inches: heights in the figure of a claim
_COLUMNS = 4  # of learning curves
_CURVES = ("epoch", "test accuracy", "training loss")
_ACCURACY, _LOSS = KIND_COLORS["conv"], KIND_COLORS["attention"]


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
    parts = {
        unit or "values": effects.select(effects.unit == unit)
        for unit in dict.fromkeys(effects.unit.tolist())
    }
    figure = panel(parts)
    rows = [claim_rows(part) for part in parts.values()]
    width, _ = figure.get_size_inches()
    figure.set_size_inches(width, sum(_ROW * n + _AXIS for n in rows) + _CAPTION)
    if grid := figure.axes[0].get_gridspec():
        grid.set_height_ratios([_ROW * n + 0.1 for n in rows])
    for ax in figure.axes:
        ax.set_title("")
    return figure


def learning_curves(raw: RawNumbers) -> Figure:
    """Training loss and test accuracy of every run against the epoch, axes for each arm."""
    arms: dict[str, list[MeasuredRun]] = {}
    for run in raw.runs:
        arms.setdefault(run.arms[0], []).append(run)
    rows = ceil(len(arms) / _COLUMNS)
    with paper_style():
        figure = Figure(figsize=(1.9 * _COLUMNS, 1.35 * rows), layout="constrained")
        grid = figure.subplots(rows, _COLUMNS, squeeze=False, sharey=True).ravel()
        for unused in grid[len(arms) :]:
            unused.remove()
        for number, (ax, (arm, runs)) in enumerate(zip(grid, arms.items(), strict=False)):
            losses = ax.twinx()
            for run in runs:
                epochs, values = (np.array(run.curve[k], dtype=float) for k in _CURVES[:2])
                measured = np.isfinite(values)
                ax.plot(epochs[measured], values[measured], color=_ACCURACY, linewidth=0.8)
                losses.plot(epochs, run.curve[_CURVES[2]], color=_LOSS, linewidth=0.8)
            ax.set(ylim=(0, 1), xlim=(0, None))
            losses.set_ylim(0, 2.4)
            ax.set_title(arm, fontsize="small")
            ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            if number % _COLUMNS != _COLUMNS - 1 and number != len(arms) - 1:
                losses.set_yticklabels([])
        figure.supxlabel("Epoch", fontsize="medium")
        figure.legend(
            [Line2D([], [], color=_ACCURACY), Line2D([], [], color=_LOSS)],
            ["Test accuracy (left axis)", "Training loss in nats (right axis)"],
            loc="outside upper center",
            ncols=2,
        )
    return figure


def page(raw: RawNumbers) -> str:
    """The report as one HTML page that needs nothing else."""
    sections = sections_of(raw)
    drawings = {
        s.code: inline_svg(
            render_figure(claim_figure(s.effects), "svg").decode(),
            prefix=s.code,
            label=f"Effects of the hypotheses of claim {s.code}",
        )
        for s in sections
        if s.effects is not None
    }
    curves = inline_svg(
        render_figure(learning_curves(raw), "svg").decode(),
        prefix="curves",
        label="Learning curves of all runs",
    )
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
        curves=curves,
        runs=_rows(trained_runs(raw)),
        total=trained_runs(raw).findings()[0],
        style=Markup(style),
    )


def markdown_table(raw: RawNumbers) -> str:
    """The verdicts as a Markdown table: a row for each claim and protocol.

    A row states the effect of the first hypothesis; `markdown_effects` has all of them.
    """
    lines = [
        "| claim | protocol | verdict | first effect [95% interval, seeds] | seeds | command |",
        "|---|---|---|---|---|---|",
    ]
    for section in sections_of(raw):
        for protocol, verdict in (section.by_protocol or {"": section.verdict}).items():
            effect = next(iter(section.effect_lines(protocol)), "")
            command = f"`{section.command.partition(' --')[0]}`"
            lines.append(
                f"| {section.code} | {protocol} | {verdict} | {effect} | {section.seeds} | "
                f"{command} |"
            )
    return "\n".join(lines)


def markdown_effects(effects: ClaimEffects) -> str:
    """Every hypothesis of a claim as a Markdown table: effect, verdict and its reason."""
    lines = [
        "| hypothesis | protocol | effect [95% interval over seeds] | verdict | reason |",
        "|---|---|---|---|---|",
    ]
    for i in range(len(effects)):
        quantity = str(effects.quantity[i]).partition(", NLL")[0]
        lines.append(
            f"| {quantity}: {effects.hypothesis_text(i)} | {effects.protocol[i]} | "
            f"{effects.effect_text(i)} | {effects.verdict[i]} | {effects.reason[i]} |"
        )
    return "\n".join(lines)


def markdown_runs(raw: RawNumbers) -> str:
    """The trained networks as a Markdown table."""
    lines = [
        "| run | training images | epochs | minutes | test accuracy [95% interval] |",
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

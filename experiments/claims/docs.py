"""What docs/claims.md holds of the experiment: raw numbers, tables and the figure.

    python -m experiments.claims.docs --out runs/claims    # writes results and docs/claims.md

Blocks between markers in docs/claims.md are replaced: the verdicts, beside what two networks
trained on photographs show (benchmarks/results/real_networks.json), and what is folded below
them. The first study (benchmarks/results/claims/first_study.json) is of 2026-11-23, before the
rules. It is evidence without verdict.
"""

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

import visprism as vp
from experiments.claims.effects import RATIO, ClaimEffects
from experiments.claims.experiment import MeasuredRun, RawNumbers
from experiments.claims.files import write_text
from experiments.claims.hypotheses import PRIMARY, SECONDARY, rise
from experiments.claims.measure import key
from experiments.claims.networks import SCALES, scale_of
from experiments.claims.report import effects_of, markdown_table
from experiments.claims.verdicts import NOT_RUN, PRELIMINARY, estimate, unstable

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "claims.md"
RESULTS = ROOT / "benchmarks" / "results" / "claims"
_MINUS = "\N{MINUS SIGN}"
_WARM_UP = ", after the warm-up"


def first_study() -> RawNumbers:
    """The numbers of the first study whose definition has not changed."""
    stored = json.loads((RESULTS / "first_study.json").read_text())
    runs = []
    for run in stored["runs"]:
        values = {}
        for name, value in run["quantities"].items():
            if name.startswith(("APE", "largest")) or "augmented" in name:
                continue  # another mean, and objectives that were not trained
            epoch = 1 if name.endswith(_WARM_UP) else run["epochs"]
            name = name.removesuffix(_WARM_UP)
            if name.startswith("increase of the NLL"):
                name = str(rise(name.split()[-2]))
            values[key(name, epoch)] = value
        names = tuple(name for name in run["arms"] if "30%" not in name)
        fields = {f: run[f] for f in ("name", "seed", "images", "epochs", "minutes", "curve")}
        accuracy = tuple(run["accuracy"])
        runs.append(
            MeasuredRun(
                networks=names, warm_up=1, accuracy=accuracy, quantities=values, **fields
            )
        )
    return RawNumbers(stored["scale"], stored["data"], tuple(runs), stored["origin"])


def first_study_table(raw: RawNumbers) -> str:
    """Effects of the first study, paired by seed, with 95% intervals and without verdict."""
    lines = ["| row | hypothesis | effect [95% interval] | seeds |", "|---|---|---|---|"]
    scale = scale_of("small")
    for h in (*PRIMARY.values(), *SECONDARY):
        tested = raw.tested(h)
        if h.also or not tested.comparisons or len(tested.comparisons[0]) < 2:
            continue
        d = estimate(tested.comparisons[0])
        unit = RATIO if h.logarithm else h.unit
        text = ClaimEffects.text_of(d.effect, d.low, d.high, unit)
        phase = "" if h.phase.startswith("end") else f", {h.phase}"
        lines.append(f"| {h.row} | {h.quantity}{phase}: {h.text(scale)} | {text} | {d.seeds} |")
    return "\n".join(lines)


def networks_table(raw: RawNumbers) -> str:
    """The trained networks as a Markdown table."""
    lines = [
        "| network and seed | training images | epochs | minutes | test accuracy [95%] |",
        "|---|---|---|---|---|",
    ]
    for run in raw.runs:
        value, low, high = (f"{100 * v:.1f}" for v in run.accuracy)
        cells = (run.name, f"{run.images:,}", run.epochs, f"{run.minutes:.0f}")
        lines.append(f"| {' | '.join(map(str, cells))} | {value}% [{low}, {high}] |")
    return "\n".join(lines)


def error_rate_table() -> str:
    """The simulated rates of each verdict as a Markdown table."""
    stored = json.loads((RESULTS / "error_rates.json").read_text())
    names = stored["verdicts"]
    lines = [f"| true effect | spread over seeds | {' | '.join(names)} |", "|---" * 6 + "|"]
    for row in stored["rates"]:
        rates = " | ".join(f"{100 * row[name]:.1f}%" for name in names)
        lines.append(f"| {row['effect']:g} margins | {row['spread']:g} margins | {rates} |")
    errors = stored["familywise_error"]
    lines.append(
        f"\nWith no effect in any of {stored['hypotheses']} rows, {100 * errors:.1f}% of "
        f"studies have a false *reproduced* or *opposite* ({stored['studies']:,} simulated "
        f"studies of {stored['seeds']} seeds)."
    )
    return "\n".join(lines)


def beside_photographs(table: str) -> str:
    """The table with a column about two networks that are trained on photographs."""
    stored = json.loads((RESULTS.parent / "real_networks.json").read_text())["claims"]
    stored = {row: re.sub(r"(?<!\w)-", _MINUS, text) for row, text in stored.items()}
    return with_column(table, "one network trained on photographs [95% over images]", stored)


def with_column(table: str, title: str, texts: Mapping[str, str]) -> str:
    """The table with a column at its end, by row."""
    head, rule, *rows = table.splitlines()
    cells = (f"{row} {texts.get(row.split()[1], '')} |" for row in rows)
    return "\n".join([f"{head} {title} |", f"{rule} --- |", *cells])


def across_scales() -> dict[str, str]:
    """Rows whose effects at scales small and medium disagree."""
    small, medium = (RawNumbers.load(RESULTS / f"{name}.json") for name in ("small", "medium"))
    disagree = (
        row
        for row, h in PRIMARY.items()
        if unstable(small.tested(h).weakest()[0], medium.tested(h).weakest()[0])
    )
    return dict.fromkeys(disagree, "not stable across scales")


def write(raw: RawNumbers) -> None:
    """The raw numbers, the figure, and the tables of the page."""
    raw = replace(raw, data=f"{raw.data.partition(':')[0]}:DIR")
    raw.save(RESULTS / f"{raw.scale}.json")
    first, effects = first_study(), effects_of(raw)
    suffix = "" if raw.scale == "small" else f"-{raw.scale}"
    vp.save_figure(
        vp.panel({"": effects}), ROOT / "docs" / "figures" / f"claims{suffix}", ["png"]
    )
    text = PAGE.read_text(encoding="utf-8")
    primary = effects.verdict[effects.comparison == "primary"]
    seeds = len(SCALES[raw.scale].seeds)
    decided = int((~np.isin(primary, (NOT_RUN, PRELIMINARY))).sum())
    status = (
        f"{len(raw.runs)} networks are trained and measured; {decided} of "
        f"{len(primary)} rows have the {seeds} seeds that the rules ask for."
    )
    verdicts = with_column(
        markdown_table(effects, "primary"), "small and medium", across_scales()
    )
    for name, content in {
        f"status{suffix}": status,
        f"verdicts{suffix}": verdicts if suffix else beside_photographs(verdicts),
        f"equal-fit{suffix}": markdown_table(effects, "equal training NLL"),
        f"secondary{suffix}": markdown_table(effects, "secondary"),
        f"networks{suffix}": networks_table(raw),
        "error-rates": error_rate_table(),
        "first-study": first_study_table(first),
        "first-study-networks": networks_table(first),
    }.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, marker, after = rest.partition(end)
        assert marker, f"{PAGE} has no block {name}"
        text = f"{before}{begin}\n\n{content}\n\n{end}{after}"
    write_text(PAGE, text)


def main() -> None:
    """Write what the experiment in a folder has found into the docs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("claims"), metavar="DIR")
    write(RawNumbers.load(parser.parse_args().out))


if __name__ == "__main__":
    main()

"""The verdicts of docs/claims.md a second time, from its table of rules and the raw numbers.

    python benchmarks/claims_by_hand.py [RAW.json]     # exits with 1 if a verdict differs

It shares no code with visprism: hypotheses are read from the table of the page, tests are
SciPy's, and Holm's procedure is done on adjusted p-values. At scale medium three seeds decide
without that procedure, the rows for which the scale has networks.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
from scipy.stats import ttest_1samp

PAGE = Path(__file__).parents[1] / "docs" / "claims.md"
RAW = Path(__file__).parent / "results" / "claims" / "small.json"
_RULE = re.compile(r"(.+) (lower|higher) than (.+?)(?:, and (?:lower|higher) in the (.+))?$")


def block(name: str) -> list[list[str]]:
    """The cells of a table of the page."""
    text = PAGE.read_text(encoding="utf-8").split(f"<!-- {name}: ")[1]
    return [r.strip("| ").split(" | ") for r in text.splitlines() if re.match(r"\| C\d", r)]


def seed_effects(runs: list, one: str, other: str, quantity: str, ratio: bool) -> np.ndarray:
    """The paired difference of each seed."""
    name, warm, _ = quantity.partition(", after the warm-up")
    values = {}
    for run in runs:
        for network in run["networks"]:
            epoch = run["warm_up"] if warm else run["epochs"]
            value = run["quantities"].get(f"{name} @{epoch}")
            if value is not None:
                values[network, run["seed"]] = np.log(value) if ratio else value
    seeds = sorted(seed for network, seed in values if network == one)
    if other == "0":
        return np.array([values[one, seed] for seed in seeds])
    paired = [seed for seed in seeds if (other, seed) in values]
    return np.array([values[one, seed] - values[other, seed] for seed in paired])


def verdicts(raw: dict) -> dict[str, str]:
    """The verdict of each row of the table of rules."""
    rows, p_values, medium = {}, {}, raw["scale"] == "medium"
    for row, rule, quantity, margin, seeds in block("rules"):
        ((one, direction, other, also),) = _RULE.findall(rule)
        number = float(re.findall(r"[\d.]+", margin)[0])
        ratio = "factor" in margin
        number = np.log(number) if ratio else number / 100 if "points" in margin else number
        sign = 1 if direction == "higher" else -1
        parts = [sign * seed_effects(raw["runs"], one, other, quantity, ratio)]
        if also:
            parts.append(-sign * seed_effects(raw["runs"], one, other, also, ratio))
        p_values[row], rows[row] = 1.0, None
        if min(map(len, parts)) >= (3 if medium else int(seeds)):
            weakest = min(parts, key=lambda part: ttest_1samp(part, 0).statistic)
            rows[row], p_values[row] = (weakest, number), ttest_1samp(weakest, 0).pvalue
    ranked = sorted(p_values, key=lambda row: p_values[row])
    factors = [1] * len(ranked) if medium else range(len(ranked), 0, -1)
    adjusted = np.maximum.accumulate(
        [f * p_values[r] for f, r in zip(factors, ranked, strict=True)]
    )
    rejected = dict(zip(ranked, adjusted <= 0.05, strict=True))
    return {row: decision(rows[row], rejected[row]) for row in rows}


def decision(tested: tuple | None, rejected: bool) -> str:
    """One of the four verdicts, or "not run"."""
    if tested is None:
        return "not run"
    effects, margin = tested
    if rejected:
        return f"{'reproduced' if effects.mean() > 0 else 'opposite'} at this scale"
    low = ttest_1samp(effects, -margin, alternative="greater").pvalue
    high = ttest_1samp(effects, margin, alternative="less").pvalue
    return "no effect beyond the margin" if max(low, high) < 0.05 else "can't tell"


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RAW
    raw = json.loads(path.read_text())
    name = "verdicts" if raw["scale"] == "small" else f"verdicts-{raw['scale']}"
    stated = {cells[0]: cells[5].partition(" (")[0] for cells in block(name)}
    by_hand = {row: v for row, v in verdicts(raw).items() if row in stated}
    for row, verdict in by_hand.items():
        print(row, verdict, "" if stated[row] == verdict else f"| page: {stated[row]}")
    sys.exit(by_hand != stated)

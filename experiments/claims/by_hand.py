"""The verdicts of docs/claims.md a second time, from its table of rules and the raw numbers.

    python experiments/claims/by_hand.py [RAW.json]    # exits with 1 if a verdict differs

It shares no code with visprism: hypotheses are read from the table of the page, tests are
SciPy's. At scale medium three seeds decide without Holm's procedure, the rows for which the
scale has networks.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
from scipy.stats import ttest_1samp

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
RAW = Path(__file__).parents[2] / "benchmarks" / "results" / "claims" / "small.json"
FIT = "NLL of training images, snapshots"
EQUAL = ("C1", "C2", "C15", "C16")  # also decided at equal training NLL
_RULE = re.compile(r"(.+) (lower|higher) than (.+?)(?:, and (?:lower|higher) in the (.+))?$")


def block(name: str) -> list[list[str]]:
    """The cells of a table of the page."""
    text = PAGE.read_text(encoding="utf-8").split(f"<!-- {name}: ")[1]
    return [r.strip("| ").split(" | ") for r in text.splitlines() if re.match(r"\| C\d", r)]


def curve(run: dict) -> dict[int, float]:
    """The NLL of training images by epoch."""
    stored = run["quantities"].items()
    return {int(k.split("@")[1]): v for k, v in stored if k.startswith(f"{FIT} @") and v}


def equal_epochs(pair: list[dict], early: bool) -> list[int]:
    """The epochs of the lowest, or early the highest, NLLs that are equal within 5%."""
    a, b = map(curve, pair)
    near = [(e, f) for e in a for f in b if abs(np.log(a[e] / b[f])) <= np.log(1.05)]
    score = (lambda x, y: -min(x, y)) if early else max
    return list(min(near, key=lambda p: (score(a[p[0]], b[p[1]]), abs(a[p[0]] - b[p[1]]))))


def seed_effects(raw: dict, names: list, quantity: str, ratio: bool, equal: bool) -> np.ndarray:
    """The paired difference of each seed, at the end or at equal NLL of training images."""
    quantity, warm, _ = quantity.partition(", after the warm-up")
    found: dict = {}  # by seed and network; those trained again have the snapshots
    for run in raw["runs"] + (raw["again"] if equal else []):
        for network in run["networks"]:
            found.setdefault(run["seed"], {})[network] = run
    effects = []
    for seed in sorted(found):
        pair = [found[seed].get(name) for name in names if name != "0"]
        if None in pair:
            continue
        epochs = [run["warm_up" if warm else "epochs"] for run in pair]
        if equal:
            epochs = equal_epochs(pair, bool(warm))
        values = [
            r["quantities"].get(f"{quantity} @{e}") for r, e in zip(pair, epochs, strict=True)
        ]
        if None not in values:
            first, *other = np.log(values) if ratio else values
            effects.append(first - sum(other))
    return np.array(effects)


def verdicts(raw: dict) -> list[dict[str, str]]:
    """The verdict of each row of the table of rules, and those at equal training NLL."""
    rows, again, medium = {}, {}, raw["scale"] == "medium"
    for row, rule, quantity, margin, seeds in block("rules"):
        ((one, direction, other, also),) = _RULE.findall(rule)
        number = float(re.findall(r"[\d.]+", margin)[0])
        ratio = "factor" in margin
        number = np.log(number) if ratio else number / 100 if "point" in margin else number
        sign = 1 if direction == "higher" else -1
        for equal, found in ((False, rows), (True, again)):
            if equal and row not in EQUAL:
                continue
            signs = {quantity: sign} | ({also: -sign} if also else {})
            parts = [
                way * seed_effects(raw, [one, other], q, ratio, equal)
                for q, way in signs.items()
            ]
            found[row] = (None, number, 1.0)
            if min(map(len, parts)) >= (3 if medium else int(seeds)):
                weakest = min(parts, key=lambda part: ttest_1samp(part, 0).statistic)
                found[row] = (weakest, number, ttest_1samp(weakest, 0).pvalue)
    alphas, failed = {}, 0
    for rank, row in enumerate(sorted(rows, key=lambda r: rows[r][2])):
        failed = failed or (0.05 / (len(rows) - rank) if not medium else 0.05)
        alphas[row] = failed
        failed *= rows[row][2] > failed  # Holm: the first that is not rejected ends it
    return [{r: decision(t, alphas[r]) for r, t in found.items()} for found in (rows, again)]


def decision(tested: tuple, alpha: float) -> str:
    """One of the four verdicts, or "not run"."""
    effects, margin, p_value = tested
    if effects is None:
        return "not run"
    if p_value <= alpha:
        return f"{'reproduced' if effects.mean() > 0 else 'opposite'} at this scale"
    low = ttest_1samp(effects, -margin, alternative="greater").pvalue
    high = ttest_1samp(effects, margin, alternative="less").pvalue
    return "no effect beyond the margin" if max(low, high) < 0.05 else "can't tell"


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RAW
    raw, different = json.loads(path.read_text()), False
    suffix = "" if raw["scale"] == "small" else f"-{raw['scale']}"
    for name, by_hand in zip(("verdicts", "equal-fit"), verdicts(raw), strict=True):
        stated = {cells[0]: cells[5].partition(" (")[0] for cells in block(f"{name}{suffix}")}
        print(name)
        for row, verdict in stated.items():
            equal = by_hand[row] == verdict
            print(" ", row, by_hand[row], "" if equal else f"| page: {verdict}")
            different |= not equal
    sys.exit(different)

"""The verdicts of docs/claims.md a second time, from its table of rules and the raw numbers.

    python experiments/claims/by_hand.py [RAW.json]    # exits with 1 if a verdict differs

It shares no code with visprism: hypotheses are read from the table of the page, tests are
SciPy's. It also recomputes unadjusted intervals, seeds on the side of the claim, seeds for
80% power, and which rows disagree across scales.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
from scipy.stats import nct, t, ttest_1samp, ttest_ind

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
    rows, again = tested_rows(raw)
    family = block("verdicts-medium" if raw["scale"] == "medium" else "rules")
    rows = {cells[0]: rows[cells[0]] for cells in family}
    alphas, failed = {}, 0
    for rank, row in enumerate(sorted(rows, key=lambda r: rows[r][2])):
        failed = failed or 0.05 / (len(rows) - rank)
        alphas[row] = failed
        failed *= rows[row][2] > failed  # Holm: the first that is not rejected ends it
    return [{r: decision(t, alphas[r]) for r, t in found.items()} for found in (rows, again)]


def tested_rows(raw: dict) -> tuple[dict, dict]:
    """Effects toward the claim, margin, p and fewest seeds of each row; at equal NLL too."""
    rows, again = {}, {}
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
            found[row] = (np.array([]), number, 1.0, int(seeds))
            if min(map(len, parts)) >= 2:
                weakest = min(parts, key=lambda part: ttest_1samp(part, 0).statistic)
                enough = len(weakest) >= int(seeds)
                p = ttest_1samp(weakest, 0).pvalue if enough else 1.0
                found[row] = (weakest, number, p, int(seeds))
    return rows, again


def decision(tested: tuple, alpha: float) -> str:
    """One of the four verdicts, "preliminary" or "not run"."""
    effects, margin, p_value, seeds = tested
    if len(effects) < seeds:
        return "preliminary" if len(effects) > 1 else "not run"
    if p_value <= alpha:
        return f"{'reproduced' if effects.mean() > 0 else 'opposite'} at this scale"
    low = ttest_1samp(effects, -margin, alternative="greater").pvalue
    high = ttest_1samp(effects, margin, alternative="less").pvalue
    if max(low, high) < 0.05:
        return "no effect beyond the margin"
    return "can't tell" + " after adjustment" * bool(p_value < 0.05)


def shown(tested: tuple, verdict: str, level: float) -> tuple[str, str]:
    """Seeds on the side of the claim, and seeds for 80% power (observed effect; margin)."""
    effects, margin, _, _ = tested
    side = f"{sum(effects > 0)}/{len(effects)}"
    if not verdict.startswith("can't tell"):
        return side, ""
    needed = []
    for size in (abs(effects.mean()), margin):
        ratio, n = size / effects.std(ddof=1), len(effects) + 1
        while n <= 1000 and nct.sf(t.isf(level / 2, n - 1), n - 1, ratio * n**0.5) < 0.8:
            n += 1
        needed.append(str(n) if n <= 1000 else "over 1,000")
    return side, "; ".join(needed)


def plain_interval(effects: np.ndarray, cells: list[str], sign: int) -> bool:
    """Whether the page's unadjusted interval is SciPy's, to the digits that it states."""
    if len(effects) < 2:
        return cells[3] == ""
    ends = ttest_1samp(sign * effects, 0).confidence_interval(0.95)
    if "%" in cells[2].partition("[")[0]:
        ends = [100 * np.expm1(end) for end in ends]
    elif "point" in cells[2]:
        ends = [100 * end for end in ends]
    stated = [float(e.replace("\N{MINUS SIGN}", "-")) for e in cells[3].strip("[]").split(", ")]
    return bool(np.allclose(stated, ends, rtol=5e-3))


def disagree() -> set[str]:
    """The rows whose effects at scales small and medium have other signs and differ at 5%."""
    small, medium = (
        tested_rows(json.loads(RAW.with_name(f"{name}.json").read_text()))[0]
        for name in ("small", "medium")
    )
    pairs = {row: (small[row][0], medium[row][0]) for row in small}
    return {
        row
        for row, (a, b) in pairs.items()
        if len(a) > 1 and len(b) > 1 and a.mean() * b.mean() < 0
        if ttest_ind(a, b, equal_var=False).pvalue < 0.05
    }


def differences(raw: dict) -> list[str]:
    """The cells of the page that do not follow from the raw numbers."""
    suffix = "" if raw["scale"] == "small" else f"-{raw['scale']}"
    found, unstable = [], disagree()
    tables = zip(("verdicts", "equal-fit"), verdicts(raw), tested_rows(raw), strict=True)
    for name, by_hand, tested in tables:
        for cells in block(f"{name}{suffix}"):
            row = cells[0]
            level = float((re.findall(r"\(([\d.]+)%\)$", cells[2]) or ["95"])[0])
            sign = -1 if " lower than " in cells[1] else 1
            side, power = shown(tested[row], by_hand[row], 1 - level / 100)
            for what, same in {
                f"verdict {by_hand[row]}": cells[6].partition(" (")[0] == by_hand[row],
                f"seeds of claim {side}": cells[4] == side,
                f"seeds for power {power}": close(cells[7], power),
                "unadjusted interval": plain_interval(tested[row][0], cells, sign),
                "stability": name != "verdicts"
                or ("not stable" in " ".join(cells[9:])) == (row in unstable),
            }.items():
                found += [f"{name}{suffix} {row}: {what}; page: {cells}"] * (not same)
    return found


def close(one: str, other: str) -> bool:
    """Whether numbers of seeds are equal within 2%: the page states rounded confidences."""
    pairs = list(zip(one.split("; "), other.split("; "), strict=True))
    return all(a == b or abs(int(a) - int(b)) <= max(1, 0.02 * int(b)) for a, b in pairs)


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RAW
    found = differences(json.loads(path.read_text()))
    print("\n".join(found) or "Each cell follows from the raw numbers.")
    sys.exit(bool(found))

"""How often the rules of docs/claims.md give each verdict when the truth is known.

    python -m experiments.claims.error_rates    # benchmarks/results/claims/error_rates.json

One hypothesis has a true effect of 0, half or twice its margin; the other 20 have none. Effects
of 5 seeds are normal with a spread of 0.2, 0.5 or 1 margin.
"""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from experiments.claims.hypotheses import PRIMARY
from experiments.claims.verdicts import (
    CANT_TELL,
    NO_EFFECT,
    OPPOSITE,
    REPRODUCED,
    SeedEffects,
    decide_all,
)

OUT = Path(__file__).parents[2] / "benchmarks" / "results" / "claims" / "error_rates.json"
SEEDS, STUDIES = 5, 1000
VERDICTS = (REPRODUCED, OPPOSITE, NO_EFFECT, CANT_TELL)


def studies(effect: float, spread: float, rng: np.random.Generator) -> tuple[Counter, float]:
    """Verdicts on the first row, and the rate of studies with a false one among the others."""
    counts: Counter = Counter()
    false = 0
    for _ in range(STUDIES):
        values = spread * rng.standard_normal((len(PRIMARY), SEEDS))
        values[0] += effect
        tested = {
            row: SeedEffects((v,), (1,), 1.0) for row, v in zip(PRIMARY, values, strict=True)
        }
        verdicts = [d.verdict for d in decide_all(tested, holm=len(PRIMARY)).values()]
        counts[verdicts[0]] += 1
        nulls = verdicts[1:] if effect else verdicts
        false += any(v in (REPRODUCED, OPPOSITE) for v in nulls)
    return counts, false / STUDIES


def main() -> None:
    rng = np.random.default_rng(0)
    rates, errors = [], []
    for effect in (0.0, 0.5, 2.0):
        for spread in (0.2, 0.5, 1.0):
            counts, false = studies(effect, spread, rng)
            row = {"effect": effect, "spread": spread}
            rates.append(row | {name: counts[name] / STUDIES for name in VERDICTS})
            errors += [false] * (effect == 0)
            print(rates[-1], f"false in the family: {false:.3f}", flush=True)
    content = {
        "seeds": SEEDS,
        "studies": STUDIES * len(errors),
        "hypotheses": len(PRIMARY),
        "verdicts": VERDICTS,
        "rates": rates,
        "familywise_error": float(np.mean(errors)),
        "created": datetime.now(UTC).date().isoformat(),
    }
    OUT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()

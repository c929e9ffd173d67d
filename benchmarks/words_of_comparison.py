"""Error rate of each word of comparison, by simulation of paired accuracies.

    python benchmarks/words_of_comparison.py

Two models classify the same images; the true difference of their accuracies is 0, half the
margin of 1 point, the margin, or twice the margin. Each row counts how often two models are
*better* (the first or the second), *equal within 1 point*, or *no difference found*.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np

from visprism.core.statistics import paired_proportions_interval
from visprism.report.rows import MARGINS, Difference

_REPEATS = 2000
_MARGIN = MARGINS["%"]
_DISAGREEMENT = 0.10  # of the images, on which exactly one model is right
_OUT = Path(__file__).parent / "results" / "words_of_comparison.json"


def word(gained: int, lost: int, images: int) -> str:
    """What is said of a pair of models."""
    low, high = paired_proportions_interval(gained, lost, images)
    difference = Difference((gained - lost) / images, low, high, units=images).judged(_MARGIN)
    if difference.significant:
        return "second is better" if difference.value > 0 else "first is better"
    return "equal" if difference.equal else "no difference found"


def main() -> None:
    """Simulate, print and store the rates."""
    random, rows = np.random.default_rng(0), []
    for images in (256, 2000, 10_000, 50_000):
        for times in (0.0, 0.5, 1.0, 2.0):
            effect = times * _MARGIN
            gain, loss = (_DISAGREEMENT + effect) / 2, (_DISAGREEMENT - effect) / 2
            drawn = random.multinomial(images, [gain, loss, 1 - gain - loss], _REPEATS)
            counts = Counter(word(int(g), int(lost), images) for g, lost, _ in drawn)
            rates = {name: count / _REPEATS for name, count in counts.items()}
            rows.append({"images": images, "difference in margins": times, **rates})
            print(rows[-1])
    _OUT.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

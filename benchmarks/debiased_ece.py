"""Means of the ECE and of the debiased ECE over samples of models with a known ECE.

The models have two classes, and an accuracy that is lower than the confidence by a constant::

    python benchmarks/debiased_ece.py

It prints the table of docs/analyses/calibration.md and takes some seconds.
"""

import argparse

import numpy as np
from coverage_of_intervals import confidences  # pyrefly: ignore (a script beside this one)

from visprism.estimates.calibration_error import calibration_error

SIZES = (256, 512, 2000)
GAPS = (0.0, 0.03, 0.08)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--samples", type=int, default=1000, help="samples of each situation")
    parser.add_argument("--seed", type=int, default=0, help="seed of the samples")
    options = parser.parse_args()
    print("| ECE of the model |", " | ".join(f"{n:,} images" for n in SIZES), "|")
    print("|---" * (len(SIZES) + 1) + "|")
    for gap in GAPS:
        generator = np.random.default_rng([options.seed, round(1000 * gap)])
        cells = [means(generator, n, gap, options.samples) for n in SIZES]
        print(f"| {gap:g} |", " | ".join(f"{e:.3f}, debiased {d:.3f}" for e, d in cells), "|")


def means(
    generator: np.random.Generator, images: int, gap: float, samples: int
) -> tuple[float, float]:
    """Means of the ECE and of the debiased ECE."""
    errors = []
    for _ in range(samples):
        confidence = confidences(generator.normal(size=images))
        correct = generator.random(images) < confidence - gap
        error = calibration_error(confidence.astype(np.float32), correct)
        errors.append((error.value, error.debiased))
    ece, debiased = np.mean(errors, axis=0)
    return float(ece), float(debiased)


if __name__ == "__main__":
    main()

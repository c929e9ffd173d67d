"""How often the 95% intervals of findings contain the truth, by simulation.

Each interval that a result prints is computed by the library from samples whose truth is known.
A sample without an interval (too few images, too few wrong predictions) does not count: the
share of samples that have one stands next to the coverage. Counts are integers, and their
coverage at one truth may be anywhere between 0.90 and 0.99 with any method. Their truth is
therefore drawn uniformly from a range for each sample. Run it from the repository::

    python benchmarks/coverage_of_intervals.py
    VISPRISM_WRITE_NUMBERS=1 pytest tests/test_numbers_page.py

and read `benchmarks/results/interval_coverage.json` and docs/numbers.md, whose table is written
from it. It takes some 50 minutes on one core. Each situation has its own random numbers, so
that `--only` replaces the rows of some intervals and leaves the others as they are.
"""

import argparse
import json
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch

from visprism import Block, batches, dissect, load_data, load_model
from visprism.analyses.features.class_separability import separability
from visprism.analyses.features.feature_similarity import ranks_of_pairs, rsa_by_image
from visprism.analyses.predictions.calibration import CalibrationMetrics, calibration
from visprism.analyses.predictions.error_consistency import kappa_interval
from visprism.analyses.predictions.shape_bias import shape_bias
from visprism.analyses.predictions.temperature import temperature
from visprism.core.devices import Compute
from visprism.core.provenance import Provenance
from visprism.core.run import Run
from visprism.core.statistics import (
    auroc_interval,
    heavy_tailed_interval,
    mean_fraction_interval,
    mean_interval,
    paired_proportions_interval,
    t_interval,
    wilson,
)
from visprism.estimates.answers import Answer
from visprism.estimates.answers import difference as difference_of_models
from visprism.estimates.calibration_error import calibration_error
from visprism.estimates.eigenvalues import (
    average_positive,
    geometric_mean,
    heavy_tailed,
    negative_proportion,
)
from visprism.estimates.estimated import Number, mean, within_one
from visprism.loss.loss_by_distance import crossed_mean
from visprism.loss.objective import cross_entropy
from visprism.loss.planes import random_planes
from visprism.loss.points import Evaluation, read_samples
from visprism.passes.outcomes import Outcomes
from visprism.passes.pooled import PooledFeatures, pooled_features
from visprism.passes.predictions import Predictions
from visprism.table.result import Result

RESULTS = Path(__file__).parent / "results" / "interval_coverage.json"
REFERENCE = 400_000  # images whose mean stands for a truth without a closed form

Generator = np.random.Generator
_HEAD = ("self_duality",)  # of the whole network
Ends = tuple[float, float]


@dataclass(frozen=True)
class Case:
    """An interval in one situation: a function that draws a sample and returns both ends."""

    interval: str
    printed: str  # where findings print it
    situation: str
    units: int  # images, mini-batches, seeds, ...
    truth: float
    draw: Callable[[Generator], Ends]


@dataclass(frozen=True)
class Row:
    """Coverage of an interval in one situation."""

    interval: str
    printed: str
    situation: str
    units: int
    coverage: float | None  # None where no sample has an interval
    have_interval: float  # share of the samples
    samples: int  # that were simulated
    commit: str  # of the code that was run


def main() -> None:
    """Simulate all cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--samples", type=int, default=1000, help="samples of each situation")
    parser.add_argument("--seed", type=int, default=20, help="seed of the samples")
    parser.add_argument("--only", nargs="*", help="names of intervals whose rows are replaced")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start, rows = time.perf_counter(), []
    present = setting(options.seed)
    for case in cases():
        if not options.only or case.interval in options.only:
            rows.append(covered(case, options.samples, options.seed, str(present["commit"])))
            print(
                f"{case.interval:<38} {case.situation:<44} {case.units:>5} "
                f"{rows[-1].coverage} of {rows[-1].have_interval:.2f}",
                flush=True,
            )
    if not options.only or set(FEATURE_INTERVALS.values()) & set(options.only):
        every = trained_networks(options.samples, str(present["commit"]))
        rows += [row for row in every if not options.only or row.interval in options.only]
    table = {
        "nominal": 0.95,
        "setting": present,
        "seconds": round(time.perf_counter() - start),
        "rows": [*others(options.only), *(asdict(row) for row in rows)],
    }
    RESULTS.write_text(json.dumps(table, indent=1, allow_nan=False) + "\n")


def others(replaced: list[str] | None) -> list[dict]:
    """The rows in the file that stay as they are; none in a run of all intervals."""
    if not replaced:
        return []
    rows = json.loads(RESULTS.read_text())["rows"]
    return [row for row in rows if row["interval"] not in replaced]


def setting(seed: int) -> dict[str, object]:
    """Where the numbers are from."""
    from harness import made_with  # a test runs this file from elsewhere

    return made_with("numpy", "scipy", seed=seed)


def covered(case: Case, samples: int, seed: int, commit: str) -> Row:
    """Coverage among the samples that have an interval; each case has its own seed.

    Where many samples have none, up to four times as many are drawn.
    """
    name = f"{case.interval} {case.situation} {case.units}"
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    sampled: list[Ends] = []
    while len(sampled) < 4 * samples and np.isfinite(sampled).all(-1).sum() < samples:
        sampled += [case.draw(generator) for _ in range(samples)]
    ends = np.array(sampled)
    given = np.isfinite(ends).all(1)
    inside = (ends[:, 0] <= case.truth) & (case.truth <= ends[:, 1])
    coverage = round(float(inside[given].mean()), 4) if given.any() else None
    return Row(
        case.interval,
        case.printed,
        case.situation,
        case.units,
        coverage,
        round(float(given.mean()), 3),
        len(sampled),
        commit,
    )


def cases() -> Iterator[Case]:
    """Every interval of findings, in the situations in which it is printed."""
    yield from fractions()
    yield from means()
    yield from calibration_errors()
    yield from comparisons()
    yield from eigenvalues()
    yield from few_units()
    yield from crossed()
    yield from features()


def fractions() -> Iterator[Case]:
    """Intervals of fractions of images, of their differences, and of shares of tokens."""
    for n in (50, 200, 1000):
        for p in ((0.4, 0.6), (0.7, 0.9), (0.9, 0.97), (0.97, 1.0)):

            def accuracy(g: Generator, n: int = n, p: tuple = p) -> Ends:
                truth = g.uniform(*p)
                (low,), (high,) = wilson(np.array([g.binomial(n, truth)]), np.array([n]))
                return low - truth, high - truth

            printed = "accuracy, robust accuracy, shape bias"
            yield Case("Wilson", printed, f"fraction {p[0]} to {p[1]}", n, 0.0, accuracy)
    for n in (100, 200, 1000):
        for lost, gained in (
            ((0.01, 0.03), (0.0, 0.0)),
            ((0.03, 0.07), (0.005, 0.015)),
            ((0.2, 0.4), (0.01, 0.03)),
            ((0.05, 0.15), (0.05, 0.15)),
        ):

            def drop(g: Generator, n: int = n, q: tuple = (lost, gained)) -> Ends:
                lost, gained = g.uniform(*q[0]), g.uniform(*q[1])
                a, b, _ = g.multinomial(n, [lost, gained, 1 - lost - gained])
                low, high = paired_proportions_interval(int(a), int(b), n)
                return low - lost + gained, high - lost + gained

            printed = "accuracy drops of ablation, noise, attacks and corruptions"
            situation = f"{lost[0]} to {lost[1]} lost, {gained[0]} to {gained[1]} gained"
            yield Case("Bonett and Price", printed, situation, n, 0.0, drop)
    for n in (16, 64, 128, 512):
        for share, spread in ((0.002, 20.0), (0.02, 2.0), (0.3, 5.0), (0.05, 1.05), (0.1, 2.2)):
            beta = share * spread, (1 - share) * spread

            def tokens(g: Generator, n: int = n, beta: tuple = beta) -> Ends:
                values = g.binomial(196, g.beta(*beta, size=n)) / 196
                mean, error = np.array([[values.mean()], [values.std(ddof=1) / n**0.5]])
                ends = mean_fraction_interval(mean, error, n)
                return float(ends[0][0]), float(ends[1][0])

            printed = "shares of outlier tokens and of heads with a sink, by block"
            situation = f"share {share}, {spread} pseudo-counts"
            yield Case("mean of token shares", printed, situation, n, share, tokens)
    for n, biases in (
        (64, (0.99, 0.97)),
        (64, (0.9, 0.8)),
        (228, (0.97, 0.95)),
        (228, (1, 0.98)),
    ):

        def biased(g: Generator, n: int = n, biases: tuple = biases) -> Ends:
            return shape_bias_difference(g, n, biases)

        situation = f"biases {biases[0]} and {biases[1]}"
        truth = biases[1] - biases[0]
        yield Case("difference of shape bias", "paired", situation, n, truth, biased)
    for m, n in ((50, 50), (200, 1000)):
        for area in (0.7, 0.95, 0.99):
            gap = float(2**0.5 * torch.special.ndtri(torch.tensor(area, dtype=torch.float64)))

            def separated(g: Generator, sizes: tuple = (m, n), gap: float = gap) -> Ends:
                a, b = g.normal(size=sizes[0]), g.normal(size=sizes[1]) + gap
                below = (a[:, None] < b).mean(1), (a[:, None] < b).mean(0)
                error = sum(v.var(ddof=1) / len(v) for v in below) ** 0.5
                ends = auroc_interval(*np.array([[below[0].mean()], [error]]), *sizes)
                return float(ends[0][0]), float(ends[1][0])

            printed = "detection of other data"
            yield Case("AUROC", printed, f"{area}, normal scores", m + n, area, separated)


def shape_bias_difference(g: Generator, n: int, biases: tuple[float, float]) -> Ends:
    """Ends of the difference of two models that decide for a cue on 0.9 of the images."""
    common, models = g.random(n), []
    targets, textures = torch.zeros(n, dtype=torch.int64), np.ones(n, int)
    for bias in biases:
        u = np.where(g.random(n) < 0.5, common, g.random(n))
        decision = torch.from_numpy(np.digitize(u, [0.9 * bias, 0.9]))
        logits = 9.0 * torch.nn.functional.one_hot(decision, 3)
        models.append(shape_bias(Predictions(logits, targets), textures, ["a", "b", "c"]))
    return compared("shape bias", *models)


def compared(quantity: str, *models: Result) -> Ends:
    """Ends of the difference of two models in one of their answers; NaN without values."""
    pair = [next(a for a in m.answers() if a.quantity.startswith(quantity)) for m in models]
    number = difference_of_models(*pair)
    return (float("nan"), float("nan")) if number is None else ends(number)


def ends(number: Number) -> Ends:
    """Both ends of the interval of an estimate."""
    return number.low, number.high


def combined(first: Number, second: Number) -> Ends:
    """The interval of the difference of two models in one estimate."""
    pair = [
        Answer("", "", float(x), x.low, x.high, comparison="combined", by_unit=x.by_unit)
        for x in (first, second)
    ]
    made = difference_of_models(*pair)
    assert made is not None
    return made.low, made.high


# Losses of images: draws, and their mean.
LOSSES: dict[str, tuple[Callable[[Generator, int], np.ndarray], float]] = {
    "Weibull with shape 0.6": (lambda g, n: g.weibull(0.6, n), 1.504575),
    "exponential for 10%": (lambda g, n: (g.random(n) < 0.1) * g.exponential(size=n), 0.1),
    "log-normal, sigma 1.2": (lambda g, n: g.lognormal(0, 1.2, n), float(np.exp(0.72))),
    "Pareto with shape 5": (lambda g, n: g.pareto(5, n), 0.25),
}


def means() -> Iterator[Case]:
    """Means over images of losses, of fractions of conditions, and of their differences."""
    for n in (64, 128, 512):
        for rate, groups in (((0.05, 0.15), 15), ((0.4, 0.6), 15), ((0.03, 0.07), 30)):

            def flips(g: Generator, n: int = n, rate: tuple = rate, k: int = groups) -> Ends:
                truth = g.uniform(*rate)  # a correlation of 0.5 between conditions of an image
                chances = g.beta(truth, 1 - truth, size=n)
                low, high = (
                    float(end[0]) for end in within_one(g.binomial(k, chances)[:, None] / k)
                )
                return low - truth, high - truth

            printed = "accuracy on corrupted images, flip rate"
            situation = f"{rate[0]} to {rate[1]} of {groups} conditions"
            yield Case("mean of fractions", printed, situation, n, 0.0, flips)
        for lost, gained, k in (
            ((0.03, 0.06), 0.0, 4),
            ((0.03, 0.07), 0.01, 4),
            ((0.2, 0.4), 0.02, 15),
        ):

            def contrast(
                g: Generator, n: int = n, lost: tuple = lost, gained: float = gained, k: int = k
            ) -> Ends:
                truth = g.uniform(*lost)
                u = g.random((n, k))
                low, high = mean_interval(((u < truth) * 1.0 - (u > 1 - gained)).mean(1))
                return low - truth + gained, high - truth + gained

            printed = "mean drops, contrasts of kinds and of frequency bands"
            situation = f"{lost[0]} to {lost[1]} lost, {gained} gained in {k} conditions"
            yield Case("mean of drops", printed, situation, n, 0.0, contrast)
        for name, (draw, truth) in LOSSES.items():

            def skewed(g: Generator, n: int = n, draw: Callable = draw) -> Ends:
                return mean_interval(draw(g, n))

            yield Case("mean of losses", "NLL, Brier score", name, n, truth, skewed)
        for model in TWO_CLASSES:
            scale, spread = model.scale, model.spread
            for metric in ("nll", "signed_ece", "aurc"):

                def loss(
                    g: Generator, n: int = n, m: BinaryModel = model, of: str = metric
                ) -> Ends:
                    return ends(getattr(calibration(m.sample(g, n)), of))

                situation = f"logits of {spread} times {scale}"
                truth = model.truth(metric)
                yield Case(f"mean {metric}", "NLL, ECE, AURC", situation, n, truth, loss)
        for rate in (0.1, 0.3):

            def independent(g: Generator, n: int = n, rate: float = rate) -> Ends:
                return ends(calibration(outcomes(g.random(n) >= rate, g.random(n))).aurc)

            situation = f"errors {rate}, whatever the confidence"
            yield Case("mean aurc", "NLL, ECE, AURC", situation, n, rate, independent)


@dataclass(frozen=True)
class BinaryModel:
    """A model of two classes whose logits are `scale` times the calibrated ones."""

    scale: float
    spread: float

    def sample(self, g: Generator, n: int) -> Outcomes:
        """Outcomes of n images."""
        z = self.spread * np.abs(g.normal(size=n)) + 0.2
        correct = g.random(n) < 1 / (1 + np.exp(-z))
        confidence = 1 / (1 + np.exp(-self.scale * z))
        nll = np.logaddexp(0, np.where(correct, -1, 1) * self.scale * z)
        return outcomes(correct, confidence, nll)

    def truth(self, metric: str) -> float:
        """The value in many images."""
        return getattr(self._reference, metric)

    @cached_property
    def _reference(self) -> CalibrationMetrics:
        return calibration(self.sample(np.random.default_rng(0), REFERENCE))


TWO_CLASSES = (BinaryModel(1.0, 2.0), BinaryModel(2.0, 2.0), BinaryModel(2.0, 4.0))


def outcomes(
    correct: np.ndarray, confidence: np.ndarray, nll: np.ndarray | None = None
) -> Outcomes:
    """Outcomes of a model of two classes with class 0 as all targets."""
    n = len(correct)
    return Outcomes(
        target=np.zeros(n, int),
        predicted=np.where(correct, 0, 1),
        correct=correct,
        top5=np.ones(n, bool),
        confidence=confidence.astype(np.float32),
        nll=np.zeros(n) if nll is None else nll,
        brier=np.zeros(n),
        classes=2,
    )


# Accuracy of an image with confidence c.
MODELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "calibrated": lambda c: c,
    "0.03 overconfident": lambda c: c - 0.03,
    "0.078 overconfident": lambda c: c - 0.078,
    "wrong in both directions": lambda c: c + np.where(c > 0.8, -0.05, 0.1),
    "wrong above 0.9 alone": lambda c: c - np.where(c > 0.9, 0.06, 0),
    "wrong below 0.7 alone": lambda c: c - np.where(c < 0.7, 0.15, 0),
    "wrong as a wave": lambda c: (c + 0.08 * np.sin(12 * c)).clip(0, 1),
}


def confidences(z: np.ndarray) -> np.ndarray:
    """Confidences of normal deviates."""
    return (1 / (1 + np.exp(-np.abs(2 + 1.5 * z)))).clip(0.5, 0.9999)


def true_ece(name: str) -> float:
    """ECE of the model in many images, with ten bins."""
    c = confidences(np.random.default_rng(0).normal(size=REFERENCE))
    gap, number = MODELS[name](c) - c, np.ceil(c * 10)
    return float(sum(abs(gap[number == b].sum()) for b in range(11)) / REFERENCE)


def calibration_errors() -> Iterator[Case]:
    """The debiased ECE, its difference, and the temperature."""
    for gap in (0.0, 0.03):
        for n in (100, 256, 1000):

            def sure(g: Generator, n: int = n, gap: float = gap) -> Ends:
                c = 1 - g.beta(0.2, 12, n)  # a mean of 0.984
                error = calibration_error(c.astype(np.float32), g.random(n) < c - gap)
                return error.debiased.low, error.debiased.high

            situation = f"{gap} overconfident, few errors"
            yield Case("debiased ECE", "debiased ECE", situation, n, gap, sure)
    for name, chance in MODELS.items():
        for n in (100, 256, 1000):

            def ece(g: Generator, n: int = n, chance: Callable = chance) -> Ends:
                c = confidences(g.normal(size=n))
                error = calibration_error(c.astype(np.float32), g.random(n) < chance(c))
                return error.debiased.low, error.debiased.high

            truth = true_ece(name)
            yield Case("debiased ECE", "debiased ECE", name, n, truth, ece)
    for beta in ((20, 2), (8, 2), (30, 1)):
        for accuracy in (1.0, 0.995, 0.0):
            for n in (128, 256, 1000):

                def timid(
                    g: Generator, n: int = n, beta: tuple = beta, accuracy: float = accuracy
                ) -> Ends:
                    c = g.beta(beta[0], beta[1], n).astype(np.float32)
                    error = calibration_error(c, g.random(n) < accuracy)
                    return error.debiased.low, error.debiased.high

                c = np.random.default_rng(0).beta(beta[0], beta[1], REFERENCE)
                gaps = np.bincount(np.ceil(c * 10).astype(int), accuracy - c)
                truth = float(np.abs(gaps).sum() / REFERENCE)
                situation = f"accuracy {accuracy}, confidences Beta{beta}"
                yield Case("debiased ECE", "debiased ECE", situation, n, truth, timid)
    for n in (128, 512):

        def both_right(g: Generator, n: int = n) -> Ends:
            pair = (outcomes(np.ones(n, bool), g.beta(a, 2, n)) for a in (20, 8))
            return compared("debiased ECE", *map(calibration, pair))

        truth, situation = 0.2 - 2 / 22, "both of accuracy 1"
        yield Case("difference of ECE", "paired", situation, n, truth, both_right)
    names = list(MODELS)
    for first, second in ((0, 0), (0, 2), (0, 1), (1, 2), (3, 2), (4, 0), (2, 2)):
        a, b = names[first], names[second]

        def difference(g: Generator, a: str = a, b: str = b) -> Ends:
            luck, easy = g.normal(size=(2, 512))
            pair = []
            for name in (a, b):
                c = confidences(0.7 * easy + 0.714 * g.normal(size=512))
                u = torch.special.ndtr(
                    torch.from_numpy(0.7 * luck + 0.714 * g.normal(size=512))
                )
                pair.append(outcomes(u.numpy() < MODELS[name](c), c))
            return compared("debiased ECE", *map(calibration, pair))

        truth = true_ece(b) - true_ece(a)
        yield Case("difference of ECE", "paired", f"{a}; {b}", 512, truth, difference)
    for n, factor in ((100, 2.0), (400, 0.5), (400, 2.0)):

        def fitted(g: Generator, n: int = n, factor: float = factor) -> Ends:
            z = torch.from_numpy(2 * g.normal(size=(n, 4)))
            targets = torch.multinomial(z.softmax(1), 1, generator=torch_generator(g))[:, 0]
            result, _ = temperature(Predictions(factor * z, targets))
            return result.temperature.low, result.temperature.high

        yield Case("temperature", "temperature", f"of {factor}", n, factor, fitted)


def torch_generator(g: Generator) -> torch.Generator:
    """A torch generator with a seed from a NumPy one."""
    return torch.Generator().manual_seed(int(g.integers(2**31)))


def comparisons() -> Iterator[Case]:
    """Paired differences of losses, and Cohen's kappa."""
    for n in (64, 256, 1000):

        def losses(g: Generator, n: int = n) -> Ends:
            difficulty = g.exponential(size=n)
            a, b = (difficulty * g.lognormal(m, 0.8, size=n) for m in (0.0, 0.2))
            return mean_interval(b - a)

        truth = float(np.exp(0.32) * (np.exp(0.2) - 1))
        printed = "differences between two models"
        yield Case("paired differences", printed, "log-normal losses", n, truth, losses)
    for n, rates in (
        (64, (0.0, 0.05)),
        (128, (0.0, 0.02)),
        (128, (0.03, 0.06)),
        (128, (0.1, 0.2)),
        (256, (0.02, 0.05)),
        (500, (0.01, 0.02)),
        (1000, (0.005, 0.01)),
    ):

        def rare(g: Generator, n: int = n, rates: tuple = rates) -> Ends:
            return compared("NLL", *(calibration(accurate(g, n, rate)) for rate in rates))

        g = np.random.default_rng(0)
        mean = [float(accurate(g, 4 * REFERENCE, rate).nll.mean()) for rate in rates]
        situation = f"error rates {rates[0]} and {rates[1]}"
        printed = "differences between two models"
        yield Case("paired NLL", printed, situation, n, mean[1] - mean[0], rare)
    for n in (64, 200, 1000):
        for p, q in ((0.75, 0.75), (0.92, 0.9)):
            for truth in (0.1, 0.6, 0.85, 0.93, 0.98):
                disagree = (1 - truth) * (p * (1 - q) + q * (1 - p))
                first, second = (disagree + p - q) / 2, (disagree - p + q) / 2
                if second < 0:
                    continue
                cells = [1 - p - second, second, first, p - first]

                def kappa(g: Generator, n: int = n, cells: list = cells) -> Ends:
                    counts = g.multinomial(n, cells).reshape(2, 2)
                    return kappa_interval(counts.astype(np.float64))

                situation = f"{truth}, accuracies {p} and {q}"
                yield Case("kappa", "error consistency", situation, n, truth, kappa)


def accurate(g: Generator, n: int, error_rate: float) -> Outcomes:
    """A confident model of two classes with exponential logits of its few errors."""
    correct = g.random(n) >= error_rate
    z = np.where(correct, 4 + 0.3 * g.normal(size=n), -g.exponential(3, n))
    return outcomes(correct, 1 / (1 + np.exp(-np.abs(z))), np.logaddexp(0, -z))


def eigenvalues() -> Iterator[Case]:
    """NEP, APE and the geometric mean over mini-batches of 5 eigenvalues."""
    for n in (10, 16, 32):
        for p in ((0.005, 0.03), (0.03, 0.1), (0.1, 0.3), (0.3, 0.6)):
            for r in (0.1, 0.4, 0.8):

                def proportion(g: Generator, n: int = n, p: tuple = p, r: float = r) -> Ends:
                    truth, shape = g.uniform(*p), 1 / r - 1
                    q = g.beta(truth * shape, (1 - truth) * shape, size=(n, 1))
                    values = np.where(g.random((n, 5)) < q, -1.0, 1.0)
                    nep = negative_proportion(list(values))
                    return nep.low - truth, nep.high - truth

                situation = f"{p[0]} to {p[1]} negative, correlation {r}"
                yield Case("NEP", "NEP", situation, n, 0.0, proportion)
        for k, p, r in ((10, 0.02, 0.5), (10, 0.05, 0.5), (5, 0.05, 0.4), (5, 0.01, 0.8)):

            def single(
                g: Generator, n: int = n, k: int = k, p: float = p, r: float = r
            ) -> Ends:
                q = g.beta(p * (1 / r - 1), (1 - p) * (1 / r - 1), size=(n, 1))
                return ends(
                    negative_proportion(list(np.where(g.random((n, k)) < q, -1.0, 1.0)))
                )

            situation = f"{p} negative of {k}, correlation {r}"
            yield Case("NEP", "NEP", situation, n, p, single)
        for spread in (0.2, 0.5, 0.9, 1.2, 1.5):

            def logarithms(g: Generator, n: int = n, s: float = spread) -> Ends:
                values = np.exp(s * g.normal(size=(n, 1)) + 0.4 * g.normal(size=(n, 5)))
                return ends(geometric_mean(list(values)))

            situation = f"spread {spread} of logs"
            yield Case("geometric mean", "geometric mean", situation, n, 1.0, logarithms)
        for first, second in ((0.0, 0.05), (0.01, 0.05), (0.1, 0.1), (0.2, 0.3)):

            def more_negative(g: Generator, n: int = n, pair: tuple = (first, second)) -> Ends:
                common = g.random((n, 1))  # a mini-batch is hard for both models
                u = np.where(g.random((n, 5)) < 0.4, common, g.random((n, 5)))
                values = (list(np.where(u < p, -1.0, 1.0)) for p in pair)
                return combined(*map(negative_proportion, values))

            situation = f"{first} and {second} negative"
            yield Case(
                "difference of NEP", "paired", situation, n, second - first, more_negative
            )
    for n in (32, 64):
        yield from heavy_tails(n)


def heavy_tails(n: int) -> Iterator[Case]:
    """Means of n mini-batches with heavy tails, and their paired differences."""
    for shape in (2.0, 6.0):  # of gamma-distributed mini-batches with a mean of 1

        def gamma_ape(g: Generator, shape: float = shape) -> Ends:
            scale = g.gamma(shape, 1 / shape, size=(n, 1))
            values = scale * g.weibull(1.5, size=(n, 5)) / 0.9027453
            return ends(average_positive(list(values)))

        yield Case("APE", "APE", f"gamma with shape {shape}", n, 1.0, gamma_ape)
    for part, factor in ((0.1, 10.0), (0.2, 10.0), (0.1, 4.0), (0.1, 30.0)):

        def mixed(g: Generator, part: float = part, factor: float = factor) -> Ends:
            sharp = np.where(g.random((n, 1)) < part, factor, 1.0)
            return ends(average_positive(list(sharp * np.exp(0.3 * g.normal(size=(n, 5))))))

        truth = (1 - part + part * factor) * float(np.exp(0.045))
        yield Case("APE", "APE", f"{part} are {factor} times as sharp", n, truth, mixed)
    for spread in (0.2, 0.5, 0.9, 1.2, 1.5):
        truth = float(np.exp((spread**2 + 0.16) / 2))

        def ape(g: Generator, s: float = spread) -> Ends:
            values = np.exp(s * g.normal(size=(n, 1)) + 0.4 * g.normal(size=(n, 5)))
            return ends(average_positive(list(values)))

        def sharper(g: Generator, s: float = spread) -> Ends:
            common = s * g.normal(size=(n, 1))
            shifts = np.zeros((n, 1)), 0.3 + 0.3 * g.normal(size=(n, 1))
            pair = (list(np.exp(common + d + 0.4 * g.normal(size=(n, 5)))) for d in shifts)
            return combined(*map(average_positive, pair))

        def rises(g: Generator, s: float = spread) -> Ends:
            return heavy_tailed_interval(np.exp(s * g.normal(size=n)))

        def sharper_rises(g: Generator, s: float = spread) -> Ends:
            common = s * g.normal(size=n)
            shifts = 0.0, 0.3
            pair = (np.exp(common + d + 0.3 * g.normal(size=n)) for d in shifts)
            return combined(*map(heavy_tailed, pair))

        situation = f"spread {spread} of logs"
        more = float(np.exp(0.3) - 1)
        yield Case("APE", "APE", situation, n, truth, ape)
        value = truth * float(np.exp(0.345) - 1)
        yield Case("difference of APE", "paired", situation, n, value, sharper)
        value = float(np.exp(spread**2 / 2))
        yield Case("sharpness", "sharpness over mini-batches", situation, n, value, rises)
        value = float(np.exp((spread**2 + 0.09) / 2)) * more
        name = "difference of sharpness"
        yield Case(name, "largest eigenvalue, sharpness", situation, n, value, sharper_rises)


def few_units() -> Iterator[Case]:
    """Student's interval over few units, and standard errors over images with its quantile."""
    for n, printed in (
        (3, "trained seeds, direction pairs, start vectors"),
        (10, "trace, sharpness over mini-batches, block structure"),
    ):

        def few(g: Generator, n: int = n) -> Ends:
            values = g.normal(1, 0.5, size=n)
            return t_interval(float(values.mean()), float(values.std(ddof=1) / n**0.5), n)

        yield Case("Student's t", printed, "normal values", n, 1.0, few)
    for n in (16, 64, 256):

        def changes(g: Generator, n: int = n) -> Ends:
            values = g.gamma(4, size=n) - g.gamma(2, size=n)
            return t_interval(float(values.mean()), float(values.std(ddof=1) / n**0.5), n)

        printed = "values and changes by block and by kind"
        yield Case("standard error over images", printed, "gamma values", n, 2.0, changes)


@cache
def rises(network: str) -> np.ndarray:
    """Rise of the NLL on circles at distance 0.5, of 40 direction pairs and 1,000 images."""
    loaded = load_model(network)
    images = batches(load_data("shapes", limit=1000), loaded.preprocessing, 100)
    samples = read_samples(images, Compute())
    evaluation = Evaluation(loaded.model, samples, cross_entropy, "frozen", Run())
    planes = random_planes(loaded.model, pairs=40)
    circle = 2 * np.pi * np.arange(8) / 8
    points = [(p, 0.5 * np.cos(phi), 0.5 * np.sin(phi)) for p in range(40) for phi in circle]
    sums = np.zeros((40, len(samples)))
    with torch.no_grad(), evaluation.prepared():
        origin = evaluation.origin(lambda: None)
        for (pair, _, _), losses in zip(
            points, evaluation.points(planes, points, lambda: None), strict=True
        ):
            sums[pair] += losses.nll - origin.nll
    return sums / 8


def crossed() -> Iterator[Case]:
    """Means over direction pairs and images of two trained networks, 3 pairs as by default."""
    for network in NETWORKS:
        for n in (32, 128, 512):

            def drawn(g: Generator, network: str = network, n: int = n) -> Ends:
                values = rises(network)
                pairs, images = (g.choice(k, m, replace=False) for k, m in ((40, 3), (1000, n)))
                return ends(crossed_mean(values[np.ix_(pairs, images)]))

            truth, printed = float(rises(network).mean()), "NLL increase on circles"
            yield Case("pairs and images", printed, f"{network}, 3 pairs", n, truth, drawn)


@dataclass(frozen=True)
class FeatureSample:
    """Features of classes of equal size: normal values around random means."""

    situation: str
    units: int
    classes: int
    width: int
    noise: float  # standard deviation of the largest direction; that of the means is 1
    decay: float  # exponent of the standard deviations of the directions
    rectified: bool = False  # negative values become 0

    def __call__(self, g: Generator) -> dict[str, tuple[float, Ends]]:
        """Each quantity of a sample with its interval."""
        fixed = np.random.default_rng(3)
        means = fixed.normal(size=(self.classes, self.width))
        head = means + fixed.normal(size=means.shape)
        scales = self.noise * np.arange(1, self.width + 1) ** -self.decay
        index = np.arange(self.units) % self.classes
        x = means[index] + scales * g.normal(size=(self.units, self.width))
        x = np.maximum(x, 0) if self.rectified else x
        layer = torch.nn.Linear(self.width, self.classes, bias=False)
        layer.weight.data = torch.from_numpy(head).float()
        block = Block("block", "conv", 0, 0.0, False, (self.width, 1, 1), None)
        rows = x.astype(np.float32)
        pooled = PooledFeatures({block: rows}, index, None, inputs=rows)
        collapse = separability(pooled, "mean", layer, predicts_targets=False)
        values = {"nc3": collapse.self_duality}
        values |= {n: getattr(collapse, n)[0] for n in collapse.estimates() if n not in _HEAD}
        return {name: (float(v), (v.low, v.high)) for name, v in values.items()}


@dataclass(frozen=True)
class PairSample(FeatureSample):
    """RSA of the features and of a random linear map of them, rectified, with noise."""

    def __call__(self, g: Generator) -> dict[str, tuple[float, Ends]]:
        """RSA of a sample with its interval."""
        fixed = np.random.default_rng(4)
        means = fixed.normal(size=(self.classes, self.width)) * (self.classes > 1)
        weights = fixed.normal(size=(self.width, self.width))
        scales = np.arange(1, self.width + 1) ** -self.decay
        x = scales * g.normal(size=(self.units, self.width))
        x += means[g.integers(self.classes, size=self.units)]
        y = np.maximum(x @ weights, 0) + self.noise * g.normal(size=x.shape)
        first, second = (ranks_of_pairs(1 - np.corrcoef(values)) for values in (x, y))
        rsa = mean(rsa_by_image(first, second))
        return {"rsa": (float(rsa), (rsa.low, rsa.high))}


FEATURE_INTERVALS = {
    "nc1": "NC1",
    "equinorm": "NC2",
    "equiangularity": "NC2",
    "maximal_angle": "NC2",
    "nc3": "NC3",
    "rsa": "RSA",
}


NETWORKS = {
    "resnet20.shapes": ("layer1.2", "layer3.2"),
    "vit_pico_patch4_32.shapes": ("stem", "blocks.3.mlp"),
}


@cache
def network_features(network: str) -> PooledFeatures:
    """Features of the 10,000 test images of shapes at two blocks of a shipped network."""
    loaded = load_model(network)
    images = list(batches(load_data("shapes", split="test"), loaded.preprocessing, 500))
    anatomy = dissect(loaded.model, images[0][0][:2])
    pooled = pooled_features(anatomy, images, pooling="mean", run=Run())
    features = {b: x for b, x in pooled.features.items() if b.name in NETWORKS[network]}
    return replace(pooled, features=features, logits=None)


def samples_of(network: str, units: int, samples: int) -> Iterator[dict[str, np.ndarray]]:
    """Value and both ends of each quantity of each block, of random images without repeats."""
    pooled = network_features(network)
    assert pooled.targets is not None
    generator = np.random.default_rng(units)
    for seed in range(samples):
        rows = generator.choice(len(pooled), units, replace=False)
        features = {block: x[rows] for block, x in pooled.features.items()}
        targets, origin = pooled.targets[rows], Provenance(seed=seed)
        part = replace(pooled, features=features, targets=targets, provenance=origin)
        nc1 = separability(part, "mean", None, predicts_targets=False).nc1
        yield {
            f"nc1, {block.name} of {network}": np.array(
                [float(nc1[i]), nc1.low[i], nc1.high[i]]
            )
            for i, block in enumerate(features)
        }


def trained_networks(samples: int, commit: str) -> Iterator[Row]:
    """Coverage on features of trained networks; the truth is the mean over the samples."""
    for network in NETWORKS:
        for units in (100, 256, 500, 1000):
            drawn = list(samples_of(network, units, samples))
            for situation in drawn[0]:
                value, low, high = np.array([row[situation] for row in drawn]).T
                given, truth = np.isfinite(low) & np.isfinite(high), np.nanmean(value)
                inside = ((low <= truth) & (truth <= high))[given]
                yield Row(
                    FEATURE_INTERVALS[situation.partition(",")[0]],
                    "class separability",
                    situation,
                    units,
                    round(float(inside.mean()), 4) if given.any() else None,
                    round(float(given.mean()), 3),
                    samples,
                    commit,
                )


@cache
def expected(sample: FeatureSample, samples: int = 2000) -> dict[str, float]:
    """Mean of each quantity over samples of as many images."""
    generator = np.random.default_rng(5)
    rows = [sample(generator) for _ in range(samples)]
    return {name: float(np.mean([row[name][0] for row in rows])) for name in rows[0]}


def features() -> Iterator[Case]:
    """Functions of all images together; the truth is the mean over samples of as many."""
    for sample in (
        FeatureSample("normal features of 5 classes", 50, 5, 20, 2.0, 0.7),
        FeatureSample("normal features of 5 classes", 200, 5, 20, 2.0, 0.7),
        FeatureSample(
            "rectified features of 10 classes", 100, 10, 64, 2.0, 0.0, rectified=True
        ),
        FeatureSample(
            "rectified features of 10 classes", 500, 10, 64, 2.0, 0.0, rectified=True
        ),
        FeatureSample("10 separated classes", 100, 10, 64, 0.3, 1.0),
        FeatureSample("10 classes that overlap", 500, 10, 16, 8.0, 0.0),
        FeatureSample("more features than images", 100, 10, 200, 2.0, 0.5),
        PairSample("one cluster of images", 100, 1, 20, 0.5, 0.7),
        PairSample("one cluster of images", 200, 1, 20, 0.5, 0.7),
        PairSample("5 classes", 100, 5, 20, 0.5, 0.7),
        PairSample("8 features", 100, 1, 8, 0.1, 0.7),
        PairSample("8 features", 200, 1, 8, 0.1, 0.7),
    ):
        similarity = isinstance(sample, PairSample)
        for name, interval in FEATURE_INTERVALS.items():
            if (name == "rsa") != similarity:
                continue

            def draw(g: Generator, name: str = name, sample: FeatureSample = sample) -> Ends:
                return sample(g)[name][1]

            printed = "feature similarity" if similarity else "class separability"
            situation = f"{name}, {sample.situation}"
            yield Case(interval, printed, situation, sample.units, expected(sample)[name], draw)


if __name__ == "__main__":
    main()

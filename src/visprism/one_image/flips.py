"""Flips: the smallest change of an image that changes the predicted class.

Each change has 15 steps, from one that is hardly visible to a large one. The largest is tried
first: an image whose class it does not change is stable up to there, as far as this one step
can tell. Otherwise bisection finds a step that changes the class whose step before does not.
A scan tries every step, and finds the smallest one also where the class changes back and forth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import torch
from jaxtyping import Float, Int64
from PIL import Image
from torch import Tensor

from visprism import kit
from visprism.analyses.predictions.attacks import Attack, AttackLoss, PerturbationBall
from visprism.analyses.predictions.bands import band, filtered, with_rms
from visprism.analyses.predictions.frequency_noise import white_noise
from visprism.images.corruptions.filters import gaussian, rotated, translated
from visprism.images.pixels import pictures, stacked
from visprism.passes.perturbed import PixelSpace

STEPS = 15
_DEGREES, _SHIFT, _SIGMA, _QUALITY, _RMS, _EPSILON = 3.0, 1 / 60, 1 / 240, 6, 0.02, 0.5
_BANDS = {"low": 0.2, "middle": 0.5, "high": 0.8}  # centers in π rad/pixel

Pixels = Float[Tensor, "v c h w"]


@dataclass(frozen=True)
class Change:
    """A change of pixels in steps, each of one or several variants, such as left and right."""

    name: str
    unit: str
    strength: Callable[[int], float]  # of a step from 1 to `STEPS`, in the unit
    variants: Callable[[Pixels, int], Pixels]  # of one image, in 0 ... 1, at a step


@kit.result("flips", "What would change its mind")
class Flips(kit.Result):
    """The smallest change of one image that changes the predicted class; a row for each change.

    NaN where not even the largest change does.
    """

    change: kit.Texts = kit.column("Change", "", "of the pixels")
    unit: kit.Texts = kit.column("Unit", "", "of the strength, which stands for {}")
    smallest: np.ndarray = kit.column("Smallest flip", "", "strength that changes the class")
    step: np.ndarray = kit.column("Step", "", "of the change, from 1 to 15; 0: none flips")
    largest: np.ndarray = kit.column("Largest tried", "", "strength of the last step")
    predicted: np.ndarray = kit.column("Prediction", "", "class after the change; -1: no flip")
    confidence: np.ndarray = kit.column("Confidence", "", "probability of that class")
    scanned: int = kit.scalar("Scan", "", "1: every step was tried; 0: bisection", default=0)
    passes: int = kit.scalar("Forward passes", "", "images that the model saw", default=0)


def changes_of(pixels: Float[Tensor, "1 c h w"], gradient: Tensor | None) -> list[Change]:
    """The changes of an image: geometry, blur, JPEG, noise of three bands and an attack."""
    height, width = pixels.shape[-2:]

    def shift(k: int) -> int:
        return max(1, round(k * _SHIFT * width))

    def shifted(x: Pixels, k: int) -> Pixels:
        return torch.cat([translated(x, shift(k)), translated(x, -shift(k))])

    def both_rotations(x: Pixels, k: int) -> Pixels:
        return torch.cat([rotated(x, k * _DEGREES), rotated(x, -k * _DEGREES)])

    def sigma(k: int) -> float:
        return k * _SIGMA * max(height, width)

    def attacked(x: Pixels, k: int) -> Pixels:
        assert gradient is not None
        ball = PerturbationBall(Attack("fgsm", epsilon=k * _EPSILON / 255))
        return x + ball.project(ball.steepest_step(gradient), x)

    changes = [
        Change("rotation", "{}°", lambda k: k * _DEGREES, both_rotations),
        Change("shift", "{} pixels", shift, shifted),
        Change("blur", "sigma {} pixels", sigma, lambda x, k: gaussian(x, sigma(k))),
    ]
    if pixels.shape[1] == 3:
        changes.append(
            Change("JPEG", "quality {}", _quality, lambda x, k: jpeg(x, _quality(k)))
        )
    white = white_noise(pixels, 0, range(1))
    for name, center in _BANDS.items():
        mask = band((height, width), center)
        if mask.any():
            noise = with_rms(filtered(white, mask), 1.0)
            changes.append(
                Change(
                    f"{name}-frequency noise",
                    f"RMS {{}} at {center:g}π",
                    lambda k: k * _RMS,
                    lambda x, k, noise=noise: x + k * _RMS * noise,
                )
            )
    if gradient is not None:
        changes.append(Change("attack", "{}/255", lambda k: k * _EPSILON, attacked))
    return changes


def _quality(k: int) -> int:
    return 95 - _QUALITY * k


def jpeg(pixels: Pixels, quality: int) -> Pixels:
    """The images after a file of JPEG of a quality from 1 to 95."""

    def compressed(image: Image.Image) -> Image.Image:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    eight_bit = (pixels * 255).round().byte()
    return stacked(map(compressed, pictures(eight_bit.cpu()))).to(pixels.device).float() / 255


Predict = Callable[[Pixels], Float[Tensor, "v k"]]  # logits of pixels


def smallest_flips(
    pixels: Float[Tensor, "1 c h w"],
    changes: Sequence[Change],
    predict: Predict,
    *,
    scan: bool,
) -> tuple[Flips, list[Float[Tensor, "c h w"] | None]]:
    """The smallest step of each change that flips the class, and the image after it.

    Bisection costs up to 5 steps for each change, a scan 15. The changes of one round of the
    bisection are one batch.
    """
    original = int(predict(pixels)[0].argmax())
    tried: list[dict[int, tuple[int, float, Tensor]]] = [{} for _ in changes]
    passes = 1

    def attempt(steps: Mapping[int, int]) -> None:
        """Try a step of each of some changes; what a flip leads to, or that there is none."""
        nonlocal passes
        batches = {
            i: changes[i].variants(pixels, step).clamp(0, 1) for i, step in steps.items()
        }
        if not batches:
            return
        logits = predict(torch.cat(list(batches.values()))).double()
        passes += len(logits)
        parts = logits.softmax(1).split([len(batch) for batch in batches.values()])
        for (i, batch), p in zip(batches.items(), parts, strict=True):
            best = p.argmax(1)
            rows = (best != original).nonzero()[:, 0]
            row = int(rows[0]) if len(rows) else 0
            found = int(best[row]) if len(rows) else -1
            tried[i][steps[i]] = found, float(p[row].max()), batch[row]

    def flips(i: int, step: int) -> bool:
        return tried[i][step][0] >= 0

    attempt(dict.fromkeys(range(len(changes)), STEPS))
    if scan:
        for step in range(1, STEPS):
            attempt(dict.fromkeys(range(len(changes)), step))
        ends = [
            next((k for k in range(1, STEPS + 1) if flips(i, k)), 0)
            for i in range(len(changes))
        ]
    else:
        low = [0] * len(changes)
        ends = [STEPS if flips(i, STEPS) else 0 for i in range(len(changes))]
        while middles := {i: (low[i] + e) // 2 for i, e in enumerate(ends) if e - low[i] > 1}:
            attempt(middles)
            for i, middle in middles.items():
                (ends if flips(i, middle) else low)[i] = middle
    found = [tried[i].get(end) for i, end in enumerate(ends)]
    flipped = Flips(
        change=np.array([c.name for c in changes]),
        unit=np.array([c.unit for c in changes]),
        smallest=np.array(
            [c.strength(e) if e else np.nan for c, e in zip(changes, ends, strict=True)]
        ),
        step=np.array(ends),
        largest=np.array([float(c.strength(STEPS)) for c in changes]),
        predicted=np.array([-1 if f is None else f[0] for f in found]),
        confidence=np.array([np.nan if f is None else f[1] for f in found]),
        scanned=int(scan),
        passes=passes,
    )
    return flipped, [None if f is None else f[2] for f in found]


def pixel_gradient(
    subject: kit.Subject, pixels: Float[Tensor, "1 c h w"], predicted: Int64[Tensor, " 1"]
) -> Tensor | None:
    """The gradient of the cross-entropy of the predicted class; None where it is 0."""
    way = subject.known_preprocessing
    loss = AttackLoss(subject.model, PixelSpace(way.mean, way.std), predicted)
    try:
        gradient = loss.values(pixels).gradient
    except kit.InputError:  # the model passes no gradient to its images
        return None
    return gradient if gradient.any() else None


def words_of(flips: Flips, i: int) -> str:
    """The strength of a row in words: of the smallest flip, or else of the largest step."""
    strength = flips.smallest[i] if flips.step[i] else flips.largest[i]
    return str(flips.unit[i]).format(f"{strength:.3g}")

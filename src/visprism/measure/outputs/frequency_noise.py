"""Frequency noise: what noise of one band of frequencies costs.

Source: Park and Kim (2022), How do vision transformers work?, fig. 2b.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.processes import add_up
from visprism.core.provenance import Provenance
from visprism.core.rng import stream
from visprism.measure.batches import Batch
from visprism.measure.outputs.bands import (
    CENTRES,
    WIDTH,
    band,
    check_band,
    check_ring,
    filtered,
    of_rms,
    paper_band,
)
from visprism.measure.outputs.perturbed_evaluation import Progress, evaluate_perturbed
from visprism.measure.outputs.pixel_space import PixelSpace
from visprism.results.base import Result, column, result_type, scalar

RMS = 0.1  # in pixels of 0 ... 1
EPSILON = 0.7  # of Park and Kim, in an answer about their code, which has 0.007


@result_type("frequency-robustness")
class FrequencyRobustness(Result):
    """One row for each band of frequencies."""

    frequency: np.ndarray = column(
        "Frequency", "π rad/pixel", "middle of the band, in pi rad/pixel"
    )
    rms: np.ndarray = column("RMS", "", "of the noise, in pixels of 0 ... 1, over all images")
    accuracy: np.ndarray = column("Accuracy", "", "with noise")
    drop: np.ndarray = column("Drop", "", "of the accuracy, from that of images as they are")
    drop_error: np.ndarray = column("Drop error", "", "standard error, paired by image")
    nll: np.ndarray = column("Nll")
    nll_rise: np.ndarray = column("Rise of NLL")
    nll_rise_error: np.ndarray = column("Nll rise error")
    clean_accuracy: float = scalar("Clean accuracy", default=float("nan"))
    clean_nll: float = scalar("Clean nll", default=float("nan"))
    width: float = scalar("Width", "", "of a band, in pi rad/pixel", default=WIDTH)
    ring: str = scalar("Ring", default="square")
    left_out: str = scalar(
        "Left out", "", "bands that hold no frequency of images so small", default=""
    )

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        worst, best = int(self.drop.argmax()), int(self.drop.argmin())
        if (self.drop <= 1.96 * self.drop_error).all():
            return ["Noise of no band costs accuracy that can be told from chance"]
        return [
            f"Noise at {self.frequency[worst]:.3g}π costs most accuracy, "
            f"{self.drop[worst]:.1%} ± {1.96 * self.drop_error[worst]:.1%} of "
            f"{self.clean_accuracy:.1%}; at {self.frequency[best]:.3g}π it costs "
            f"{self.drop[best]:.1%}"
        ]


def frequency_noise(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    frequencies: Sequence[float] = CENTRES,
    rms: float = RMS,
    ring: str = "square",
    protocol: str = "default",
    epsilon: float = EPSILON,
    seed: int = 0,
    compute: Compute = CPU,
    progress: Progress | None = None,
    provenance: Provenance | None = None,
) -> FrequencyRobustness:
    """What noise of each band of frequencies costs in accuracy and NLL.

    x' = x + n_f with n_f the part of white noise whose frequency lies in a ring about f,
    Gaussian, scaled for each image so that its root mean square is `rms` in every band: equally
    strong noise, wherever it lies. Pixels are not clipped, which would move noise to other
    bands. An image's noise depends on the seed and its place in the data.

    The paper's noise, by ``protocol="paper"``, is epsilon sign(g) in a ring, in standardised
    images, with no scale: the ring of a higher frequency is larger, so that noise is stronger
    there, some four times between 0.05 pi and 0.75 pi.

    Costs a pass for each band, and one.

    Args:
        model: in evaluation mode.
        batches: each is (images, targets), all of one size but the last.
        mean: by which the images were standardised, of each channel.
        std: the same.
        frequencies: middles of the bands, in pi rad/pixel.
        rms: of the noise, in pixels of 0 ... 1.
        ring: "square" or "round".
        protocol: "default" or "paper".
        epsilon: of the paper's noise.
        seed: of the noise.
        compute: device and precision.
        progress: wraps the batches to show how far it is.
        provenance: what is known of the model and the data; the rest is filled in here.

    Raises:
        InputError: if the images have no labels or other channels, or are not in 0 ... 1 when
            the standardisation is undone; a band or the protocol is none; or the model is in
            training mode.

    Source: Park and Kim (2022), fig. 2b; the energy is equal after Yin et al. (2019), A Fourier
    perspective on model robustness in computer vision.
    """
    if protocol not in ("default", "paper"):
        raise InputError(f"protocol is {protocol!r}; wants 'default' or 'paper'")
    if not (0 < rms < inf and 0 < epsilon < inf):
        raise InputError(f"rms is {rms} and epsilon is {epsilon}; both want to be above 0")
    for frequency in frequencies:
        check_band(frequency)
    check_ring(ring)
    if protocol == "paper" and ring != "square":
        raise InputError(f"ring is {ring!r}; the paper's protocol has rings of its own")
    if not len(frequencies):
        raise InputError("no frequency is named; wants the middles of bands, as 0.1 ... 0.9")
    space = PixelSpace(mean, std)
    power = torch.zeros(len(frequencies), 2, dtype=torch.float64)  # sum of squares, and number

    def changed(which: int, pixels: Tensor, _targets: Tensor, numbers: range) -> Tensor:
        size = (pixels.shape[-2], pixels.shape[-1])
        white = white_noise(pixels, seed, numbers)
        if protocol == "paper":
            mask = paper_band(size, frequencies[which])
            noise = space.in_pixels(epsilon * filtered(white.sign(), mask))
        else:
            noise = of_rms(filtered(white, band(size, frequencies[which], ring=ring)), rms)
        power[which, 0] += noise.double().square().sum().cpu()
        power[which, 1] += noise.numel()
        return pixels + noise

    sums, facts = evaluate_perturbed(
        model,
        batches,
        space,
        len(frequencies),
        changed,
        compute=compute,
        progress=progress,
        provenance=provenance,
    )
    power = add_up(power)
    strength = (power[:, 0] / power[:, 1]).sqrt().numpy()
    found = FrequencyRobustness(
        frequency=np.array(frequencies, dtype=float),
        rms=strength,
        **sums.columns(),
        clean_accuracy=sums.accuracy,
        clean_nll=sums.nll,
        ring="paper's" if protocol == "paper" else ring,
        provenance=replace(facts, protocol=protocol, seed=seed),
    )
    return _with_frequencies(found)


def _with_frequencies(found: FrequencyRobustness) -> FrequencyRobustness:
    """The rows of bands in which there was noise."""
    empty = found.rms == 0
    if empty.all():
        height, width = found.provenance.image_shape[1:]
        raise InputError(
            f"images of {height}x{width} have no frequency in any of the bands; take other "
            "bands, or larger images"
        )
    names = ", ".join(f"{f:g}π" for f in found.frequency[empty])
    return replace(found.select(~empty), left_out=names)


def white_noise(like: Float[Tensor, "b c h w"], seed: int, numbers: range) -> Tensor:
    """Gaussian noise; each image's depends on the seed and its number alone."""
    drawn = [
        torch.randn(like.shape[1:], generator=stream(seed, "frequency noise", number))
        for number in numbers
    ]
    return torch.stack(drawn).to(like)

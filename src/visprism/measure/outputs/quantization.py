"""Quantization sensitivity: accuracy and NLL with one block rounded to a few bits.

Source: Nagel et al. (2021), A white paper on neural network quantization, sec. 2 (symmetric
uniform quantization, per channel) and sec. 3.5 (sensitivity of single layers).
"""

from collections.abc import Iterable, Mapping, Sequence
from math import nan

import numpy as np
from jaxtyping import Float

from visprism.anatomy import (
    Anatomy,
    Block,
    quantization,
    quantized,
    weights_of,
)
from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.measure.outputs.block_ablation import ablated_outcomes
from visprism.passes.batches import Batch, check_evaluation_mode
from visprism.results.quantization import QuantizationSensitivity

BITS = (8, 6, 4)


def quantization_sensitivity(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    *,
    bits: Sequence[int] = BITS,
    traces: Mapping[str, Float[np.ndarray, " probes"]] | None = None,
    without_traces: str = "",
    run: Run = DEFAULT_RUN,
) -> QuantizationSensitivity:
    """Accuracy drop and NLL rise with the weights of one block quantized.

    Weights of convolutions and linear layers are rounded to a symmetric grid for each output
    channel; biases, norms and activations are not. With s = max |w| / (2^(bits - 1) - 1) the
    weights are s round(w / s). Differences are paired by image.

    With the trace T of the Hessian of the mean loss for the p weights of a block, the predicted
    rise is T / (2 p) |Q(w) - w|^2: the second-order term, if the rounding errors of different
    weights have no correlation. HAWQ-V2 ranks layers by it.

    Costs a forward pass, and for each block and number of bits what follows the block: half a
    pass on average.

    Args:
        anatomy: of a model in evaluation mode.
        batches: each is (images, targets).
        bits: of a weight; at least 2.
        traces: of the Hessian for the weights of each block, by its name; None: no prediction.
        without_traces: why there are none.
        run: device, precision, progress and provenance.
    """
    check_evaluation_mode(anatomy.model)
    fewest = min(bits, default=0)
    if fewest < 2:
        raise InputError(f"bits must be integers of at least 2, got {fewest}")
    blocks = [block for block in anatomy if weights_of(anatomy, block)]
    if not blocks:
        raise InputError(
            f"{type(anatomy.model).__name__} must have a block with weights, and has none"
        )
    rows = [(number, block) for number in bits for block in blocks]
    traces = traces or {}
    hessian = np.array([_estimate(traces.get(block.name)) for _, block in rows])
    changes = [_change(anatomy, block, number) for number, block in rows]
    half_squares = np.array([change / (2 * weights) for change, _, weights in changes])
    paired, _, provenance = ablated_outcomes(
        anatomy,
        batches,
        [quantization(anatomy, block, number) for number, block in rows],
        label="quantization",
        run=run,
    )
    low, high = paired.drop_intervals()
    columns = paired.columns()
    return QuantizationSensitivity(
        block=np.array([b.name for _, b in rows]),
        kind=np.array([b.kind for _, b in rows]),
        stage=np.array([b.stage for _, b in rows]),
        depth=np.array([b.depth for _, b in rows]),
        subsampling=np.array([b.subsampling for _, b in rows]),
        bits=np.array([f"{number} bits" for number, _ in rows]),
        accuracy=columns["accuracy"],
        drop=columns["drop"],
        drop_low=low,
        drop_high=high,
        nll_rise=columns["nll_rise"],
        nll_rise_error=columns["nll_rise_error"],
        weight_error=np.array(
            [change / total if total else nan for change, total, _ in changes]
        ),
        trace=hessian[:, 0],
        trace_error=hessian[:, 1],
        predicted_rise=hessian[:, 0] * half_squares,
        predicted_rise_error=hessian[:, 1] * half_squares,
        probes=max((len(e) for e in traces.values()), default=0),
        without_traces=without_traces,
        baseline_accuracy=paired.accuracy,
        baseline_nll=paired.nll,
        provenance=provenance,
    )


def _estimate(traces: Float[np.ndarray, " probes"] | None) -> tuple[float, float]:
    """Mean and standard error of independent estimates; NaN where there is none."""
    if traces is None:
        return nan, nan
    n = len(traces)
    return float(traces.mean()), float(traces.std(ddof=1) / n**0.5) if n > 1 else nan


def _change(anatomy: Anatomy, block: Block, bits: int) -> tuple[float, float, int]:
    """Squared norm of the change of the weights, that of the weights, and their number."""
    parameters = dict(anatomy.model.named_parameters(remove_duplicate=False))
    weights = [parameters[n].detach().double() for n in weights_of(anatomy, block)]
    change = sum(float((quantized(w, bits) - w).square().sum()) for w in weights)
    total = sum(float(w.square().sum()) for w in weights)
    return change, total, sum(w.numel() for w in weights)

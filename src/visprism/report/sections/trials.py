"""What a page says about lesions, noise, attacks and cue conflicts."""

from visprism.measure.outputs import (
    Ablations,
    Adversarial,
    FourierSensitivity,
    FrequencyRobustness,
    JointAblations,
    ShapeBias,
)
from visprism.report.section import Section

_PAIRED = {"accuracy": "Accuracy", "drop": "Drop", "drop_error": "Its standard error"}

LESIONS = Section(
    result=Ablations,
    stem="lesions",
    title="Ablations",
    shows=(
        "How much accuracy the trained model loses when one block is taken out, against the "
        "block's depth, with the 95 % interval over the same images; the second figure shows "
        "the rise of the NLL. Dashed lines part the stages; blocks that change the shape of "
        "the feature map cannot be taken out."
    ),
    columns={
        "block": "Block",
        "kind": "Kind",
        "stage": "Stage",
        "depth": "Depth",
        "removed": "Removed",
        **_PAIRED,
        "nll_rise": "Rise of NLL",
        "nll_rise_error": "Its standard error",
        "resumed": "Resumed",
    },
    figures={"": {}, "-nll": {"quantity": "nll_rise"}},
)

LESIONS_TOGETHER = Section(
    result=JointAblations,
    stem="lesions-together",
    title="Several lesions at once",
    shows=(
        "How much accuracy the trained model loses when so many blocks are taken out at once, "
        "drawn at random: mean and range over the draws. Dashed is the sum of what the same "
        "blocks cost one by one; above it, blocks stand in for each other."
    ),
    columns={
        "number": "Blocks",
        "draws": "Draws",
        "accuracy": "Accuracy",
        "drop": "Drop",
        "drop_least": "Least",
        "drop_most": "Most",
        "drop_apart": "Sum of single drops",
        "nll_rise": "Rise of NLL",
    },
)

FREQUENCY_NOISE = Section(
    result=FrequencyRobustness,
    stem="frequency-noise",
    title="Noise by frequency",
    shows=(
        "How much accuracy noise costs that lies in one band of frequencies, equally strong "
        "in every band unless the protocol is the paper's. A curve that rises to the right is "
        "of a model that fine noise harms most."
    ),
    columns={
        "frequency": "Frequency (π rad/pixel)",
        "rms": "RMS",
        **_PAIRED,
        "nll_rise": "Rise of NLL",
    },
)

FOURIER_SENSITIVITY = Section(
    result=FourierSensitivity,
    stem="fourier-sensitivity",
    title="Fourier sensitivity",
    shows=(
        "The error rate under noise that is a single wave, for each frequency; low ones are in "
        "the middle. Bright cells are the waves that the model cannot bear."
    ),
    columns={
        "vertical": "Cycles over the height",
        "horizontal": "Over the width",
        "error": "Error rate",
        "error_rise": "Rise",
        "error_rise_error": "Its standard error",
    },
)

ADVERSARIAL = Section(
    result=Adversarial,
    stem="adversarial",
    title="Attacks",
    shows=(
        "Accuracy when pixels are changed a little, to mislead the model or at random, "
        "against how far each may change, with its 95 % interval over images. Attacks that "
        "know the model should lie far below random ones; where more steps do not lower the "
        "curve, the attack may be the weak part."
    ),
    columns={
        "attack": "Attack",
        "norm": "Norm",
        "epsilon": "Largest change",
        "frequency": "Band (π rad/pixel)",
        "steps": "Steps",
        "restarts": "Starts",
        "accuracy": "Accuracy",
        "low": "From",
        "high": "To",
        "drop": "Drop",
        "drop_error": "Its standard error",
        "nll_rise": "Rise of NLL",
    },
)

SHAPE_BIAS = Section(
    result=ShapeBias,
    stem="shape-bias",
    title="Shape or texture",
    shows=(
        "Of images with the shape of one category and the texture of another, the share that "
        "the model names by the shape among those that it names by either, with its 95 % "
        "interval."
    ),
    columns={
        "category": "Shape",
        "images": "Images",
        "shape_decisions": "By shape",
        "texture_decisions": "By texture",
        "bias": "Shape bias",
        "low": "From",
        "high": "To",
        "accuracy": "Accuracy by shape",
    },
)

"""What a page says about `Sharpness`."""

from visprism.measure.loss import Sharpness
from visprism.report.section import Section

SHARPNESS = Section(
    result=Sharpness,
    stem="sharpness",
    title="Sharpness",
    shows=(
        "How much the loss rises when the weights take one step of a given length along its "
        "gradient. SAM measures that length in the weights' own units, ASAM relative to the "
        "size of each weight."
    ),
    columns={
        "rule": "Measure",
        "rho": "Length of the step",
        "sharpness": "Rise of the loss",
        "first_order": "Of its tangent",
        "loss": "Loss",
        "gradient_norm": "Norm of the gradient",
    },
    figures={},
)

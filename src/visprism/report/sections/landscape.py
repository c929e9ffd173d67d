"""What a page says about `Landscape`."""

from visprism.measure.loss.landscape import Landscape
from visprism.report.section import Section
from visprism.report.surfaces import surface

LANDSCAPE = Section(
    result=Landscape,
    stem="landscape",
    title="Loss landscape",
    shows=(
        "The loss at the model's weights (the cross) and around them, along random directions "
        "whose filters are as long as the model's own. The bold line is the loss of a model "
        "that knows nothing; beyond it, in grey, only the size of the logits is drawn. "
        "Accuracy and the L2 term are surfaces of their own."
    ),
    columns={
        "pair": "Pair",
        "a": "a",
        "b": "b",
        "nll": "NLL (nats)",
        "nll_error": "Standard error",
        "rise": "Rise of the NLL",
        "rise_error": "Standard error",
        "l2": "L2 term (nats)",
        "accuracy": "Accuracy",
        "accuracy_error": "Standard error",
    },
    figures={
        "": {},
        "-surface": {"view": "surface"},
        "-slices": {"view": "slices"},
        "-accuracy": {"quantity": "accuracy"},
        "-l2": {"quantity": "l2"},
    },
    surface=surface,
)

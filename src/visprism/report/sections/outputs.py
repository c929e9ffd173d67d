"""What a page says about predictions: `Uncertainty`, `Reliability`, `Robustness` and others."""

from visprism.measure.outputs import (
    CorruptionErrors,
    Reliability,
    RiskCoverage,
    Robustness,
    Stability,
    Temperature,
    Uncertainty,
)
from visprism.report.section import Section

UNCERTAINTY = Section(
    result=Uncertainty,
    stem="uncertainty",
    title="Accuracy and uncertainty",
    shows=(
        "Every metric of the predictions with the interval that 95 % of resamples of the "
        "images lie in. Acc, freq, unc and iou are those at a cut-off of the confidence: "
        "accuracy above it, share above it, share of wrong images not above it, mean IoU "
        "above it."
    ),
    columns={
        "metric": "Metric",
        "cutoff": "Cut-off",
        "value": "Value",
        "low": "From",
        "high": "To",
    },
    figures={},
)

RELIABILITY = Section(
    result=Reliability,
    stem="reliability",
    title="Reliability",
    shows=(
        "Each bar is the accuracy of the images whose confidence lies in its bin; the "
        "hatched part reaches to their mean confidence. Bars below the diagonal are of an "
        "overconfident model. The second figure says how many images each bin holds."
    ),
    columns={
        "lower": "Above",
        "upper": "Up to",
        "count": "Images",
        "frequency": "RankSlice",
        "confidence": "Mean confidence",
        "accuracy": "Accuracy",
    },
    figures={"": {}, "-confidence": {"quantity": "frequency"}},
)

RISK_COVERAGE = Section(
    result=RiskCoverage,
    stem="risk-coverage",
    title="Risk and coverage",
    shows=(
        "The error rate if the model answers only for the images that it is surest of, from"
        " few on the left to all on the right. The lower the curve begins, the better the "
        "confidence tells right from wrong."
    ),
    columns={"coverage": "Coverage", "risk": "Error rate", "confidence": "Least confidence"},
)

TEMPERATURE = Section(
    result=Temperature,
    stem="temperature",
    title="Temperature scaling",
    shows=(
        "The number by which logits are divided so that confidences are right on average, "
        "fitted on one half of the images and tried on the other. Above 1 the model is "
        "overconfident."
    ),
    columns={
        "temperature": "Temperature",
        "nll_before": "NLL before",
        "nll_after": "NLL after",
        "ece_before": "ECE before",
        "ece_after": "ECE after",
        "images": "Images",
    },
    figures={},
)

ROBUSTNESS = Section(
    result=Robustness,
    stem="robustness",
    title="Robustness to corruptions",
    shows=(
        "Each cell is a corruption at a severity: bright where most images are wrong. The "
        "numbers are error rates in percent; the uppermost row is of images as they are."
    ),
    columns={
        "corruption": "Corruption",
        "severity": "Severity",
        "metric": "Metric",
        "cutoff": "Cut-off",
        "value": "Value",
        "low": "From",
        "high": "To",
    },
)

CORRUPTION_ERRORS = Section(
    result=CorruptionErrors,
    stem="corruption-errors",
    title="Errors by corruption",
    shows=(
        "The error rate under each corruption, mean over severities, beside that of clean "
        "images. For models of ImageNet it is compared with AlexNet's, which gives the mCE."
    ),
    columns={
        "corruption": "Corruption",
        "error": "Error rate",
        "ece": "ECE",
        "reference": "AlexNet's error",
        "relative": "Relative to it",
    },
)

STABILITY = Section(
    result=Stability,
    stem="stability",
    title="Stability along sequences",
    shows=(
        "How often the predicted class changes while an image is perturbed a little from "
        "frame to frame; of noise, how often it differs from that of the clean image."
    ),
    columns={
        "perturbation": "Perturbation",
        "frames": "Frames",
        "flip_rate": "Flip rate",
        "flip_low": "From",
        "flip_high": "To",
        "consistency": "Consistency",
    },
)

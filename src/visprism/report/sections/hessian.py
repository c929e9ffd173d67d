"""What a page says about Hessian spectra of mini-batches."""

from visprism.measure.loss.curvature import (
    Eigenvalues,
    HessianCurves,
    HessianSpectrum,
    HessianTally,
    SpectralDensity,
    Trace,
)
from visprism.report.section import Section

HESSIAN = Section(
    result=HessianCurves,
    stem="hessian",
    title="Hessian eigenvalues",
    shows=(
        "The foremost eigenvalues of the loss's second derivatives, of many mini-batches. Far "
        "to the right the loss is sharp: a small step changes it much. What stands in the left "
        "part are directions in which it bends downwards, so that the model does not sit in a "
        "valley."
    ),
    columns={},
)

HESSIAN_TALLY = Section(
    result=HessianTally,
    stem="hessian-tally",
    title="Sharpness and convexity",
    shows=(
        "Each point is one objective: to the right the sharper, above the less convex. The "
        "intervals come from resampling the mini-batches."
    ),
    columns={
        "phase": "Phase",
        "data": "Data",
        "weight_decay": "Weight decay",
        "batches": "Mini-batches",
        "nll": "NLL (nats)",
        "nep": "Negative share (NEP)",
        "nep_low": "from",
        "nep_high": "to",
        "ape": "Mean of positive (APE)",
        "ape_low": "from",
        "ape_high": "to",
        "largest": "Largest",
        "smallest": "Smallest",
        "converged": "Converged share",
        "ends_converged": "Of largest and smallest",
    },
)

HESSIAN_VALUES = Section(
    result=HessianSpectrum,
    stem="hessian-eigenvalues",
    title="Eigenvalues of each mini-batch",
    shows=(
        "Each row is an eigenvalue of one mini-batch; the true one is no farther away than the "
        "residual. Rank 0 stands for the largest and the smallest, which the same products "
        "show."
    ),
    columns={
        "phase": "Phase",
        "data": "Data",
        "weight_decay": "Weight decay",
        "batch": "Mini-batch",
        "nll": "NLL (nats)",
        "which": "Which",
        "rank": "Rank",
        "value": "Eigenvalue",
        "residual": "Residual",
        "converged": "Converged",
    },
    figures={},
)

EIGENVALUES = Section(
    result=Eigenvalues,
    stem="eigenvalues",
    title="Hessian eigenvalues of all the data",
    shows=(
        "Each point is one of the foremost eigenvalues of the Hessian of the mean loss over "
        "all images, with its residual for a bar. A hollow point has not converged."
    ),
    columns={
        "rank": "Rank",
        "value": "Eigenvalue",
        "residual": "Residual",
        "converged": "Converged",
    },
)

DENSITY = Section(
    result=SpectralDensity,
    stem="density",
    title="Density of all Hessian eigenvalues",
    shows=(
        "Each stem is a place where eigenvalues are, and the share of all of them that are "
        "there. Most lie near 0: in most directions the loss is flat. The few far out are the "
        "directions that training and a step size feel."
    ),
    columns={"run": "Run", "node": "Eigenvalue", "weight": "RankSlice", "residual": "Residual"},
)

TRACE = Section(
    result=Trace,
    stem="trace",
    title="Trace of the Hessian",
    shows=(
        "Each row is an independent estimate of the sum of all eigenvalues; their mean is the "
        "trace. Weight decay adds itself once for each parameter."
    ),
    columns={"estimate": "Estimate"},
    figures={},
)

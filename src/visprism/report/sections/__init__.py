"""What a page says about each type of result; one file per analysis."""

from visprism.report.section import Section
from visprism.report.sections.anatomy import ANATOMY
from visprism.report.sections.attention import ATTENTION
from visprism.report.sections.build_up import BUILD_UP
from visprism.report.sections.cka import BLOCK_STRUCTURE, CKA
from visprism.report.sections.fourier import HIGH_FREQUENCY, SPECTRUM
from visprism.report.sections.hessian import (
    DENSITY,
    EIGENVALUES,
    HESSIAN,
    HESSIAN_TALLY,
    HESSIAN_VALUES,
    TRACE,
)
from visprism.report.sections.landscape import LANDSCAPE
from visprism.report.sections.outputs import (
    CORRUPTION_ERRORS,
    RELIABILITY,
    RISK_COVERAGE,
    ROBUSTNESS,
    STABILITY,
    TEMPERATURE,
    UNCERTAINTY,
)
from visprism.report.sections.receptive_field import RECEPTIVE_FIELD, RECEPTIVE_MAPS
from visprism.report.sections.sharpness import SHARPNESS
from visprism.report.sections.singular_values import EFFECTIVE_RANK, SINGULAR_VALUES
from visprism.report.sections.trajectory import TRAJECTORY
from visprism.report.sections.trials import (
    ADVERSARIAL,
    FOURIER_SENSITIVITY,
    FREQUENCY_NOISE,
    LESIONS,
    LESIONS_TOGETHER,
    SHAPE_BIAS,
)
from visprism.report.sections.variance import VARIANCE
from visprism.report.sections.weights import PATCH_FILTERS, POSITIONAL_SIMILARITY

# In the order of the page; a plugin appends its own.
SECTIONS: list[Section] = [
    ANATOMY,
    SPECTRUM,
    HIGH_FREQUENCY,
    VARIANCE,
    ATTENTION,
    CKA,
    BLOCK_STRUCTURE,
    RECEPTIVE_FIELD,
    RECEPTIVE_MAPS,
    SINGULAR_VALUES,
    EFFECTIVE_RANK,
    PATCH_FILTERS,
    POSITIONAL_SIMILARITY,
    HESSIAN,
    HESSIAN_TALLY,
    HESSIAN_VALUES,
    EIGENVALUES,
    DENSITY,
    TRACE,
    LANDSCAPE,
    SHARPNESS,
    TRAJECTORY,
    UNCERTAINTY,
    RELIABILITY,
    RISK_COVERAGE,
    TEMPERATURE,
    ROBUSTNESS,
    CORRUPTION_ERRORS,
    STABILITY,
    LESIONS,
    LESIONS_TOGETHER,
    FREQUENCY_NOISE,
    FOURIER_SENSITIVITY,
    ADVERSARIAL,
    SHAPE_BIAS,
    BUILD_UP,
]

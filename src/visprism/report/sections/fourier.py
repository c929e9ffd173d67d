"""What a page says about `Spectrum` and `HighFrequency`."""

from visprism.measure.features import HighFrequency, Spectrum
from visprism.report.section import Section

SPECTRUM = Section(
    result=Spectrum,
    stem="fourier",
    title="Fourier spectrum",
    shows=(
        "Each curve is a block: how strong the waves in its feature maps are, from those as"
        " wide as the image on the left to the finest that its grid can hold on the right, "
        "less the strength of the mean. Where a curve lies below that of the block before, "
        "the block has smoothed detail away; where it lies above, the block has sharpened "
        "it."
    ),
    columns={
        "block": "Block",
        "kind": "Kind",
        "depth": "Depth",
        "frequency": "Frequency (π rad/pixel)",
        "log_amplitude": "Log amplitude",
        "relative": "Δ log amplitude",
        "relative_error": "Standard error",
        "change": "Change across the block",
        "change_error": "Standard error",
    },
)

HIGH_FREQUENCY = Section(
    result=HighFrequency,
    stem="high-frequency",
    title="High-frequency amplitude",
    shows=(
        "Each point is the right end of a block's curve above: how much of the finest "
        "detail its feature maps hold. A step down is a low-pass filter, a step up a high-"
        "pass filter; where the grid changes (blue) the two ends are not comparable and the"
        " step is not counted."
    ),
    columns={
        "block": "Block",
        "kind": "Kind",
        "stage": "Stage",
        "depth": "Depth",
        "frequency": "Frequency (π rad/pixel)",
        "relative": "Δ log amplitude",
        "relative_error": "Standard error",
        "change": "Change across the block",
        "change_error": "Standard error",
    },
    quantity="high-frequency log amplitude",
)

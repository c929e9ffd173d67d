"""How the notebooks in examples/ are ordered and run."""

import os
import tempfile

LESSONS = (
    "dissect_your_model",
    "examine_your_model",
    "fourier_and_variance",
    "curvature_and_landscape",
    "ablation_and_cka",
    "robustness_by_frequency",
    "from_cnn_to_alternet",
    "train_with_sam",
    "attention_as_convolution",
    "tokens_and_windows",
    "your_own_analysis",
    "visprism_in_300_lines",
)


def by_lesson(filename: str) -> int:
    """The position of a notebook in the gallery."""
    return LESSONS.index(filename.removesuffix(".py"))


def in_empty_folder(gallery_conf: dict, fname: str) -> None:
    """Run a notebook in a temporary folder, where its files go."""
    os.chdir(tempfile.mkdtemp(prefix="notebook-"))

"""What a page says about `ReplacementSearch`."""

from visprism.harmonize import ReplacementSearch
from visprism.report.section import Section

BUILD_UP = Section(
    result=ReplacementSearch,
    stem="build-up",
    title="From CNN to AlterNet",
    shows=(
        "MSA blocks replace Conv blocks one after the other, from the end of the network on. "
        "Each ring is a candidate: the mean accuracy in validation over several trainings, "
        "which are the small points, with its standard error. Filled ones were kept, as their "
        "gain was larger than its noise; from hollow ones the search went to the stage before."
    ),
    columns={
        "candidate": "Candidate",
        "msas": "MSAs",
        "added": "Added",
        "stage": "Stage",
        "parameters": "Parameters",
        "seed": "Seed",
        "accuracy": "Accuracy",
        "kept": "Kept",
    },
)

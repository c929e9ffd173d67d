"""What a page says about `Trajectory`."""

from visprism.measure.loss.landscape import Trajectory
from visprism.report.section import Section

TRAJECTORY = Section(
    result=Trajectory,
    stem="trajectory",
    title="Trajectory of the weights",
    shows=(
        "Each point is a snapshot of training, from dark to bright: in the plane that holds "
        "most of the path's variance, and by its distance and direction from the end. A path "
        "through millions of dimensions has no faithful picture, every random walk looks "
        "smooth in such a plane, and the paper's authors have withdrawn theirs: conclude "
        "nothing from the shape alone."
    ),
    columns={
        "snapshot": "Snapshot",
        "radius": "r",
        "angle": "θ (radians)",
        "first": "First component",
        "second": "Second component",
        "step": "Step",
    },
    figures={"": {}, "-polar": {"view": "polar"}},
)

"""Studies: several analyses of several models on the same images."""

from visprism.study.examine import examine
from visprism.study.plan import Plan, Step
from visprism.study.study import Entry, Failure, ModelStudy, Study

__all__ = ["Entry", "Failure", "ModelStudy", "Plan", "Step", "Study", "examine"]

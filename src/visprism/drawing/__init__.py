"""Drawing: each figure takes a result and draws it on axes. Nothing here computes."""

from visprism.drawing import kinds, panel, shapes  # noqa: F401 (each registers figures)

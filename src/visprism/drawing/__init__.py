"""Drawing: each figure takes a result and draws it on axes. Nothing here computes."""

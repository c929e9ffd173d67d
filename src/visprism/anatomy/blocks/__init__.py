"""Blocks: a traced model as a sequence of blocks with kinds and layouts."""

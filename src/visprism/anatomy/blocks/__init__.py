"""Blocks: a traced model as a row of blocks with kinds and layouts."""

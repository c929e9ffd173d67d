"""AlterNet: a CNN with self-attention instead of some of its Conv blocks."""

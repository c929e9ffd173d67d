"""The zoo: one architecture family per file."""

"""Results: tables of values with intervals, and their files."""

"""Results: what was measured, as tables of NumPy columns with units."""

"""The trace: the graph of one forward pass, and where positions go in it."""

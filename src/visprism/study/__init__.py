"""Studies: several analyses of several models on the same images."""

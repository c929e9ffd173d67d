"""Layers: the parts of which networks of the zoo are made, where timm has none that fits."""

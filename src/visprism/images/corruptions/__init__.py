"""Corruptions: the 15 + 4 of ImageNet-C and the sequences of ImageNet-P, made on the fly."""

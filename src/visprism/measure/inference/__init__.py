"""Inference: how forward passes without derivatives in the parameters run, in one place."""

from visprism.measure.inference.forward import Forward, inference, prepared
from visprism.measure.inference.regrouping import grouped, peek, regrouped
from visprism.measure.inference.selection import (
    default_batch_size,
    select_inference,
    verified_images,
)

__all__ = [
    "Forward",
    "default_batch_size",
    "grouped",
    "inference",
    "peek",
    "prepared",
    "regrouped",
    "select_inference",
    "verified_images",
]

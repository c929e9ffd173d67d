"""Inference: how forward passes without derivatives in the parameters run, in one place."""

from visprism.measure.inference.forward import Forward, inference, prepared
from visprism.measure.inference.regrouping import grouped, peek, regrouped
from visprism.measure.inference.selection import (
    VERIFIED_IMAGES,
    default_batch_size,
    select_inference,
)

__all__ = [
    "VERIFIED_IMAGES",
    "Forward",
    "default_batch_size",
    "grouped",
    "inference",
    "peek",
    "prepared",
    "regrouped",
    "select_inference",
]

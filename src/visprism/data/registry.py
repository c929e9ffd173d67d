"""The registry of data: one function per name or prefix, in the file that reads it."""

from visprism.core.registry import Registry

DATA = Registry("data")

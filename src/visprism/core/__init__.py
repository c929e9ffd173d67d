"""Foundations: errors, registries, files, devices, processes, provenance."""

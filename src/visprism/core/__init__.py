"""What everything else stands on: errors, registries, files, devices, processes, provenance."""

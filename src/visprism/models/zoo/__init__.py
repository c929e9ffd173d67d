"""The zoo: one architecture family per file; importing the package registers all with timm."""

from visprism.core.registry import import_all

import_all(__name__)

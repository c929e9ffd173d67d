"""timm: importing this module registers every network of the zoo with it.

Example:
    >>> import timm, visprism.integrations.timm
    >>> timm.create_model("visprism_resnet20", num_classes=3).num_classes
    3
"""

from visprism.core.registry import import_all

import_all("visprism.models.zoo")

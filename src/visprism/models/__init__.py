"""Models: the zoo of visprism, and models of timm, torchvision and Hugging Face by name."""

from visprism.models.checkpoints import (
    Metadata,
    load_checkpoint,
    read_metadata,
    save_checkpoint,
)
from visprism.models.loading import LoadedModel, load_model
from visprism.models.zoo import (  # noqa: F401 (they register their models)
    alter_resnet,
    cifar_resnet,
    conv_vit,
    mixer,
    mobilenet,
    pit,
    preact_resnet,
    resnet,
    sasa_resnet,
    swin,
    vgg,
    vit,
)
from visprism.models.zoo_registry import MODELS

__all__ = [
    "MODELS",
    "LoadedModel",
    "Metadata",
    "load_checkpoint",
    "load_model",
    "read_metadata",
    "save_checkpoint",
]

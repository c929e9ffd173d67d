"""Intake: what a measurement takes: a model in evaluation mode, and batches that fit it."""

from collections.abc import Mapping, Sequence

from visprism.anatomy import Anatomy, Block, Images, pixels
from visprism.errors import InputError
from visprism.parallel import Compute

Batch = Images | Sequence  # images, or (images, targets)


def blocks_on_grid(anatomy: Anatomy) -> list[Block]:
    """The blocks that can be measured: those whose feature map lies on a grid.

    Raises:
        InputError: if there is none, or the model is in training mode.
    """
    if any(module.training for module in anatomy.model.modules()):
        raise InputError("the model is in training mode; call model.eval() first")
    blocks = [block for block in anatomy if block.layout is not None]
    if not blocks:
        raise InputError(
            "no block of this model has a feature map on a grid: "
            f"{type(anatomy.model).__name__} cannot be observed"
        )
    return blocks


def image_shape(anatomy: Anatomy) -> tuple[int, ...]:
    """(C, H, W) of the images that the model was dissected with."""
    return tuple(anatomy.graph.nodes[0].shape or ())[1:]


def images_of(batch: Batch, anatomy: Anatomy, compute: Compute) -> Images:
    """The images of a batch, on the device.

    Raises:
        InputError: if there are none, or the model was dissected with images of another size.
    """
    images: Images = batch[0] if isinstance(batch, tuple | list) else batch  # pyrefly: ignore
    try:
        shape = tuple(pixels(images).shape[1:])
    except InputError as error:
        raise InputError(f"a batch, of images or (images, targets): {error}") from error
    own = image_shape(anatomy)
    if own and shape != own:
        raise InputError(
            f"the images are {_by(shape)}, the model was dissected with {_by(own)}; "
            "resize the images, or dissect the model with images of this size"
        )
    device = compute.torch_device
    if isinstance(images, Mapping):
        return {name: tensor.to(device) for name, tensor in images.items()}
    return images.to(device)


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))

"""Pictures of the images that maps and errors belong to, as rows of a result."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import UInt8
from matplotlib.axes import Axes
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from visprism import kit
from visprism.core.provenance import Provenance
from visprism.drawing.color_bars import side_by_side

_LONGEST = 96  # pixels of a side


@kit.result("image-pictures")
class ImagePictures(kit.Result):
    """Images as the model sees them, resized and cropped; one row for each image."""

    image: np.ndarray = kit.column(
        "Image", "", "index of the image; in a study, into `Study.positions`"
    )
    height: np.ndarray = kit.column("Height", "pixels", "of the picture, which may be reduced")
    width: np.ndarray = kit.column("Width", "pixels", "of the picture, which may be reduced")
    pixels: kit.Texts = kit.column(
        "Pixels", "", "red, green and blue of each pixel, two hexadecimal digits each"
    )

    def pictures(self) -> list[UInt8[np.ndarray, "h w 3"]]:
        """The pictures in the order of the rows."""
        return [
            np.frombuffer(bytes.fromhex(str(text)), np.uint8).reshape(height, width, 3)
            for text, height, width in zip(self.pixels, self.height, self.width, strict=True)
        ]


def pictures_section(title: str) -> kit.Section:
    """How the report presents the images that the maps of an analysis belong to."""
    return kit.Section(
        ImagePictures, title, "As the model sees them, resized and cropped.", table=False
    )


def image_pictures(
    subject: kit.Subject, number: int, origin: Provenance
) -> tuple[ImagePictures, ...]:
    """The first images; none where their pixels cannot be recovered from the model's input."""
    shown = range(min(number, subject.num_images))
    try:
        columns = picture_columns((subject.pixels_of(i) for i in shown), _LONGEST)
    except kit.InputError:  # the normalization is unknown, or another one
        return ()
    return (ImagePictures(image=np.array(shown), **columns, provenance=origin),)


def picture_columns(
    images: Iterable[UInt8[Tensor, "c h w"]], longest: int
) -> dict[str, np.ndarray]:
    """Height, width and pixels of pictures with sides of at most `longest` pixels."""
    pictures = [_reduced(pixels, longest) for pixels in images]
    return {
        "height": np.array([len(p) for p in pictures], dtype=int),
        "width": np.array([p.shape[1] for p in pictures], dtype=int),
        "pixels": np.array([p.tobytes().hex() for p in pictures], dtype=str),
    }


def _reduced(
    pixels: UInt8[Tensor, "c h w"], longest: int
) -> UInt8[np.ndarray, "rows columns 3"]:
    """The picture with sides of at most `longest` pixels; gray in color."""
    height, width = pixels.shape[-2:]
    shrink = min(1.0, longest / max(height, width))
    size = max(1, round(height * shrink)), max(1, round(width * shrink))
    reduced = adaptive_avg_pool2d(pixels.float(), size).round().byte()
    colors = reduced if len(reduced) == 3 else reduced[:1].expand(3, -1, -1)
    return colors.permute(1, 2, 0).contiguous().cpu().numpy()


@kit.figure(width=6.0, height=1.4, across=1, share=False)
def _(result: ImagePictures, ax: Axes) -> Axes:
    """The images side by side, with their numbers below."""
    names = [f"image {image}" for image in result.image]
    side_by_side(ax, dict(zip(names, result.pictures(), strict=True)))
    return ax

"""Pictures of the images that only one of two models classifies correctly."""

import numpy as np
from jaxtyping import UInt8

from visprism.table.result import Result, column, result_type, scalar


@result_type("differing-pictures")
class DifferingPictures(Result):
    """Images that only one of two models classifies correctly; one row for each image."""

    image: np.ndarray = column(
        "Image", "", "index of the image; in a study, into `Study.positions`"
    )
    target: np.ndarray = column("Target", "", "class of the image")
    first: np.ndarray = column("First prediction", "", "class that the first model predicts")
    second: np.ndarray = column("Second prediction", "", "class that the second model predicts")
    height: np.ndarray = column("Height", "pixels", "of the picture, which may be reduced")
    width: np.ndarray = column("Width", "pixels", "of the picture, which may be reduced")
    pixels: np.ndarray = column(
        "Pixels", "", "red, green and blue of each pixel, two hexadecimal digits each"
    )
    images: int = scalar("Images", "", "number of images on which the models differ", default=0)
    first_model: str = scalar("First model", "", "name of the first model", default="")
    second_model: str = scalar("Second model", "", "name of the second model", default="")

    def pictures(self) -> list[UInt8[np.ndarray, "h w 3"]]:
        """The pictures in the order of the rows."""
        return [
            np.frombuffer(bytes.fromhex(str(text)), np.uint8).reshape(height, width, 3)
            for text, height, width in zip(self.pixels, self.height, self.width, strict=True)
        ]

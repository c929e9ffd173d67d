"""Values of single images, from which differences between two models are computed.

Two models that are measured on the same images differ by less noise than their two intervals
suggest: what makes an image difficult is difficult for both. The difference is taken image by
image, and its interval is over images.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from visprism.core.errors import InputError
from visprism.core.statistics import mean_interval, paired_proportions_interval
from visprism.results.base import Result, column, result_type, scalar


@result_type("per-image")
class PerImage(Result):
    """One value of each quantity for each image.

    A quantity is the one whose mean over images the measurement reports. Where that mean is a
    ratio, the measurement stores logarithms.

    Raises:
        InputError: if an image has two values of one quantity.
    """

    quantity: np.ndarray = column("Quantity", "", "name of the quantity, such as 'NLL'")
    image: np.ndarray = column("Image", "", "index of the image in the data")
    value: np.ndarray = column("Value", "", "value of the quantity for this image")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.quantities:
            images = self.image[self.quantity == name]
            if len(np.unique(images)) < len(images):
                raise InputError(f"each image must have one value of {name!r}, got several")

    @property
    def quantities(self) -> tuple[str, ...]:
        """The names of the quantities, in the order of their first rows."""
        return tuple(dict.fromkeys(self.quantity.tolist()))

    def values_of(self, quantity: str) -> tuple[np.ndarray, np.ndarray]:
        """The images in ascending order and their values of a quantity.

        Raises:
            InputError: if the quantity was not measured.
        """
        rows = np.flatnonzero(self.quantity == quantity)
        if not len(rows):
            raise InputError(
                f"quantity must be one of {', '.join(self.quantities)}, got {quantity!r}"
            )
        rows = rows[np.argsort(self.image[rows])]
        return self.image[rows], self.value[rows]


@result_type("differences")
class Differences(Result):
    """Differences between two models on the same images; one row for each quantity."""

    quantity: np.ndarray = column("Quantity", "", "name of the quantity")
    first: np.ndarray = column("First", "", "mean of the first model over the common images")
    second: np.ndarray = column("Second", "", "mean of the second model over the common images")
    difference: np.ndarray = column("Difference", "", "second minus first")
    low: np.ndarray = column("Low", "", "lower end of the 95 % interval of the difference")
    high: np.ndarray = column("High", "", "upper end of the 95 % interval of the difference")
    images: np.ndarray = column("Images", "", "number of common images")
    first_model: str = scalar("First model", "", "name of the first model", default="")
    second_model: str = scalar("Second model", "", "name of the second model", default="")
    over: str = scalar("Over", "", "what the interval is taken over", default="images")

    @property
    def significant(self) -> np.ndarray:
        """Whether the interval of each difference excludes 0."""
        return (self.low > 0) | (self.high < 0)


def paired_differences(first: PerImage, second: PerImage) -> Differences:
    """Mean differences between two models on their common images, with 95 % intervals.

    With d_i = second_i - first_i over n common images, the difference is mean(d). Its interval
    is that of `visprism.core.statistics.mean_interval`, Student's with a correction for skewed
    differences; there is none where fewer than 5 images differ from the median difference.
    Where all values are 0 or 1, as for correct classification, the interval is that of Bonett
    and Price, which does not shrink to a point when the models agree on every image.

    Quantities that only one of them has are left out.

    Args:
        first: values of the first model.
        second: values of the second model, on the same data; images are matched by index.

    Raises:
        InputError: if the two have no quantity in common, or no image.

    Source: Bonett and Price (2012), Adjusted Wald confidence interval for a difference of
    binomial proportions based on paired data.
    """
    quantities = [name for name in first.quantities if name in second.quantities]
    if not quantities:
        raise InputError(
            "first and second must have a quantity in common, got "
            f"{', '.join(first.quantities)} and {', '.join(second.quantities)}"
        )
    rows = [_difference(name, first, second) for name in quantities]
    means_first, means_second, differences, lows, highs, numbers = zip(*rows, strict=True)
    models = first.provenance.model, second.provenance.model
    return Differences(
        quantity=np.array(quantities),
        first=np.array(means_first),
        second=np.array(means_second),
        difference=np.array(differences),
        low=np.array(lows),
        high=np.array(highs),
        images=np.array(numbers),
        first_model=models[0],
        second_model=models[1],
        provenance=replace(
            first.provenance,
            model=" and ".join(filter(None, models)),
            images=max(numbers),
        ),
    )


def _difference(
    quantity: str, first: PerImage, second: PerImage
) -> tuple[float, float, float, float, float, int]:
    """Both means, the difference, its interval, and the number of images."""
    (images_a, values_a), (images_b, values_b) = (
        result.values_of(quantity) for result in (first, second)
    )
    images, at_a, at_b = np.intersect1d(images_a, images_b, return_indices=True)
    if not len(images):
        raise InputError(
            f"first and second must have images in common, got none for {quantity}"
        )
    a, b = values_a[at_a].astype(np.float64), values_b[at_b].astype(np.float64)
    if _binary(a) and _binary(b):
        low, high = paired_proportions_interval(
            int(((a == 0) & (b == 1)).sum()), int(((a == 1) & (b == 0)).sum()), len(images)
        )
    else:
        low, high = mean_interval(b - a)
    return float(a.mean()), float(b.mean()), float((b - a).mean()), low, high, len(images)


def _binary(values: Float[np.ndarray, " n"]) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())

"""Values of single images, from which differences between two models are computed.

Two models that are measured on the same images differ by less noise than their two intervals
suggest: what makes an image difficult is difficult for both. The difference is taken image by
image, and its interval is over images.
"""

import numpy as np
from jaxtyping import Float, Int, Integer

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.table.result import ColumnInfo, Columns, Result, column, result_type, scalar

ACCURACY = "accuracy"  # of each image, 1 for a correct prediction
LOSSES = ("NLL", "Brier score", "signed ECE (mean confidence - accuracy)")  # of predictions
DIRECTION_PAIRS = "direction pairs"  # of a loss landscape, as `PerImage.over`

_set = object.__setattr__  # fields of a frozen dataclass are set while it is made


@result_type("per-image")
class PerImage(Result):
    """One value of each quantity for each image.

    A quantity is the one whose mean over images the measurement reports. Where that mean is a
    ratio, the measurement stores logarithms. A quantity that is no mean over images is stored
    linearized: as the quantity plus the influence of each image, whose mean is 0.

    Names are stored once, and each row holds the index of its name, since names are long and
    rows are many. Quantities of a training loss have one value for each mini-batch, and those
    of a landscape one for each pair of random directions; then `over` says so, and `image` is
    the index of the mini-batch or of the pair.
    """

    code: np.ndarray = column("Code", "", "index of the quantity in `names`")
    image: np.ndarray = column(
        "Image", "", "index of the image; in a study, into `Study.positions`"
    )
    value: np.ndarray = column("Value", "", "value of the quantity for this image")
    names: str = scalar("Names", "", "names of the quantities, one on each line", default="")
    over: str = scalar("Over", "", "what has one value each", default="images")

    def __init__(
        self,
        *,
        image: np.ndarray,
        value: np.ndarray,
        quantity: np.ndarray | None = None,
        code: np.ndarray | None = None,
        names: str = "",
        over: str = "images",
        provenance: Provenance | None = None,
    ) -> None:
        """Values with the name of their quantity, or with its index in `names`.

        Args:
            image: index of the image in the data, for each row.
            value: value of the quantity for this image.
            quantity: name of the quantity of each row; None if `code` is given.
            code: index of the quantity of each row in `names`.
            names: names of the quantities, one on each line, in the order of `code`.
            over: what has one value each.
            provenance: where the values come from.
        """
        if quantity is not None and code is None:
            table, codes = coded_names(quantity)
        elif code is not None and quantity is None:
            table, codes = _lines(names), code
        else:
            raise InputError("either quantity or code must be given, got both or neither")
        if len(codes) and not (
            codes.dtype.kind in "iu" and 0 <= codes.min() <= codes.max() < len(table)
        ):
            raise InputError(
                f"code must hold indices of {len(table)} names, got values from "
                f"{codes.min()} to {codes.max()}"
            )
        used, codes = _in_order_of_rows(codes)
        _set(self, "code", codes)
        _set(self, "image", image)
        _set(self, "value", value)
        _set(self, "names", "\n".join(table[i] for i in used))
        _set(self, "over", over)
        _set(self, "provenance", provenance or Provenance())
        self.__post_init__()

    def __post_init__(self) -> None:
        super().__post_init__()
        for index, name in enumerate(self.quantities):
            images = self.image[self.code == index]
            if len(np.unique(images)) < len(images):
                raise InputError(f"each image must have one value of {name!r}, got several")

    @property
    def quantities(self) -> tuple[str, ...]:
        """The names of the quantities, in the order of their first rows."""
        return _lines(self.names)

    @property
    def quantity(self) -> np.ndarray:
        """The name of the quantity of each row."""
        return np.array(self.quantities or ("",))[self.code]

    @classmethod
    def infos(cls) -> dict[str, ColumnInfo]:
        """Label, unit and meaning of the columns of the table; see `Result.infos`."""
        name = ColumnInfo("Quantity", "", "name of the quantity, such as 'NLL'")
        others = super().infos()
        return {"quantity": name, **{n: others[n] for n in ("image", "value")}}

    def columns(self) -> Columns:
        """The table by column, with names in place of codes; see `Result.columns`."""
        return {name: getattr(self, name) for name in self.infos()}

    def values_of(self, quantity: str) -> tuple[np.ndarray, np.ndarray]:
        """The images in ascending order and their values of a quantity."""
        if quantity not in self.quantities:
            raise InputError(
                f"quantity must be one of {', '.join(self.quantities)}, got {quantity!r}"
            )
        rows = np.flatnonzero(self.code == self.quantities.index(quantity))
        rows = rows[np.argsort(self.image[rows])]
        return self.image[rows], self.value[rows]


def linearized_ratio(
    totals: Float[np.ndarray, " n"], counts: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """A value for each unit, whose mean is the ratio of the sums over units.

    It is the ratio plus the influence of the unit, r + (total - r count) / mean count, so that
    the spread of the values gives the standard error of the ratio, and the spread of paired
    differences that of the difference of two ratios.

    Source: Cochran (1977), Sampling techniques, sec. 6.3 and 6.9.
    """
    ratio = totals.sum() / counts.sum()
    return ratio + (totals - ratio * counts) / counts.mean()


def coded_names(names: np.ndarray) -> tuple[tuple[str, ...], Int[np.ndarray, " n"]]:
    """The distinct names in the order of their first rows, and the index of each row's name."""
    rows = [str(name) for name in names.tolist()]
    index = {name: i for i, name in enumerate(dict.fromkeys(rows))}
    for name in index:
        if len(_lines(name)) != 1:
            raise InputError(f"names of quantities must be one line each, got {name!r}")
    return tuple(index), np.array([index[name] for name in rows], dtype=np.int64)


def _lines(names: str) -> tuple[str, ...]:
    return tuple(names.split("\n")) if names else ()


def _in_order_of_rows(
    codes: Integer[np.ndarray, " n"],
) -> tuple[list[int], Integer[np.ndarray, " n"]]:
    """The codes in use in the order of their first rows, and the rows by position in these.

    Results with equal rows are equal, however their names were listed.
    """
    used, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    position = np.argsort(order)
    smallest = np.min_scalar_type(max(len(used) - 1, 0))
    return used[order].tolist(), position[inverse].astype(smallest)

"""Laws of the shapes of results (src/visprism/table/shapes.py, drawing/shapes.py).

Each test declares a type of result as a plugin does, with nothing but its columns.
"""

from typing import ClassVar

import numpy as np
import pytest
from matplotlib.figure import Figure

from visprism import (
    BlockMatrix,
    Curve,
    Pictures,
    Result,
    ScalarPerBlock,
    SeriesPerBlock,
    Surface,
    Texts,
    column,
    estimate,
    panel,
    plot,
    result_type,
)
from visprism.estimates.estimated import Estimated

BLOCKS = {
    "block": np.array(["stem", "a", "b"]),
    "kind": np.array(["stem", "conv", "mlp"]),
    "stage": np.array([0, 0, 1]),
    "depth": np.array([0.0, 0.5, 1.0]),
    "subsampling": np.array([False, False, True]),
}


@result_type("test-shapes-norms")
class Norms(ScalarPerBlock):
    """Token norms."""

    value_name: ClassVar[str] = "norm"
    norm: Estimated = estimate("Token norm", "px", "mean norm")
    spread: np.ndarray = column("Spread", "px", "over images")


@result_type("test-series")
class Accuracies(SeriesPerBlock):
    """Accuracies of two readouts."""

    series_name: ClassVar[str] = "readout"
    value_name: ClassVar[str] = "accuracy"
    readout: Texts = column("Readout")
    accuracy: Estimated = estimate("Accuracy")


@result_type("test-matrix")
class Overlaps(BlockMatrix):
    """Overlap of pairs of blocks."""

    value_name: ClassVar[str] = "overlap"
    overlap: np.ndarray = column("Overlap")


@result_type("test-curve")
class Decay(Curve):
    """A decay with distance."""

    x_name: ClassVar[str] = "distance"
    value_name: ClassVar[str] = "weight"
    series_name: ClassVar[str] = "head"
    head: Texts = column("Head")
    distance: np.ndarray = column("Distance", "pixels")
    weight: np.ndarray = column("Weight")


@result_type("test-surface")
class Bowl(Surface):
    """A bowl."""

    value_name: ClassVar[str] = "loss"
    x: np.ndarray = column("First direction")
    y: np.ndarray = column("Second direction")
    loss: np.ndarray = column("Loss", "nats")


@result_type("test-pictures")
class Kernels(Pictures):
    """Kernels."""

    value_name: ClassVar[str] = "weight"
    weight: np.ndarray = column("Weight")


def within(value, margin):
    return Estimated(value, value - margin, value + margin)


def norms():
    norm = within(np.array([1.0, 3.0, 2.0]), np.array([0.196, np.nan, 0.196]))
    return Norms(**BLOCKS, norm=norm, spread=np.arange(3.0))


def overlaps():
    first, other = (axis.ravel() for axis in np.indices((3, 3)))
    return Overlaps(
        **{name: values[first] for name, values in BLOCKS.items()},
        other=BLOCKS["block"][other],
        **{f"other_{name}": BLOCKS[name][other] for name in ("kind", "stage", "depth")},
        overlap=np.array([1, 0.2, 0.1, 0.3, 1, 0.6, 0, 0, 1]),
    )


def decay():
    return Decay(
        head=np.repeat(["1", "2"], 3),
        distance=np.array([2.0, 0.0, 1.0] * 2),
        weight=np.array([0.1, 1.0, 0.5, 0.2, 0.9, 0.4]),
    )


def bowl():
    y, x = (axis.ravel() for axis in np.meshgrid(*[np.linspace(-1, 1, 3)] * 2, indexing="ij"))
    return Bowl(x=x, y=y, loss=x**2 + 2 * y**2)


def kernels():
    picture, row, kernel_column = np.indices((2, 2, 3)).reshape(3, -1)
    return Kernels(
        picture=np.array(["first", "second"])[picture],
        row=row,
        column=kernel_column,
        weight=np.arange(12.0),
    )


def accuracies():
    rows = np.tile(np.arange(3), 2)
    return Accuracies(
        **{name: values[rows] for name, values in BLOCKS.items()},
        readout=np.repeat(["k-NN", "ridge"], 3),
        accuracy=within(np.array([0.1, 0.5, 0.4, np.nan, 0.2, 0.9]), np.full(6, 0.196)),
    )


MAKERS = norms, accuracies, overlaps, decay, bowl, kernels


@pytest.mark.parametrize("make", MAKERS)
def test_a_type_with_nothing_but_columns_has_a_sentence_a_figure_a_file_and_a_table(
    make, tmp_path
):
    result, ax = make(), Figure().subplots()
    assert result.findings()[0].text
    assert plot(result, ax) is ax
    assert ax.lines or ax.images or ax.collections
    panel({"a": result, "b": result}).draw_without_rendering()
    result.save(tmp_path / "result.npz")
    assert Result.load(tmp_path / "result.npz") == result
    assert f"<th>{result.value_info().heading}</th>" in result._repr_html_()


def test_a_figure_shows_another_column_by_its_name():
    ax = plot(norms(), Figure().subplots(), quantity="spread")
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), norms().spread)
    assert ax.get_ylabel() == "Spread (px)"
    assert plot(accuracies(), Figure().subplots(), quantity="stage").get_ylabel() == "Stage"


def test_a_figure_shows_the_values():
    line = plot(norms(), Figure().subplots()).lines[0]
    np.testing.assert_array_equal(line.get_ydata(), norms().norm)
    curves = plot(decay(), Figure().subplots()).lines
    assert [line.get_xdata().tolist() for line in curves] == [[0, 1, 2]] * 2
    assert curves[1].get_ydata().tolist() == [0.9, 0.4, 0.2]
    ax = plot(accuracies(), Figure().subplots())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["k-NN", "ridge"]
    lines = [c.lines[0].get_ydata().tolist() for c in ax.containers]
    assert lines == [[0.1, 0.5, 0.4], [0.2, 0.9]]
    image = plot(overlaps(), Figure().subplots()).images[0]
    np.testing.assert_array_equal(image.get_array(), overlaps().overlap.reshape(3, 3))
    assert [i.get_array().tolist() for i in plot(kernels(), Figure().subplots()).images] == [
        [[0, 1, 2], [3, 4, 5]],
        [[6, 7, 8], [9, 10, 11]],
    ]
    mesh = plot(bowl(), Figure().subplots()).collections[0]
    np.testing.assert_array_equal(mesh.get_array().ravel(), bowl().loss)

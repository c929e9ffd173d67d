"""Figure of `DifferingPictures`: each picture with its class and both predictions."""

from matplotlib.axes import Axes

from visprism.drawing.registry import figure
from visprism.drawing.style import INK, tip
from visprism.results.differing_pictures import DifferingPictures

_ACROSS = 8  # pictures of a row
_STEP, _CAPTION = 1.1, 0.6  # in sides of a picture


@figure(width=6.6, height=4.2, across=1, share=False)
def _(result: DifferingPictures, ax: Axes) -> Axes:
    """Below each picture its class, then the predictions of the first and the second model."""
    rows = -(-max(len(result), 1) // _ACROSS)
    down = 1 + _CAPTION
    for i, picture in enumerate(result.pictures()):
        left, top = (i % _ACROSS) * _STEP, (i // _ACROSS) * down
        image = ax.imshow(picture, extent=(left, left + 1, top + 1, top), interpolation="none")
        words = (
            f"true: {result.target[i]}",
            f"1: {result.first[i]}",
            f"2: {result.second[i]}",
        )
        image.set_gid(tip(f"image {result.image[i]} · {' · '.join(words)}"))
        ax.annotate(
            "\n".join(words),
            (left + 0.5, top + 1),
            xytext=(0, -2),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=6,
            color=INK,
        )
    ax.set(xlim=(0, _ACROSS * _STEP), ylim=(rows * down, 0), aspect="equal")
    ax.axis("off")
    return ax

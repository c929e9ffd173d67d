"""How corruptions look: all 19 at severities 1, 3 and 5, beside those of imagecorruptions.

One image of shapes, 224x224, of which the middle is shown pixel by pixel; each row of four has
ours at the three severities, and imagecorruptions' picture at severity 3. Random ones are drawn
anew by each. The peer's frost is left out: it is made from photographs that come with it.

    python benchmarks/corruptions_by_eye.py --peer DIR  # writes docs/figures/corruptions.png

DIR as for `corruptions.py`.
"""

import argparse
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from corruptions import patched  # pyrefly: ignore
from matplotlib.figure import Figure
from torch import Tensor

from visprism import corrupt, in_memory, load_data
from visprism.core.preprocessing import Preprocessing
from visprism.images.corruptions.corrupt import COMMON, EXTRA

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "corruptions.png"
SEVERITIES, PUBLISHED = (1, 3, 5), 3
IMAGES, CHOSEN = 30, 8  # of shapes; the chosen one is neither dark nor light
SIDE, GAP, NAME, HEAD = 128, 4, 22, 24  # pixels: an image's side, and what is around it
DPI = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", metavar="DIR", required=True)
    parser.add_argument("--out", type=Path, default=FIGURE)
    arguments = parser.parse_args()
    peer = patched(Path(arguments.peer))
    images = load_data("shapes", limit=IMAGES, side=256)
    crops, _ = in_memory(images, Preprocessing((224, 224), crop=0.875))
    image = crops[CHOSEN : CHOSEN + 1]
    rows = {"clean": [middle(image)]}
    for name in (*COMMON, *EXTRA):
        ours = [middle(corrupt(image, name, severity)) for severity in SEVERITIES]
        if name == "frost":  # the peer's is a photograph, which is not ours to show
            rows[name] = ours
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.random.seed(0)  # noqa: NPY002 (the peer's)
            array = np.ascontiguousarray(image[0].permute(1, 2, 0).numpy())
            theirs = peer(array, corruption_name=name, severity=PUBLISHED)
        rows[name] = [*ours, cut(theirs)]
    sheet(rows).savefig(arguments.out, dpi=DPI)
    print(f"wrote {arguments.out}")


def middle(images: Tensor) -> np.ndarray:
    return cut(images[0].permute(1, 2, 0).numpy())


def cut(image: np.ndarray) -> np.ndarray:
    """The middle of an image (h, w, 3), as large as it is shown."""
    top, left = ((side - SIDE) // 2 for side in image.shape[:2])
    return image[top : top + SIDE, left : left + SIDE]


def sheet(rows: dict[str, list[np.ndarray]]) -> Figure:
    """Two columns of rows, every pixel of an image one of the figure."""
    columns = len(SEVERITIES) + 1
    wide, high = columns * (SIDE + GAP) + 4 * GAP, SIDE + NAME
    lines = (len(rows) + 1) // 2
    canvas = np.full((HEAD + lines * high, 2 * wide, 3), 255, np.uint8)
    height, width = canvas.shape[:2]
    figure = plt.figure(figsize=(width / DPI, height / DPI))

    def write(x: float, y: float, text: str, *, heavy: bool) -> None:
        weight = "bold" if heavy else "normal"
        figure.text(x / width, 1 - y / height, text, size=8, weight=weight, va="center")

    ours = [f"severity {severity}" for severity in SEVERITIES]
    titles = [*ours, f"imagecorruptions, {PUBLISHED}"]
    for half in range(2):
        for column, title in enumerate(titles):
            x = half * wide + 2 * GAP + column * (SIDE + GAP)
            write(x, HEAD / 2, title, heavy=False)
    for number, (name, images) in enumerate(rows.items()):
        half, line = divmod(number, lines)
        left, top = half * wide + 2 * GAP, HEAD + line * high
        write(left, top + NAME / 2, name.replace("_", " "), heavy=True)
        for column, image in enumerate(images):
            x = left + column * (SIDE + GAP)
            canvas[top + NAME : top + high, x : x + SIDE] = image
    figure.figimage(canvas, zorder=-1)
    return figure


if __name__ == "__main__":
    main()

"""What corruptions cost: all 19 at 224x224, severity 3, beside imagecorruptions.

Images are drawn shapes, or those of a folder. Each corruption is timed on a batch, and its
peer's on the same images one by one, in one run; the table has images per second of each, and
the signal-to-noise ratio of one against the other, which for random corruptions only says that
the noise is other noise. Elastic transform follows the code of the published sets,
imagecorruptions another definition.

    python benchmarks/corruptions.py                     # visprism alone
    python benchmarks/corruptions.py --peer DIR --write  # both; writes results/corruptions.json

DIR is where `uv pip install --target DIR --no-deps` has put imagecorruptions, scikit-image,
networkx, numba, llvmlite, opencv-python-headless, lazy_loader, imageio and tifffile.
imagecorruptions 1.1.2 wants names that NumPy 2, SciPy 1.15, scikit-image 0.19 and setuptools 82
no longer have; `patched` gives them back.

Claim: in total at least 10 times as many images per second, and for no corruption fewer.
"""

import argparse
import json
import random
import sys
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import made_with, options
from torch import Tensor

from visprism import corrupt, in_memory, load_data
from visprism.core.preprocessing import Preprocessing
from visprism.images.corruptions.corrupt import COMMON, EXTRA

RESULTS = Path(__file__).parent / "results" / "corruptions.json"
Peer = Callable[..., np.ndarray]


def main() -> None:
    parser = options(__doc__, RESULTS, images=16, size=224, severity=3, repeats=3)
    parser.add_argument("--data", default="shapes", help="as the command line takes it")
    parser.add_argument("--peer", metavar="DIR", help="where imagecorruptions was installed to")
    arguments = parser.parse_args()
    images = loaded(arguments)
    peer = patched(Path(arguments.peer)) if arguments.peer else None
    np.random.seed(0)  # noqa: NPY002 (the peer's)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the peer's
        rows = [measured(name, images, arguments, peer) for name in (*COMMON, *EXTRA)]
    print_table(rows)
    if arguments.write:
        RESULTS.parent.mkdir(exist_ok=True)
        about = setting(arguments)
        RESULTS.write_text(json.dumps({"setting": about, "rows": rows}, indent=2))
        print(f"wrote {RESULTS}")


def loaded(arguments: argparse.Namespace) -> Tensor:
    side = arguments.size
    data = load_data(arguments.data, limit=arguments.images, side=round(side / 0.875))
    pixels, _ = in_memory(data, Preprocessing((side, side), crop=0.875))
    return pixels


def patched(folder: Path) -> Peer:
    """The function of imagecorruptions that corrupts an image."""
    sys.path.append(str(folder))
    package = folder / "imagecorruptions"
    resources = types.ModuleType("pkg_resources")
    resources.resource_filename = lambda _, path: str(package / path)  # pyrefly: ignore
    sys.modules.setdefault("pkg_resources", resources)
    setattr(np, "float_", np.float64)  # noqa: B010 (NumPy 2 has no such name)
    import scipy.ndimage
    import skimage.filters  # pyrefly: ignore

    gone = types.ModuleType("scipy.ndimage.interpolation")
    gone.map_coordinates = scipy.ndimage.map_coordinates  # pyrefly: ignore
    sys.modules["scipy.ndimage.interpolation"] = gone
    gaussian = skimage.filters.gaussian

    def with_channels(*args: object, multichannel: bool = False, **named: object) -> np.ndarray:
        return gaussian(*args, **named, **({"channel_axis": -1} if multichannel else {}))

    skimage.filters.gaussian = with_channels
    from imagecorruptions import corrupt as peer  # pyrefly: ignore

    return peer


def measured(
    name: str, images: Tensor, arguments: argparse.Namespace, peer: Peer | None
) -> dict:
    severity = arguments.severity
    ours = corrupt(images, name, severity)  # warms up
    few = images[: 2 if name == "glass_blur" else 8]  # it takes the peer a second an image
    arrays = [np.ascontiguousarray(image.permute(1, 2, 0).numpy()) for image in few]
    best, peer_best, corrupted = np.inf, np.inf, []
    for repeat in range(arguments.repeats):
        held = memory(repeat)
        start = time.perf_counter()
        ours = corrupt(images, name, severity)
        best = min(best, (time.perf_counter() - start) / len(images))
        if peer is not None and (repeat == 0 or name != "glass_blur"):
            start = time.perf_counter()
            corrupted = [peer(a, corruption_name=name, severity=severity) for a in arrays]
            peer_best = min(peer_best, (time.perf_counter() - start) / len(arrays))
        del held
    row = {"corruption": name, "ms": 1e3 * best}
    if peer is None:
        return row
    theirs = np.stack(corrupted).transpose(0, 3, 1, 2).astype(float)
    error = float(((theirs - ours[: len(few)].numpy()) ** 2).mean())
    psnr = float(10 * np.log10(255**2 / error)) if error else float("inf")
    return row | {"peer_ms": 1e3 * peer_best, "times": peer_best / best, "psnr": psnr}


def memory(seed: int) -> list[bytes]:
    """Objects of many sizes: while they are held, other memory is allocated elsewhere.

    libjpeg-turbo writes past the cache where its caller's buffer for a row is aligned to 32
    bytes. Reading a JPEG by Pillow then takes twice as long, by chance, in either package.
    """
    generator = random.Random(seed)
    return [bytes(generator.randrange(400, 3000)) for _ in range(generator.randrange(200))]


def setting(arguments: argparse.Namespace) -> dict:
    """Where the numbers are from; a folder of images is named without the folders above it."""
    source, _, path = arguments.data.partition(":")
    data = f"{source}:{'/'.join(Path(path).parts[-2:])}" if path else source
    return made_with(
        **{k: v for k, v in vars(arguments).items() if k not in ("peer", "write")}, data=data
    )


def print_table(rows: list[dict]) -> None:
    print(f"{'corruption':<19}{'ms':>8}{'images/s':>10}{'peer ms':>10}{'times':>8}{'PSNR':>7}")
    for row in rows:
        has_peer = "peer_ms" in row
        rest = (
            f"{row['peer_ms']:10.2f}{row['times']:8.1f}{row['psnr']:7.1f}" if has_peer else ""
        )
        print(f"{row['corruption']:<19}{row['ms']:8.2f}{1e3 / row['ms']:10.0f}{rest}")
    total = sum(row["ms"] for row in rows)
    if "peer_ms" in rows[0]:
        peer = sum(row["peer_ms"] for row in rows)
        rest = f"{peer:10.2f}{peer / total:8.1f}"
    else:
        rest = ""
    print(f"{'all':<19}{total:8.2f}{1e3 / total:10.1f}{rest}")


if __name__ == "__main__":
    main()

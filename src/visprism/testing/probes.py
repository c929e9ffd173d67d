"""Laws of probes: what `check_probe` checks."""

import pickle
from collections.abc import Callable
from pathlib import Path

import matplotlib.figure
import numpy as np
import torch
from torch import Tensor

from visprism.anatomy import Block, Kind, Layout
from visprism.core.errors import InputError
from visprism.drawing.registry import plot
from visprism.measure.features.probe import Probe
from visprism.passes.tokens import Tokens
from visprism.results.per_image import PerImage
from visprism.table.result import Result

_IMAGES = 7
_TARGETS = torch.tensor([0, 1, 2, 0, 1, 2, 0])


def assert_results_equal(a: Result, b: Result, *, rtol: float = 1e-9) -> None:
    """Compare two results column by column; NaN equals NaN."""
    assert type(a) is type(b), f"a {type(a).__name__} and a {type(b).__name__}"
    others = b.columns()
    for name, column in a.columns().items():
        if column.dtype.kind in "fc":
            # 1e-12: a difference of equal sums is 0 only up to rounding.
            atol = 1e-12 if rtol else 0.0
            np.testing.assert_allclose(column, others[name], rtol, atol, err_msg=name)
        else:
            np.testing.assert_array_equal(column, others[name], err_msg=name)


def check_probe(make: Callable[[], Probe], folder: Path | str) -> None:
    """Check the laws of probes; `folder` is scratch space.

    1. Cutting the data into other batches changes nothing.
    2. The order of the images changes nothing.
    3. Spreading the data over processes, one of which gets none, changes nothing.
    4. Feature maps are left as they are, and may lie in memory in any order.
    5. A result survives being written and read.
    6. A result can be drawn.
    7. Without data there is no result.
    8. Values of single images, where it records any, follow their images: batches, the order of
       the images and processes change nothing.

    Raises:
        AssertionError: if one is broken; the message says which.
    """
    generator = torch.Generator().manual_seed(0)
    maps = {
        _block("stem", (3, 8, 8), 0.0): _noise(3, 8, generator),
        _block("attention", (3, 8, 8), 0.5): _noise(3, 8, generator),
        _block("downsample", (5, 4, 4), 1.0): _noise(5, 4, generator),
    }

    in_order = np.arange(_IMAGES)

    def gathered(*batches: slice | Tensor, maps: dict[Block, Tensor] = maps) -> Probe:
        probe = make()
        for rows in batches:
            probe.targets = _TARGETS[rows]
            seen = {b: _seen(probe, b, x[rows]) for b, x in maps.items()}
            probe.update({block: probe.extract(x) for block, x in seen.items()})
        return probe

    def check(law: str, probe: Probe, image: np.ndarray = in_order) -> None:
        try:
            assert_results_equal(expected, probe.result())
            for first, second in zip(further, probe.further_results(), strict=True):
                assert_results_equal(first, second)
            _assert_values_equal(values, _values(probe, image))
        except AssertionError as broken:
            raise AssertionError(f"{law}: {broken}") from broken

    before = {block: x.clone() for block, x in maps.items()}
    probe = gathered(slice(None))
    expected, values = probe.result(), _values(probe, in_order)
    further = probe.further_results()
    for block, x in maps.items():
        assert torch.equal(x, before[block]), "extract changes the feature map"

    parts = slice(0, 4), slice(4, 6), slice(6, 7)
    check("other batches change the result", gathered(*parts))
    shuffled = torch.randperm(_IMAGES, generator=generator)
    law = "the order of images changes the result"
    check(law, gathered(shuffled), shuffled.numpy())
    check("spreading over processes changes the result", _merged(make(), *map(gathered, parts)))
    last = {b: x.contiguous(memory_format=torch.channels_last) for b, x in maps.items()}
    check("the order of memory changes the result", gathered(slice(None), maps=last))

    path = Path(folder) / "result.npz"
    expected.save(path)
    assert_results_equal(expected, Result.load(path), rtol=0.0)

    ax = matplotlib.figure.Figure().subplots()
    assert plot(expected, ax) is ax, "plot does not return the axes that it was given"

    try:
        make().result()
    except InputError:
        return
    raise AssertionError("a probe without data must raise InputError")


def _values(probe: Probe, image: np.ndarray) -> PerImage | None:
    """What the probe recorded, with one value for each image."""
    try:
        return probe.per_image(image)
    except ValueError as error:
        raise AssertionError(f"record must get one value for each image: {error}") from error


def _assert_values_equal(a: PerImage | None, b: PerImage | None) -> None:
    if a is None or b is None:
        assert a is b, "only one of two probes records values of single images"
    else:
        assert_results_equal(a, b)


def _seen(probe: Probe, block: Block, x: Tensor) -> Tensor | Tokens:
    """A feature map as the probe sees it; its first two positions also stand off the grid."""
    if "tokens" not in probe.all_seen:
        return x
    return Tokens(block, x, x.flatten(2)[:, :, :2].mT + 1, ("class", "register"))


def _block(kind: Kind, shape: tuple[int, int, int], depth: float) -> Block:
    layout = Layout("b c h w", shape[1:])
    return Block(kind, kind, round(depth), depth, kind == "downsample", shape, layout)


def _noise(channels: int, side: int, generator: torch.Generator) -> Tensor:
    shape = (_IMAGES, channels, side, side)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _merged(*probes: Probe) -> Probe:
    """As processes do it: what they gathered is pickled, and added in the order of ranks."""
    first, *others = probes
    for other in others:
        sums, recorded = pickle.loads(pickle.dumps((other.sums, other.recorded)))
        first.add(sums)
        for quantity, values in recorded.items():
            first.recorded.setdefault(quantity, []).extend(values)
    return first

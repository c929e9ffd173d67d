"""Laws of statistics of features: what `check_statistic` checks."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.figure
import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from visprism.anatomy import Block, Layout, dissect
from visprism.drawing.registry import plot
from visprism.passes.features import FeatureStatistic, observations
from visprism.passes.tokens import Tokens
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


def check_statistic(make: Callable[[], FeatureStatistic], folder: Path | str) -> None:
    """Check the laws of statistics of features; `folder` is scratch space.

    1. Feature maps are left as they are, and may lie in memory in any order.
    2. Each image of a batch has one value.
    3. Cutting the data into other batches changes nothing, nor does the order of the images.
    4. Results survive being written and read, and the main one can be drawn.

    Several processes share batches as one cuts them, so that law 3 covers them.

    Raises:
        AssertionError: if one is broken; the message says which.
    """
    _check_extract(make())
    model = _model(make())
    images = torch.randn(_IMAGES, 3, 16, 16, generator=_generator()).double()
    anatomy = dissect(model, images[:2])

    def measured(*batches: Sequence[int]) -> tuple[Result, ...]:
        data = [(images[list(rows)], _TARGETS[list(rows)]) for rows in batches]
        return observations(anatomy, data, make())[0]

    expected = measured(range(_IMAGES))
    for law, batches in (
        ("other batches change the result", (range(4), range(4, 6), range(6, 7))),
        ("the order of images changes the result", ([3, 6, 0, 2, 5, 1, 4],)),
    ):
        try:
            for one, other in zip(expected, measured(*batches), strict=True):
                assert_results_equal(one, other, rtol=1e-7)
        except AssertionError as broken:
            raise AssertionError(f"{law}: {broken}") from broken
    for number, result in enumerate(expected):
        path = Path(folder) / f"{number}.npz"
        result.save(path)
        assert_results_equal(result, Result.load(path), rtol=0.0)
    ax = matplotlib.figure.Figure().subplots()
    assert plot(expected[0], ax) is ax, "plot does not return the axes that it was given"


def _check_extract(statistic: FeatureStatistic) -> None:
    """Laws 1 and 2, on a feature map of noise; attention weights have one order of memory."""
    if not {"feature maps", "tokens"} & {*statistic.all_seen}:
        return
    block = Block(
        "a",
        "conv",
        0,
        0.0,
        subsampling=False,
        shape=(3, 8, 8),
        layout=Layout("b c h w", (8, 8)),
    )
    x = torch.randn(_IMAGES, 3, 8, 8, generator=_generator()).double()
    before = x.clone()
    extracted = statistic.extract(_seen(statistic, block, x))
    assert torch.equal(x, before), "extract changes the feature map"
    last = x.contiguous(memory_format=torch.channels_last)
    moved = statistic.extract(_seen(statistic, block, last))
    law = "the order of memory changes the result"
    torch.testing.assert_close(moved, extracted, msg=lambda text: f"{law}: {text}")
    for values in statistic.by_image({block: extracted}).values():
        assert len(values) == _IMAGES, "by_image must give one value for each image"


def _seen(statistic: FeatureStatistic, block: Block, x: Tensor) -> Tensor | Tokens:
    """A feature map as the statistic sees it; its first positions also stand off the grid."""
    if "tokens" not in statistic.all_seen:
        return x
    return Tokens(block, x, x.flatten(2)[:, :, :2].mT + 1, ("class", "register"))


def _model(statistic: FeatureStatistic) -> nn.Module:
    """A network with what the statistic sees, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if {*statistic.all_seen} <= {"feature maps"}:
            convs = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 2, stride=2)]
            head = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3)]
            model = nn.Sequential(*convs, *head)
        else:
            model = VisionTransformer(
                img_size=16, patch_size=4, embed_dim=8, depth=2, num_heads=2, reg_tokens=2,
                num_classes=3,
            )  # fmt: skip
    return model.double().eval()


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)

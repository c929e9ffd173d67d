"""Compiles and exports a small network of each family; fails if an answer differs.

Compiling is to one graph: `fullgraph=True` refuses whatever Python would do in between.
"""

import warnings

import torch
from small_models import noise, seeded
from small_zoo import NETWORKS, SIDES


@torch.no_grad()
def check(name):
    model, images = seeded(NETWORKS[name]), noise(1, 3, SIDES[name], SIDES[name])
    expected = model(images)
    assert expected.any()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), expected, rtol=1e-4, atol=1e-5)
    exported = torch.export.export(model, (images,)).module()
    # timm interpolates tables of positions also to their own size while it exports.
    torch.testing.assert_close(exported(images), expected, rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # torch's own, of what it is about to change
    for name in NETWORKS:
        check(name)
        torch.compiler.reset()
        print(name)  # noqa: T201 (read by the test)

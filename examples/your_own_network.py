"""A network that nobody has seen before: taken apart, measured, and drawn.

Writes your_own_network.png. Run: python examples/your_own_network.py
"""

import torch
from torch import nn

import visprism as vp


class Mix(nn.Module):
    """A convolution and an MLP, each beside a skip."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.space = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.channels = nn.Sequential(
            nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.space(x)
        return x + self.channels(x)


model = nn.Sequential(
    nn.Conv2d(3, 32, 4, stride=4),
    *(Mix(32) for _ in range(4)),
    nn.Conv2d(32, 64, 2, stride=2),
    *(Mix(64) for _ in range(4)),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 10),
).eval()

images = vp.load_data("shapes", limit=64)
batches = vp.batches(images, vp.Preprocessing(size=(64, 64)), batch_size=16)
anatomy = vp.dissect(model, next(iter(batches))[0])
for block in anatomy:
    print(f"{block.name:8} {block.kind:10} stage {block.stage}  {block.shape}")

(spectrum,) = vp.observe(anatomy, batches, [vp.FourierProbe()])
assert isinstance(spectrum, vp.results.Spectrum)
print(*spectrum.high_frequency().summarize_by_kind().findings(), sep="\n")
vp.panel({"a network of mine": spectrum}).savefig("your_own_network.png", dpi=200)

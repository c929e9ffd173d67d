"""
Dissect a model
===============

A model is an ordinary ``torch.nn.Module``. ``vp.dissect`` runs it once and finds its blocks:
the modules whose outputs are feature maps, in forward order. No class needs to be known in
advance.
"""

# %% [markdown]
# A network that no library has
# -----------------------------
#
# The blocks of this network have a depthwise convolution over positions and an MLP over
# channels, each with a shortcut.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import visprism as vp


class Mix(nn.Module):
    """A convolution and an MLP, each with a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.space = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.channels = nn.Sequential(
            nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.space(x)
        return x + self.channels(x)


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 32, 4, stride=4),
    *(Mix(32) for _ in range(3)),
    nn.Conv2d(32, 64, 2, stride=2),
    *(Mix(64) for _ in range(3)),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 10),
).eval()

# %% [markdown]
# The blocks
# ----------
#
# Each block has a name, a kind, a stage and the shape of its feature map. The two shortcuts
# of a ``Mix`` end two blocks: the output of a block is the sum after a branch.

# %%
images = vp.load_data("shapes", limit=64)
batches = vp.batches(images, vp.Preprocessing(size=(64, 64)), batch_size=16)
anatomy = vp.dissect(model, next(iter(batches))[0])
for block in anatomy:
    print(f"{block.name:10} {block.kind:10} stage {block.stage}  {block.shape}")

# %% [markdown]
# Where the arithmetic is
# -----------------------

# %%
costs = vp.costs(anatomy)
vp.plot(costs)
plt.show()

# %% [markdown]
# One pass, any number of measurements
# ------------------------------------
#
# An analysis of features sees the output of every block. ``observations`` feeds all of them in
# one pass over the images. The weights are random, so the curves describe the architecture and
# its initialization, not something learned.

# %%
(spectrum, highest, kinds), (variances, _) = vp.observations(
    anatomy, batches, [vp.Fourier(), vp.Variance()]
)
vp.plot(spectrum)
vp.plot(variances)
plt.show()

# %% [markdown]
# What the numbers mean, in sentences
# -----------------------------------

# %%
print(*kinds.findings(), sep="\n")

# %% [markdown]
# Which blocks change the logits
# ------------------------------
#
# Inside ``vp.ablate`` a block is the identity: its branch is removed. The model is as before
# after the ``with``.

# %%
crops = next(iter(batches))[0]
changes = {}
with torch.inference_mode():
    logits = vp.forward(model, crops)
    for block in anatomy:
        if block.kind in ("conv", "mlp"):
            with vp.ablate(anatomy, block):
                difference = vp.forward(model, crops) - logits
            changes[block.name] = (difference.norm() / logits.norm()).item()
    restored = torch.equal(vp.forward(model, crops), logits)

figure, ax = plt.subplots(figsize=(6, 2.2), layout="constrained")
ax.bar(list(changes), list(changes.values()))
ax.set_ylabel("Relative change\nof the logits")
ax.tick_params(axis="x", rotation=60)
print("logits after all ablations are equal:", restored)
plt.show()

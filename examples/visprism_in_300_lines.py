"""
visprism in 300 lines
=====================

What visprism does, from a network to a figure with intervals, in plain PyTorch: split a network
into blocks, measure one quantity of each block and image, estimate its mean with an interval,
compare two kinds of blocks, and draw. It takes an evening to read. Each part ends with the file
that does the same for any network; the last part shows that both give the same numbers.
"""

# %% [markdown]
# A network and images
# --------------------
#
# Only the trained network and its images come from visprism here.

# %%
import math
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy import stats

import visprism as vp

loaded = vp.load_model("vit_pico_patch4_32.shapes")
model = loaded.model
data = vp.load_data("shapes", limit=64)
batches = list(vp.batches(data, loaded.preprocessing, 32))
images = torch.cat([batch[0] for batch in batches])

# %% [markdown]
# Split the network into blocks
# -----------------------------
#
# A residual network is a sum: ``x = x + f(x)``, again and again. So a *block* is what
# happens between two sums, and its feature map is what the next block reads. A
# transformer's block adds twice, once for attention and once for the MLP.
#
# We note every leaf module that runs, in order, and look for the sums between them. To see a
# sum, we enter a mode that PyTorch asks before each operation on tensors.


# %%
@dataclass
class Sum:
    """An addition of two tensors of the same shape: the end of a block."""

    name: str
    kind: str
    value: torch.Tensor


class Watched(torch.overrides.TorchFunctionMode):
    """Records each residual sum, and what kind of module ran since the sum before."""

    def __init__(self):
        super().__init__()
        self.sums, self.modules = [], []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        two_tensors = len(args) >= 2 and all(isinstance(a, torch.Tensor) for a in args[:2])
        if (
            function in ADDITIONS
            and two_tensors
            and args[0].shape == args[1].shape == out.shape
        ):
            if self.modules and out.ndim == 3:
                self.sums.append(Sum(self.modules[-1], kind_of(self.modules), out))
            self.modules = []
        return out


ADDITIONS = {torch.add, torch.Tensor.add, torch.Tensor.add_, torch.Tensor.__add__}


def kind_of(names):
    """Attention if a module of that name ran, otherwise an MLP."""
    return "attention" if any(".attn" in name for name in names) else "mlp"


@contextmanager
def watched(network):
    """Watch the sums of one forward pass."""
    mode = Watched()

    def leaf_ran(name):
        def hook(module, inputs, output):
            mode.modules.append(name)

        return hook

    leaves = [(n, m) for n, m in network.named_modules() if not list(m.children())]
    hooks = [module.register_forward_hook(leaf_ran(name)) for name, module in leaves]
    try:
        with mode, torch.no_grad():
            yield mode
    finally:
        for hook in hooks:
            hook.remove()


with watched(model) as mode:
    model(images)
blocks = mode.sums
for block in blocks:
    print(f"{block.name:24} {block.kind:10} {tuple(block.value.shape)}")

# %% [markdown]
# visprism records the whole graph of operations, and knows convolutions, windows, pyramids,
# class tokens and parallel branches: ``anatomy/trace`` has the graph, ``anatomy/blocks``
# finds where blocks end and which kind each is.
#
# Tokens go back on their grid
# ----------------------------
#
# A token is a position of the image. Class tokens have no position and are left out.


# %%
def on_grid(tokens, grid):
    """(B, N, C) to (B, C, H, W), without the tokens before the patches."""
    patches = tokens[:, tokens.shape[1] - grid[0] * grid[1] :]
    return patches.transpose(1, 2).unflatten(2, grid)


grid = model.patch_embed.grid_size
maps = [on_grid(block.value, grid) for block in blocks]
print(maps[0].shape)

# %% [markdown]
# One quantity by block and image
# -------------------------------
#
# The amplitude of the highest frequency relative to the mean, figure 8 of Park and Kim
# (2022): the logarithm of the Fourier amplitude at the corner, minus the logarithm at
# frequency 0, as a mean over channels. The number of an image depends on that image only,
# so results do not depend on batches. Sums over images come last, never in the pass.


# %%
def high_frequency(x):
    """Log amplitude at (π, π) minus the one at frequency 0, mean over channels: (B,)."""
    amplitude = torch.fft.fft2(x.double()).abs()
    log_amplitude = (amplitude + 1e-6).log().mean(1)
    height, width = x.shape[-2:]
    return log_amplitude[:, height // 2, width // 2] - log_amplitude[:, 0, 0]


values = torch.stack([high_frequency(x) for x in maps], dim=1).numpy()
print("images, blocks:", values.shape)

# %% [markdown]
# ``passes/features.py`` runs all statistics in one pass over the images and reduces each
# map in the hook, so that memory does not grow with images. Each quantity is a file in
# ``analyses``.
#
# From values to an estimate
# --------------------------
#
# The mean of n images has a 95% interval: Student's t times the standard error. It tells
# how the number would vary with other images. It does not tell how it would vary with
# another training: for that, train several seeds.


# %%
@dataclass
class Estimate:
    """A mean over images with its 95% interval."""

    mean: np.ndarray
    half_width: np.ndarray

    def __str__(self):
        return f"{float(self.mean):.3f} ± {float(self.half_width):.3f}"


def estimate(by_image):
    """Student's interval of the mean over the first axis."""
    n = len(by_image)
    error = by_image.std(axis=0, ddof=1) / math.sqrt(n)
    return Estimate(by_image.mean(axis=0), stats.t.ppf(0.975, n - 1) * error)


height = estimate(values)

# %% [markdown]
# ``estimates/estimated.py`` has the other reductions: ratios, proportions, jackknife.
#
# What a block does is a difference
# ---------------------------------
#
# The height of a point belongs to the whole network up to it. The block's own effect is the
# change from the block before. All blocks see the same images, so we subtract image by
# image, which is much more precise than to subtract two means.

# %%
changes = values[:, 1:] - values[:, :-1]
kinds = np.array([block.kind for block in blocks[1:]])
for kind in ("attention", "mlp"):
    by_image = changes[:, kinds == kind].mean(axis=1)
    change = estimate(by_image)
    word = "no significant change"
    if abs(change.mean) > change.half_width:
        word = "raised" if change.mean > 0 else "lowered"
    print(f"{kind}: high frequencies relative to the mean {change}, {word}")

# %% [markdown]
# This is one of the two references that visprism asks for: a block that raises the mean
# looks low-pass here and filters nothing. ``analyses/features/fourier.py`` says "low-pass"
# only if the change relative to the lowest frequency agrees.
#
# The figure
# ----------

# %%
figure, axes = plt.subplots(figsize=(6, 3))
depth = np.arange(len(blocks))
axes.errorbar(depth, height.mean, height.half_width, color="gray", capsize=2)
for kind, color in (("attention", "tab:orange"), ("mlp", "tab:blue")):
    chosen = [i for i, block in enumerate(blocks) if block.kind == kind]
    axes.plot(depth[chosen], height.mean[chosen], "o", color=color, label=kind)
axes.set(xlabel="Block", ylabel="Δ log amplitude at π")
axes.legend()
plt.show()

# %% [markdown]
# The same with visprism
# ----------------------
#
# One call, for any network, with the second reference, the spectrum at every frequency, and
# the summary by kind. Its numbers are ours.

# %%
anatomy = vp.dissect(model, images)
((spectrum, highest, by_kind),) = vp.observations(anatomy, batches, vp.Fourier())
theirs = dict(zip(highest.block.tolist(), highest.relative.tolist(), strict=True))
residual = [b for b in anatomy.blocks if b.kind in ("attention", "mlp")]
for block, ours in zip(residual, height.mean, strict=True):
    print(f"{block.name:20} {theirs[block.name]:8.4f} {ours:8.4f}")
    assert abs(theirs[block.name] - ours) < 1e-3
vp.plot(spectrum)
plt.show()

"""
Fourier analysis and variance
=============================

Park and Kim (2022, "How Do Vision Transformers Work?", figures 2a, 8 and 9) report that
attention lowers the high-frequency amplitude and the variance of feature maps, and that
convolutions and MLPs raise them. This notebook measures both on two trained networks that
ship with visprism.
"""

# %% [markdown]
# A study of two networks
# -----------------------
#
# Both networks classify the procedural ``shapes``: ResNet-20 with an accuracy of 86.9%,
# ViT-Pico with 89.3%.

# %%
import matplotlib.pyplot as plt

import visprism as vp

study = vp.examine(
    {"ResNet-20": "resnet20.shapes", "ViT-Pico": "vit_pico_patch4_32.shapes"},
    "shapes",
    analyses=["fourier", "variance"],
    limit=128,
)

# %% [markdown]
# Spectra of feature maps (figure 2a)
# -----------------------------------
#
# Each curve is a block, from dark to light with depth. The vertical axis is the log amplitude
# relative to frequency 0, so a curve that falls to -3 has 5% of the amplitude of the mean
# there.

# %%
vp.plot(study["fourier"])
plt.show()

# %% [markdown]
# The highest frequency against depth (figure 8)
# ----------------------------------------------
#
# Color gives the kind of block. What a block does is the step between two points, not the
# height of a point.

# %%
highest = {name: study[name].results("fourier")[1] for name in study}
vp.plot(highest)
plt.show()

# %%
for name in study:
    by_kind = study[name].results("fourier")[2]
    print(name, *by_kind.findings(), sep="\n  ")

# %% [markdown]
# Variance of feature maps (figure 9)
# -----------------------------------
#
# The variance over positions of each channel, averaged over channels and images.

# %%
vp.plot(study["variance"])
plt.show()

# %%
for name in study:
    print(name, *[f for r in study[name].results("variance") for f in r.findings()], sep="\n  ")

# %% [markdown]
# What one sees
# -------------
#
# - The convolutional blocks of this ResNet-20 lower the high-frequency amplitude relative to
#   the mean. The interval of the change relative to the lowest frequency ends near 0.
# - Attention lowers the amplitude relative to the mean, and MLPs lower it relative to the
#   lowest frequency. The two other changes are not significant. Neither kind is called
#   low-pass or high-pass.
# - All three kinds raise the variance on average. Convolutions and MLPs raise it far more
#   than attention. Divided by the mean square, it falls across convolutions and attention.
#
# These are two small networks on procedural images, each trained once. The numbers describe
# them and not their architectures.

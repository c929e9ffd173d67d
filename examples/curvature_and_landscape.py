"""
Curvature and loss landscape
============================

How fast does the loss rise when the weights move? The leading eigenvalues of the Hessian
answer for small moves, the loss landscape for large ones (Park and Kim 2022, figures 1 and
4).
"""

# %% [markdown]
# The same training images for two networks
# -----------------------------------------

# %%
import matplotlib.pyplot as plt

import visprism as vp

study = vp.examine(
    {"ResNet-20": "resnet20.shapes", "ViT-Pico": "vit_pico_patch4_32.shapes"},
    "shapes",
    analyses=["hessian", "landscape"],
    options={"hessian": {"k": 2}, "landscape": {"points": 5}},
    limit=32,
    minutes=None,
)

# %% [markdown]
# Leading Hessian eigenvalues (figure 1c and 4)
# ---------------------------------------------
#
# One Hessian for each mini-batch of 8 training images. An eigenvalue comes with its
# residual: a true eigenvalue lies within that distance, so convergence is checked and not
# assumed.

# %%
vp.plot(study["hessian-curves"])
plt.show()

# %%
for name in study:
    print(name, *[f for r in study[name].results("hessian") for f in r.findings()], sep="\n  ")

# %% [markdown]
# Loss landscape (figure 1a)
# --------------------------
#
# The loss on a plane through the weights, along two random directions. Each direction is
# scaled filter by filter, so that the axes of the two networks have one meaning.

# %%
vp.plot(study["landscape"])
plt.show()

# %%
by_distance = {
    name: next(
        r for r in study[name].results("landscape") if isinstance(r, vp.results.LossByDistance)
    )
    for name in study
}
vp.plot(by_distance)
plt.show()
for result in by_distance.values():
    print(*result.findings(), sep="\n")

# %% [markdown]
# What one sees
# -------------
#
# - The leading eigenvalues are positive. Negative curvature shows in the smallest eigenvalue.
#   The ResNet's leading ones are about six times as large as the ViT's, and four
#   mini-batches are too few for an interval.
# - On circles at distance 1 the ResNet's loss rises far more than the ViT's while
#   its BatchNorm statistics are frozen. With re-estimated statistics its rise is a fraction
#   of that (finding VP105).
# - Which network is flatter therefore depends on the treatment of BatchNorm. Compare a
#   network with BatchNorm to one without by the re-estimated values only.

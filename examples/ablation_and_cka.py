"""
Ablation and CKA
================

Which blocks does the accuracy depend on, and which blocks compute similar features? Park and
Kim (2022, figure 10) remove blocks of trained networks one by one; their appendix D.3
compares blocks by CKA.
"""

# %%
import matplotlib.pyplot as plt

import visprism as vp

study = vp.examine(
    {"ResNet-20": "resnet20.shapes", "ViT-Pico": "vit_pico_patch4_32.shapes"},
    "shapes",
    analyses=["ablation", "cka"],
    limit=200,
)

# %% [markdown]
# Accuracy without each block (figure 10)
# ---------------------------------------
#
# A block is ablated by replacing its branch by zero: what remains is its shortcut. The
# interval of each drop is paired, over the same images with and without the block.

# %%
vp.plot(study["ablation"])
plt.show()

# %%
for name in study:
    print(name, *[f for r in study[name].results("ablation") for f in r.findings()], sep="\n  ")

# %% [markdown]
# Similar blocks of one network
# -----------------------------
#
# CKA is 1 for features that are equal up to rotation and scale, and near 0 for unrelated
# ones.

# %%
vp.plot(study["cka"])
plt.show()

# %% [markdown]
# Similar blocks of two networks
# ------------------------------

# %%
(between,) = [e for e in study.between("ResNet-20", "ViT-Pico") if e.analysis == "cka"]
similarity = between.results[0]
vp.plot(similarity)
plt.show()
print(*similarity.findings(), sep="\n")

# %% [markdown]
# What one sees
# -------------
#
# - In the ResNet, early blocks cost more accuracy than late ones: the mean drop of late minus
#   early blocks is significantly below 0.
# - In the ViT, the same holds for MLPs and not for attention. Attention and MLPs as kinds do
#   not differ significantly.
# - The most similar blocks of the two networks are their stems. The CKA of other pairs is
#   lower.
#
# Figure 10 of the paper is about networks with several stages of attention; these two
# networks do not have any.

"""
Attention as convolution
========================

A multi-head self-attention with relative positions can express any convolution (Cordonnier,
Loukas and Jaggi 2020, theorem 1). ``vp.attention_from_convolution`` writes that attention
down, so the theorem can be checked.
"""

# %% [markdown]
# A trained convolution, as attention
# -----------------------------------
#
# The first convolution of a trained ResNet-20 has kernels of 3x3 pixels, so its attention has
# nine heads.

# %%
import matplotlib.pyplot as plt
import torch

import visprism as vp
from visprism.models.attention_as_convolution import largest_difference

loaded = vp.load_model("resnet20.shapes")
images, _ = next(
    iter(vp.batches(vp.load_data("shapes", limit=16), loaded.preprocessing, batch_size=16))
)
conv = next(m for m in loaded.model.modules() if isinstance(m, torch.nn.Conv2d))
attention = vp.attention_from_convolution(conv)
print(conv)
with torch.inference_mode():
    print(f"largest difference: {largest_difference(conv, attention, images):.1e}")

# %% [markdown]
# Each head looks at one neighbor
# -------------------------------
#
# The weights of a head depend only on the relative position. White is weight 0, black is the
# largest, and the cross marks the query.

# %%
vp.plot(vp.relative_scores(attention.scores))
plt.show()

# %% [markdown]
# The same convolution over patches
# ---------------------------------
#
# A transformer sees patches. With tokens of 4x4 pixels, nine heads are again enough: the
# kernel reaches from a patch into its eight neighbors only.

# %%
patches = vp.attention_from_convolution(conv, patch_size=4)
with torch.inference_mode():
    print(f"largest difference: {largest_difference(conv, patches, images):.1e}")
print("heads:", attention.scores.shape[0], "and", patches.scores.shape[0])

# %% [markdown]
# What trained attention does
# ---------------------------
#
# The theorem says what attention can express, not what training finds. AlterNet-20 has
# windowed attention with a learned bias for each relative position. Its position scores,
# without content, look like this.

# %%
alternet = vp.load_model("alter_resnet20.cifar10")
scores = vp.RelativeScores()(alternet.model, [(images, torch.zeros(16, dtype=torch.long))])
vp.plot(scores)
plt.show()

# %% [markdown]
# What one sees
# -------------
#
# - Convolution and attention give the same feature maps up to rounding in float32.
# - Each of the nine heads attends to exactly one neighbor, with weight 1.
# - The trained heads of AlterNet-20 are nothing like it: the learned position bias spreads
#   the weight over the window. What a network could compute and what it computes are two
#   questions.

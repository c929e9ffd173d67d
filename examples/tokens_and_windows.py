"""
Patches, tokens, distillation, windows
======================================

How a vision transformer turns an image into tokens, what the class token and the distillation token of a DeiT read, and
what the windows of a Swin transformer do. The DeiT and the Swin are small and are trained here in seconds.
"""

# %% [markdown]
# Patch embeddings
# ----------------
#
# A patch embedding is a convolution whose stride is its kernel size: each patch of 4x4 pixels becomes one token. Below are
# the principal components of its kernels in a trained ViT, with their share of the energy.

# %%
import matplotlib.pyplot as plt
import torch

import visprism as vp

vit = vp.load_model("vit_pico_patch4_32.shapes")
filters = vp.patch_filters(vit.model)
vp.plot(filters)
plt.show()

# %% [markdown]
# Position embeddings
# -------------------
#
# Attention does not know where a token is, so a learned vector is added to each. One picture for each position of the
# 8x8 grid: the cosine similarity of its vector with those of all positions.

# %%
positions = vp.positional_similarity(vit.model)
vp.plot(positions)
plt.show()

# %% [markdown]
# Class token and distillation token
# ----------------------------------
#
# A DeiT has two tokens beside the patches. The classifier of the class token learns the targets, the classifier of the
# distillation token learns the decisions of a teacher, here the trained ResNet-20. Both train on the same 6,000 images.

# %%
teacher = vp.load_model("resnet20.shapes").model
train = vp.load_data("shapes", split="train", limit=6000)
test = list(vp.batches(vp.load_data("shapes", limit=500), vit.preprocessing, batch_size=250))
recipe = vp.RECIPES["demo_vit"]().replace(
    limit=6000, distillation="hard", distillation_weight=0.5
)

deit = vp.load_model(
    "timm:deit_tiny_distilled_patch16_224"
    "?img_size=32&patch_size=4&embed_dim=64&depth=4&num_heads=2&num_classes=10"
).model
deit.set_distilled_training(True)  # noqa: FBT003
feed = vp.memory_feed(train, vit.preprocessing, recipe.batch_size, seed=0)
vp.fit(deit, feed, recipe, teacher=teacher)

# %%
targets = torch.cat([labels for _, labels in test])
with torch.inference_mode():
    features = torch.cat([deit.forward_features(crops) for crops, _ in test])
    by_token = {
        "class token": deit.head(features[:, 0]),
        "distillation token": deit.head_dist(features[:, 1]),
    }
    by_token["mean of both"] = sum(by_token.values()) / 2
    similarity = torch.cosine_similarity(features[:, 0], features[:, 1]).mean().item()
accuracies = {
    name: (logits.argmax(1) == targets).float().mean().item()
    for name, logits in by_token.items()
}
for name, accuracy in accuracies.items():
    print(f"{name:20} accuracy {accuracy:.1%}")
print(f"cosine similarity of both tokens at the output: {similarity:.2f}")

# %% [markdown]
# Where the class token looks
# ---------------------------

# %%
image = test[0][0][:1]
anatomy = vp.dissect(deit, image)
vp.plot(vp.attention_maps(anatomy, image, query="class"))
plt.show()

# %% [markdown]
# Windows of a Swin transformer
# -----------------------------
#
# Attention of a Swin stays inside windows, here of 4x4 tokens. In every second block the windows are shifted by half their
# side, so that neighbors in different windows meet.

# %%
swin = vp.load_model(
    "timm:swin_tiny_patch4_window7_224"
    "?img_size=32&patch_size=2&window_size=4&embed_dim=32&depths=(2,2)&num_heads=(2,4)&num_classes=10"
).model
recipe = vp.RECIPES["demo_vit"]().replace(limit=3000)
images = vp.load_data("shapes", split="train", limit=3000)
feed = vp.memory_feed(images, vit.preprocessing, recipe.batch_size, seed=0)
history = vp.fit(swin, feed, recipe, test=test)
print(f"Swin: test accuracy {history.test_accuracy[-1]:.1%}")

maps = vp.attention_maps(vp.dissect(swin, image), image, query=(15, 15))
vp.plot(maps)
plt.show()

# %%
nonzero = {}
for name in dict.fromkeys(maps.block.tolist()):
    rows = maps.select((maps.block == name) & (maps.head == 1) & (maps.weight > 0))
    span = [(int(axis.min()), int(axis.max())) for axis in (rows.row, rows.column)]
    nonzero[name] = span
    print(f"{name}: rows {span[0]}, columns {span[1]}")

# %% [markdown]
# What one sees
# -------------
#
# PROSE

"""
Patches, tokens, distillation, windows
======================================

How a vision transformer turns an image into tokens, what the class token and the distillation
token of a DeiT read, and what the windows of a Swin transformer do. The DeiT and the Swin
start from a trained ViT and are fine-tuned here in seconds.
"""

# %% [markdown]
# Patch embeddings
# ----------------
#
# A patch embedding is a convolution whose stride is its kernel size: each patch of 4x4 pixels
# becomes one token. Below are the principal components of its kernels in a trained ViT, with
# their share of the energy.

# %%
import matplotlib.pyplot as plt
import torch

import visprism as vp

vit = vp.load_model("vit_pico_patch4_32.shapes")
test = list(vp.batches(vp.load_data("shapes", limit=500), vit.preprocessing, batch_size=250))
anatomy = vp.dissect(vit.model, test[0][0][:2])
filters = vp.patch_filters(anatomy)
vp.plot(filters)
plt.show()

# %% [markdown]
# Position embeddings
# -------------------
#
# Attention does not know where a token is, so a learned vector is added to each. One picture
# for each position of the 8x8 grid: the cosine similarity of its vector with the vectors of all
# positions.

# %%
positions = vp.positional_similarity(anatomy)
vp.plot(positions)
plt.show()

# %% [markdown]
# Class token and distillation token
# ----------------------------------
#
# A DeiT has two more tokens than patches. The classifier of the class token learns the
# targets, the classifier of the distillation token learns the decisions of a teacher, here
# the trained ResNet-20.
#
# This ViT has neither token: its classifier reads the mean of the patch tokens. A DeiT of the
# same size starts from its weights, with new tokens, and is fine-tuned on 1,500 images.

# %%
state = dict(vit.model.state_dict())
for i, block in enumerate(
    vit.model.blocks
):  # the scale of a branch becomes part of its weights
    for name, scale in (("attn.proj", block.ls1.gamma), ("mlp.fc2", block.ls2.gamma)):
        state[f"blocks.{i}.{name}.weight"] = scale[:, None] * state[f"blocks.{i}.{name}.weight"]
        state[f"blocks.{i}.{name}.bias"] = scale * state[f"blocks.{i}.{name}.bias"]
state = {
    name.replace("fc_norm", "norm"): tensor.detach()
    for name, tensor in state.items()
    if ".ls" not in name
}

deit = vp.load_model(
    "timm:deit_tiny_distilled_patch16_224"
    "?img_size=32&patch_size=4&embed_dim=64&depth=4&num_heads=4&num_classes=10",
    pretrained=False,
).model
no_positions = torch.zeros(1, 2, 64)  # of the two tokens
positions_of_tokens = torch.cat([no_positions, state["pos_embed"]], dim=1)
deit.load_state_dict({**state, "pos_embed": positions_of_tokens}, strict=False)
deit.set_distilled_training(True)

train = vp.load_data("shapes", split="train", limit=1500)
recipe = vp.RECIPES["demo_vit"]().replace(limit=1500, lr=5e-4)
feed = vp.memory_feed(train, vit.preprocessing, recipe.batch_size, seed=0)
teacher = vp.load_model("resnet20.shapes").model
vp.fit(deit, feed, recipe.replace(distillation="hard"), teacher=teacher)

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
#
# One picture for each block: the attention weights of the class token on the 8x8 patches of
# one image, averaged over heads.

# %%
image = test[0][0][:1]
vp.plot(vp.attention_maps(vp.dissect(deit, image), image, query="class"))
plt.show()

# %% [markdown]
# Windows of a Swin transformer
# -----------------------------
#
# Attention of a Swin stays inside windows, here of 4x4 tokens. In every second block the
# windows are shifted by half their side, so that neighbors in different windows meet.
# Position embeddings are replaced by a bias for each relative position in a window.
#
# This Swin starts from the weights of the ViT too and is fine-tuned on the same images.

# %%
swin = vp.load_model(
    "timm:swin_tiny_patch4_window7_224"
    "?img_size=32&patch_size=4&window_size=4&embed_dim=64&depths=(4,)&num_heads=(4,)&num_classes=10",
    pretrained=False,
).model
swin.patch_embed.norm = torch.nn.Identity()  # the ViT has no norm there
del state["pos_embed"]
state = {
    name.replace("blocks.", "layers.0.blocks.").replace("head.", "head.fc."): tensor
    for name, tensor in state.items()
}
swin.load_state_dict(state, strict=False)
feed = vp.memory_feed(train, vit.preprocessing, recipe.batch_size, seed=0)
history = vp.fit(swin, feed, recipe.replace(lr=2e-3, epochs=2), test=test)
print(f"Swin: test accuracy {history.test_accuracy[-1]:.1%}")

# %% [markdown]
# One picture for each block: the attention weights of the token at pixel (15, 15), the last
# one of the first window.

# %%
maps = vp.attention_maps(vp.dissect(swin, image), image, query=(15, 15))
vp.plot(maps)
plt.show()

# %%
windows = {}
for name in dict.fromkeys(maps.block.tolist()):
    rows = maps.select((maps.block == name) & (maps.head == 1) & (maps.weight > 0))
    windows[name] = [(int(axis.min()), int(axis.max())) for axis in (rows.row, rows.column)]
    print(f"{name}: rows {windows[name][0]}, columns {windows[name][1]}")

# %% [markdown]
# What one sees
# -------------
#
# - After fine-tuning, the classifiers of both tokens are far above chance. The classifier
#   of the distillation token is behind: its weights are new, the other's come from the ViT.
# - At the output both tokens are nearly parallel. Touvron et al. (2021, section 4) report a
#   cosine similarity of 0.93 there, for a DeiT on ImageNet.
# - The query of the Swin attends to tokens 0 to 3 in the first and third block and to tokens
#   2 to 5 in the second and fourth: the same query reaches other neighbors in the shifted
#   windows.
# - The Swin is above chance and far below the ViT that it came from. Attention that was
#   trained on the full image must be learned again in windows, and two epochs over 1,500
#   images are not enough.

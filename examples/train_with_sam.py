"""
Train with SAM and watch the sharpness
======================================

Sharpness-aware minimization (SAM, Foret et al. 2021) descends along the gradient at the worst weights within a distance
rho. Two runs from the same random weights, on the same images in the same order, differ in ``sam_rho`` alone.
"""

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import visprism as vp

folder = Path(tempfile.mkdtemp())
recipe = vp.RECIPES["demo_resnet"]().replace(epochs=3, limit=1500, snapshot_every=1)
recipes = {"without SAM": recipe, "with SAM": recipe.replace(sam_rho=0.05)}

# %% [markdown]
# Train both
# ----------
#
# Three epochs over 1,500 images each. SAM takes two gradients for each update.

# %%
preprocessing = vp.load_model("resnet20.shapes").preprocessing
train = vp.load_data("shapes", split="train", limit=1500)
test = list(vp.batches(vp.load_data("shapes", limit=500), preprocessing, batch_size=250))
histories = {}
for name, settings in recipes.items():
    model = vp.load_model("resnet20", seed=0).model
    feed = vp.memory_feed(train, preprocessing, settings.batch_size, seed=0)
    histories[name] = vp.fit(model, feed, settings, test=test, folder=folder / name)
    print(f"{name:12} test accuracy {histories[name].test_accuracy[-1]:.1%}")

# %%
vp.plot(histories)
plt.show()

# %% [markdown]
# Watch the sharpness
# -------------------
#
# Training wrote a snapshot of the weights after each epoch. The sharpness of a snapshot is the increase of the training loss
# at distance 0.05 along the gradient; the leading Hessian eigenvalue is the curvature in the steepest direction.

# %%
batches = list(vp.batches(train, preprocessing, batch_size=128))[:2]
network = vp.load_model("resnet20", seed=0).model
sharpness, curvature = {}, {}
for name in recipes:
    snapshots = sorted((folder / name / "snapshots").glob("*.safetensors"))
    sharpness[name], curvature[name] = [], []
    for file in snapshots:
        vp.load_checkpoint(network, file)
        objective = vp.Objective(network, batches)
        sharpness[name].append(vp.sharpness(objective, ("sam",), rho=0.05).sharpness[0])
        curvature[name].append(vp.top_eigenvalues(objective, k=1).value[0])

# %%
figure, axes = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
for ax, values, label in zip(
    axes, (sharpness, curvature), ("Sharpness (nats)", "Leading eigenvalue"), strict=True
):
    for name, series in values.items():
        ax.plot(series, marker="o", label=name)
    ax.set_xlabel("Snapshot")
    ax.set_ylabel(label)
axes[0].legend()
plt.show()
for name in recipes:
    print(
        f"{name:12} sharpness {sharpness[name][-1]:.4f}, eigenvalue {curvature[name][-1]:.1f}"
    )

# %% [markdown]
# What one sees
# -------------
#
# PROSE

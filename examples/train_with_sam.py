"""
Train with SAM and watch the sharpness
======================================

Sharpness-aware minimization (SAM, Foret et al. 2021) descends along the gradient at the worst
weights within a distance rho. Two runs from the same random weights, on the same images in
the same order, differ only in ``sam_rho``.
"""

# %%
import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt

import visprism as vp

folder = Path(tempfile.mkdtemp())
recipe = vp.RECIPES["demo_resnet"]().replace(
    epochs=3, limit=1500, batch_size=64, lr=4e-3, snapshot_every=1
)
recipes = {"without SAM": recipe, "with SAM": recipe.replace(sam_rho=0.1)}

# %% [markdown]
# Train both
# ----------
#
# Three epochs over 1,500 images of 16x16 pixels. SAM takes two gradients for each update.

# %%
preprocessing = replace(vp.load_model("resnet20.shapes").preprocessing, size=(16, 16))
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
# Training wrote a snapshot of the weights after the warm-up and after each epoch. The
# sharpness of a snapshot is the increase of the loss of a batch at distance 0.05 along its
# gradient.

# %%
batches = list(vp.batches(train, preprocessing, batch_size=128))[:2]
network = vp.load_model("resnet20", seed=0).model
sharpness, eigenvalues = {}, {}
for name in recipes:
    sharpness[name] = []
    for file in sorted((folder / name / "snapshots").glob("*.safetensors")):
        vp.load_checkpoint(network, file)
        objective = vp.Objective(network, batches)
        sharpness[name].append(
            vp.Sharpness(measures=("sam",), rho=0.05).of(objective).sharpness[0]
        )
    last = vp.Objective(network, batches[:1])
    eigenvalues[name] = vp.top_eigenvalues(last, k=1, tol=1e-2).value[0]

figure, ax = plt.subplots(figsize=(4, 2.6), layout="constrained")
for name, series in sharpness.items():
    ax.plot(series, marker="o", label=name)
ax.set_xlabel("Snapshot")
ax.set_ylabel("Sharpness (nats)")
ax.legend()
plt.show()

# %% [markdown]
# The leading Hessian eigenvalue is the curvature in the steepest direction, here of one batch
# of 128 images at the end.

# %%
for name in recipes:
    print(f"{name:12} sharpness {sharpness[name][-1]:.3f}, eigenvalue {eigenvalues[name]:.0f}")

# %% [markdown]
# What one sees
# -------------
#
# - Both runs end at another sharpness: with SAM the loss rises by less than half as much
#   at distance 0.05, and the leading eigenvalue is less than half as large.
# - With the same number of updates, the run with SAM has the lower test accuracy. It costs
#   twice the gradients, too.
# - Both runs are far from convergence, and sharpness depends on the phase of training. One
#   seed of each run does not show that SAM generalizes worse or better.

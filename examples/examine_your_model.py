"""
Examine a model
===============

A module that is defined here, and any iterable of batches, such as a ``DataLoader``.
"""

# %%
import subprocess
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import visprism as vp


class Mixer(nn.Module):
    """A convolutional stem, residual blocks and a classifier."""

    def __init__(self, width: int = 16, depth: int = 3, num_classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, stride=2, padding=1), nn.GELU())
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.GELU()
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean((2, 3)))


torch.manual_seed(0)
images, targets = torch.rand(32, 3, 32, 32), torch.randint(10, (32,))
loader = DataLoader(TensorDataset(images, targets), batch_size=16)
models = {"shallow": Mixer(depth=2).eval(), "deep": Mixer(depth=4).eval()}

# %% [markdown]
# A study in ten lines
# --------------------

# %%
study = vp.examine(
    models,
    loader,
    analyses=["fourier", "variance", "cka", "hessian", "landscape", "calibration"],
    options={"hessian": {"k": 2}, "landscape": {"points": 5}},
    minutes=1,
    out="study",
)
study

# %% [markdown]
# Results are tables with units; ``to_pandas`` gives data frames.

# %%
print(study)
print(study["deep"]["fourier"].to_pandas().head())
between = study.between("shallow", "deep")
print([result for entry in between for result in entry.results])
study["deep"]["variance"]

# %% [markdown]
# Reload in a new process
# -----------------------

# %%
code = "import visprism as vp; s = vp.Study.load('study'); print(s, s['deep']['calibration'])"
answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
print(answer.stdout, answer.stderr)
study.to_html("report.html")

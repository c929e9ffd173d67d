"""One image with every corruption beside it, as a figure.

Run: python examples/every_corruption.py [DATA [SEVERITY]], such as folder:photographs 5
"""

import sys

import matplotlib.pyplot as plt

import visprism as vp
from visprism.data import in_memory
from visprism.data.corruptions import COMMON, EXTRA, corrupt

data, severity = [*sys.argv[1:3], *("shapes", "3")[len(sys.argv[1:3]) :]]
images = vp.load_data(data, limit=10, side=256)
crops, _ = in_memory(images, vp.Preprocessing(size=(224, 224), crop=0.875))
image = crops[4:5] if len(crops) > 4 else crops[:1]
shown = {"clean": image} | {
    name: corrupt(image, name, int(severity)) for name in (*COMMON, *EXTRA)
}
figure, axes = plt.subplots(4, 5, figsize=(7.2, 6.2), layout="constrained")
for ax, (name, pixels) in zip(axes.flat, shown.items(), strict=True):
    ax.imshow(pixels[0].permute(1, 2, 0), interpolation="nearest")
    ax.set_title(name.replace("_", " "), fontsize=8)
    ax.axis("off")
figure.savefig("corruptions.png", dpi=130)
print(f"wrote corruptions.png: {images.name}, severity {severity}")

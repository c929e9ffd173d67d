"""One image with every corruption beside it, as a figure.

Run: python examples/every_corruption.py
"""

import matplotlib.pyplot as plt

import visprism as vp
from visprism.data import in_memory
from visprism.data.corruptions import COMMON, EXTRA, corrupt

DATA = "shapes"  # or folder:DIR, with photographs of yours
SEVERITY = 3

images = vp.load_data(DATA, limit=10, side=256)
crops, _ = in_memory(images, vp.Preprocessing(size=(224, 224), crop=0.875))
image = crops[4:5]
pictures = {"clean": image} | {
    name: corrupt(image, name, SEVERITY) for name in (*COMMON, *EXTRA)
}
figure, axes = plt.subplots(4, 5, figsize=(7.2, 6.2), layout="constrained")
for ax, (name, pixels) in zip(axes.flat, pictures.items(), strict=True):
    ax.imshow(pixels[0].permute(1, 2, 0).numpy(), interpolation="nearest")
    ax.set_title(name.replace("_", " "), fontsize=8)
    ax.axis("off")
figure.savefig("corruptions.png", dpi=130)
print(f"wrote corruptions.png: {images.name}, severity {SEVERITY}")

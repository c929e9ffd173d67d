"""The registry of corruptions: one function per name.

A corruption takes images of eight bits, a severity and the randomness of each image, and gives
images of eight bits; `scale.in_unit` makes one of a function of numbers in 0 ... 1.
"""

from visprism.core.registry import Registry

CORRUPTIONS = Registry("corruption")

# In the order of the paper's table 1.
COMMON = (
    "gaussian_noise", "shot_noise", "impulse_noise",
    "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness",
    "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # for validation, there

"""RandAugment: a few operations on each image, each of which runs on all its images at once."""

# In timm's order.
OPERATIONS = (
    "auto_contrast",
    "equalize",
    "invert",
    "rotate",
    "posterize",
    "solarize",
    "solarize_add",
    "color",
    "contrast",
    "brightness",
    "sharpness",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)
OFF = -1  # the operation of an image that is left as it is

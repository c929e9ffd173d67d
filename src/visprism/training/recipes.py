"""The registered recipes."""

from visprism.training.recipe import RECIPES, Recipe


@RECIPES.register
def demo_resnet() -> Recipe:
    """ResNet-20 on the procedural shapes, in one pass over distinct images.

    Claim: see docs/data.md.
    Run:   visprism demo
    """
    return Recipe(images=8_000, epochs=1, batch_size=64, lr=4e-3)


@RECIPES.register
def demo_vit() -> Recipe:
    """ViT-Pico on the procedural shapes, in one pass over distinct images.

    Claim: see docs/data.md.
    Run:   visprism demo
    """
    return Recipe(images=45_000, epochs=1, batch_size=32, lr=2e-3, optimizer="muon")

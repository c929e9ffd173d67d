"""The demonstration: two small networks on procedural shapes, pretrained or trained again."""

from dataclasses import dataclass, replace
from pathlib import Path

from visprism.analyses.predictions.calibration import calibration
from visprism.core.run import DEFAULT_RUN, Run
from visprism.images.batches import batches
from visprism.images.image_set import ImageSet
from visprism.images.open_data import load_data
from visprism.images.training_batches import memory_feed
from visprism.models.checkpoints import save_checkpoint
from visprism.models.loading import LoadedModel, load_model
from visprism.passes.predict import predict
from visprism.training.loop import fit
from visprism.training.recipe import RECIPES, Recipe

NETWORKS = {"resnet20": "demo_resnet", "vit_pico_patch4_32": "demo_vit"}  # -> its recipe
TEST_IMAGES = 2000  # for the accuracy
_BATCH = 500  # test images per forward pass


@dataclass(frozen=True)
class Trained:
    """A network, and how well it learned."""

    name: str
    network: LoadedModel
    images: int  # training images, each seen once per epoch
    before: float  # accuracy on test images before training
    after: float  # and after
    seconds: float  # of training


def trained_networks(folder: Path, *, run: Run = DEFAULT_RUN) -> list[Trained]:
    """Train each network on shapes and save ``folder/<network>.safetensors``."""
    folder.mkdir(parents=True, exist_ok=True)
    trained = []
    for name, recipe in NETWORKS.items():
        trained.append(_trained(name, replace(RECIPES[recipe](), seed=run.seed), run))
        save_checkpoint(trained[-1].network.model, folder / f"{name}.safetensors")
    return trained


def _trained(name: str, recipe: Recipe, run: Run) -> Trained:
    network = load_model(name, seed=recipe.seed)
    model, preprocessing = network.model, network.preprocessing
    test = list(batches(_shapes("test", TEST_IMAGES, recipe), preprocessing, _BATCH))
    train = memory_feed(
        _shapes("train", recipe.limit, recipe),
        preprocessing,
        recipe.batch_size,
        augmentation=recipe.augmentation,
        seed=recipe.seed,
    )
    before = calibration(predict(model, test)).of("accuracy")
    history = fit(model, train, recipe, test=test, run=run)
    return Trained(
        name=f"{name} (trained)",
        network=replace(network, trained=True),
        images=train.images,
        before=before,
        after=history.test_accuracy[-1].item(),
        seconds=history.seconds[-1].item(),
    )


def _shapes(split: str, limit: int | None, recipe: Recipe) -> ImageSet:
    return load_data("shapes", split=split, limit=limit, seed=recipe.seed)

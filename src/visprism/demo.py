"""The demonstration: two small networks, trained on shapes, then examined."""

from dataclasses import dataclass, replace
from pathlib import Path

from visprism.data import ImageSet, batches, load_data, memory_feed
from visprism.examine import Inquiry, Progress, examine
from visprism.measure.outputs import predict, uncertainty
from visprism.models import LoadedModel, load_model, save_checkpoint
from visprism.report import Examination
from visprism.training import RECIPES, Recipe, fit

NETWORKS = {"resnet20": "demo_resnet", "vit_pico_patch4_32": "demo_vit"}  # -> its recipe
TEST_IMAGES = 2000  # for the accuracy
EXAMINED_IMAGES = 512
_TOGETHER = 500  # test images that are classified at once
MINUTES = 0.8  # for all of each network that takes many passes, from Hessian to attacks


@dataclass(frozen=True)
class Learned:
    """A network, and what it learned."""

    network: LoadedModel
    images: int  # that it was trained on, each seen once an epoch
    before: float  # fraction of the test images that are right
    after: float
    seconds: float  # of training


def demo(
    folder: Path,
    *,
    progress: Progress,
    seed: int = 0,
    command: str = "",
) -> tuple[list[Learned], list[Examination]]:
    """Train each network on shapes, keep its weights in `folder`, and examine all of them.

    Args:
        folder: where ``checkpoints/<network>.safetensors`` goes.
        progress: shows how far it is.
        seed: of the weights, the images and their order.
        command: for the provenance.
    """
    (folder / "checkpoints").mkdir()
    learned = []
    for name, recipe in NETWORKS.items():
        learned.append(_trained(name, replace(RECIPES[recipe](), seed=seed), progress))
        save_checkpoint(
            learned[-1].network.model, folder / "checkpoints" / f"{name}.safetensors"
        )
    inquiry = Inquiry(
        data="shapes", limit=EXAMINED_IMAGES, minutes=MINUTES, seed=seed, command=command
    )
    networks = [each.network for each in learned]
    return learned, examine(networks, inquiry, progress=progress)


def _trained(name: str, recipe: Recipe, progress: Progress) -> Learned:
    network = load_model(name, seed=recipe.seed)
    model, preprocessing = network.model, network.preprocessing
    test = list(batches(_shapes("test", TEST_IMAGES, recipe), preprocessing, _TOGETHER))
    train = memory_feed(
        _shapes("train", recipe.images, recipe),
        preprocessing,
        recipe.batch_size,
        augmentation=recipe.augmentation,
        seed=recipe.seed,
    )
    before = uncertainty(predict(model, test), resamples=0).of("accuracy")
    history = fit(
        model,
        train,
        recipe,
        test=test,
        progress=lambda steps, _: progress(steps, label=f"training {name}"),
    )
    return Learned(
        network=replace(network, name=f"{name} (trained on shapes)", label=f"{name} (trained)"),
        images=train.images,
        before=before,
        after=history.test_accuracy[-1].item(),
        seconds=history.seconds[-1].item(),
    )


def _shapes(split: str, limit: int | None, recipe: Recipe) -> ImageSet:
    return load_data("shapes", split=split, limit=limit, seed=recipe.seed)

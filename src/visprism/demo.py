"""The demonstration: two small networks, trained on shapes, then examined."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import Tensor

from visprism.data import in_memory, load_data
from visprism.examine import Inquiry, Progress, examine
from visprism.models import LoadedModel, load_model, save_checkpoint
from visprism.preprocessing import Preprocessing
from visprism.report import Examination
from visprism.training import RECIPES, Normalize, Recipe, accuracy, fit

NETWORKS = {"resnet20": "demo_resnet", "vit_pico_patch4_32": "demo_vit"}  # -> its recipe
TEST_IMAGES = 2000  # for the accuracy
EXAMINED_IMAGES = 512
MINUTES = 0.5  # for the Hessian and the landscape of each network


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
    preprocessing = network.preprocessing
    test = _shapes("test", TEST_IMAGES, preprocessing, recipe.seed)
    train = _shapes("train", recipe.images, preprocessing, recipe.seed)
    scale = {"mean": preprocessing.mean, "std": preprocessing.std}
    before = accuracy(network.model, test, Normalize(**scale))
    history = fit(
        network.model,
        train,
        test,
        recipe,
        **scale,
        progress=partial(progress, label=f"training {name}"),
    )
    return Learned(
        network=replace(network, name=f"{name} (trained on shapes)", label=f"{name} (trained)"),
        images=len(train[1]),
        before=before,
        after=history.test_accuracy[-1].item(),
        seconds=history.seconds[-1].item(),
    )


def _shapes(
    split: str, limit: int, preprocessing: Preprocessing, seed: int
) -> tuple[Tensor, Tensor]:
    """Images as bytes and their classes."""
    return in_memory(load_data("shapes", split=split, limit=limit, seed=seed), preprocessing)

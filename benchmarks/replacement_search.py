"""AlterNet from a trained ResNet-20: blocks chosen by accuracy, and blocks of the fixed rule.

The search starts from the weights of `resnet20.cifar10` that ship with the package and trains
every candidate for a few epochs. Then the CNN, the network that the search chose and the
network of the fixed rule (every second block from the end of the network) are trained with
seeds that chose nothing. Where the search chose no block, its network is the CNN. An
interrupted run is resumed from OUT.

    python benchmarks/replacement_search.py --data parquet:DIR
    python benchmarks/replacement_search.py --data parquet:DIR --write   # and writes results/

Claim: none; these are the figures of docs/harmonize.md.
"""

import json
import os
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from harness import options
from scipy.stats import ttest_1samp

from visprism import RECIPES, Job, Recipe
from visprism.core.run import Run
from visprism.harmonize.blocks import conv_blocks, select_blocks
from visprism.harmonize.convert import MSAConfig, harmonize_model
from visprism.harmonize.search import RecipeTrainer, SearchLog, search_by_recipe
from visprism.training.recipe import as_yaml

RESULTS = Path(__file__).parent / "results" / "replacement_search.json"
MSA = MSAConfig(head_dim=16)  # ResNet-20 has 16, 32 and 64 channels


def paired_mean(differences: np.ndarray) -> dict[str, float]:
    """The mean over seeds with Student's 95% interval."""
    tested = ttest_1samp(differences, 0)
    low, high = tested.confidence_interval()
    return {"effect": differences.mean(), "low": low, "high": high, "p": tested.pvalue}


def main() -> None:
    parser = options(__doc__, RESULTS, epochs=5, repeats=3)
    parser.add_argument("--data", required=True, metavar="DATA")
    parser.add_argument("--out", type=Path, default=Path("runs/replacement_search"))
    parser.add_argument("--subset", type=float, default=0.2, help="of the training images")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    recipe = RECIPES["quick"]().replace(
        epochs=arguments.epochs,
        eval_every=arguments.epochs,
        snapshot_every=0,
        precision="bf16",
    )
    job = Job(
        "resnet20",
        arguments.data,
        arguments.out,
        pretrained=True,
        subset=arguments.subset,
        logs=(),
    )
    say = lambda text: print(text, flush=True)  # noqa: E731
    result, _ = search_by_recipe(
        job, recipe, msa=MSA, repeats=arguments.repeats, report=say, run=Run()
    )
    values = fresh_seeds(job, recipe, result.best, arguments.repeats)
    rows = [
        {
            "blocks": list(candidate.placement[0].split(",")) if candidate.msas[0] else [],
            "seeds": candidate.seed.tolist(),
            "validation accuracy": candidate.accuracy.tolist(),
            "selected": bool(candidate.selected[0]),
        }
        for candidate in result.candidates()
    ]
    content = {
        "created": datetime.now(UTC).date().isoformat(),
        "versions": {name: version(name) for name in ("visprism", "torch", "timm")},
        "python": platform.python_version(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "recipe": as_yaml(recipe),
        "subset": arguments.subset,
        "search": rows,
        "chosen": list(result.best),
        "fresh seeds": values,
        "differences": {
            name: paired_mean(
                np.subtract(row["validation accuracy"], values["CNN"]["validation accuracy"])
            )
            for name, row in values.items()
            if name != "CNN"
        },
    }
    print(json.dumps(content, indent=1))
    if arguments.write:
        RESULTS.write_text(json.dumps(content, indent=1) + "\n")


def fresh_seeds(
    job: Job, recipe: Recipe, chosen: tuple[str, ...], repeats: int
) -> dict[str, dict]:
    """Validation accuracies of each network with seeds that chose nothing."""
    trainer = RecipeTrainer(job, recipe)
    model, size = trainer.network.model, trainer.preprocessing.size
    images = torch.zeros(2, 3, *size)
    fixed = select_blocks(conv_blocks(model, images), "alternate")
    log = SearchLog(job.folder / "fresh_seeds.json", model, {"recipe": as_yaml(recipe)})
    values = {}
    networks = {"CNN": (), "search": chosen, "fixed rule": fixed}
    if not chosen:
        del networks["search"]  # it is the CNN
    for name, blocks in networks.items():
        accuracies = []
        seeds = range(recipe.seed + repeats, recipe.seed + 2 * repeats)
        for seed in seeds:
            accuracy = log.find(blocks, seed)
            if accuracy is None:
                candidate = harmonize_model(model, images, blocks, **asdict(MSA), seed=seed)
                accuracy = log.append(blocks, seed, trainer(candidate, seed))
                print(f"{name}, seed {seed}: {accuracy:.4f}", flush=True)
            accuracies.append(accuracy)
        values[name] = {
            "blocks": list(blocks),
            "seeds": list(seeds),
            "validation accuracy": accuracies,
        }
    return values


if __name__ == "__main__":
    main()

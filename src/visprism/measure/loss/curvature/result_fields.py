"""Fields that all results on an objective's second derivatives have in common."""

from typing import Any

from visprism.measure.loss.products import Products


def result_fields(products: Products) -> dict[str, Any]:
    """Size, loss and provenance of a result, after a first product."""
    objective = products.objective
    nll, examples = products.nll_and_examples
    return {
        "parameters": len(objective),
        "nll": nll,
        "l2": objective.l2(),
        "weight_decay": objective.weight_decay,
        "provenance": objective.run.measured(
            images=examples,
            batch_size=products.batch_size,
            image_shape=objective.image_shape,
        ),
    }

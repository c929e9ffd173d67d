"""The model of the live page: its blocks, its attentions, and images with predictions."""

from typing import Any

from visprism.anatomy import attentions
from visprism.app.live.panels import Values, indices_of, panel, picture, predictions
from visprism.app.live.pool import Specimen


@panel
def model(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Blocks, attentions, size and number of images."""
    anatomy = specimen.anatomy
    subject = specimen.subject
    targets = subject.images.targets
    return {
        "name": subject.name,
        "trained": subject.trained,
        "parameters": sum(p.numel() for p in anatomy.model.parameters()),
        "size": list(specimen.preprocessing.size),
        "classes": subject.num_classes,
        "images": len(subject.images),
        "labels": None if targets is None else _labels(specimen),
        "blocks": [
            {
                "name": block.name,
                "kind": block.kind,
                "stage": block.stage,
                "depth": round(block.depth, 4),
                "grid": None if block.layout is None else list(block.shape[-2:]),
                "ablatable": block.name in specimen.ablations,
            }
            for block in anatomy
        ],
        "attentions": [
            {"name": a.name, "heads": a.geometry.heads, "grid": list(a.geometry.keys.grid)}
            for a in (attentions(anatomy) if specimen.has_attention else ())
        ],
    }


def _labels(specimen: Specimen) -> list[str]:
    """The class of each image."""
    names = specimen.subject.images.class_names
    targets = specimen.subject.images.targets
    assert targets is not None
    return [names[k] if k < len(names) else f"class {k}" for k in targets.tolist()]


@panel
def images(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Images as the model sees them, with its predictions."""
    pixels = specimen.pixels(indices_of(values))
    logits = specimen.logits(specimen.normalized(pixels))
    return {
        "pictures": [picture(one) for one in pixels],
        "predictions": predictions(specimen, logits),
    }

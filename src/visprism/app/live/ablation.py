"""Live ablation: predictions and feature spectrum with some blocks replaced by the identity."""

from contextlib import nullcontext
from typing import Any

import torch

from visprism.analyses.features.fourier import Fourier
from visprism.anatomy import combine_ablations
from visprism.app.live.panels import Values, indices_of, panel, predictions, rounded
from visprism.app.live.pool import Specimen
from visprism.core.errors import InputError
from visprism.passes.features import observations


@panel
def ablation(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Predictions without the named blocks, and the spectrum of each block's feature map."""
    names = values.get("blocks", [])
    if not isinstance(names, list) or len(set(map(str, names))) != len(names):
        raise InputError(f"blocks must be a list of different names, got {names!r}")
    for name in names:
        if name not in specimen.ablations:
            raise InputError(
                f"blocks must be of {', '.join(specimen.ablations)}, which keep the shape of "
                f"their feature map, got {name!r}"
            )
    chosen = [specimen.ablations[name] for name in names]
    surgery = combine_ablations(chosen).surgery() if chosen else nullcontext()
    images = specimen.normalized(specimen.pixels(indices_of(values)))
    logits: list[torch.Tensor] = []

    def keep(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
        logits.append(output)

    with surgery:
        handle = specimen.anatomy.model.register_forward_hook(keep)
        try:
            ((spectrum, high, _),) = observations(specimen.anatomy, [images], [Fourier()])
        finally:
            handle.remove()
    last = spectrum.block.tolist()[-1]
    profile = spectrum.select(spectrum.block == last)
    return {
        "predictions": predictions(specimen, logits[0]),
        "spectrum": {
            "block": last,
            "frequency": rounded(profile.frequency),
            "relative": rounded(profile.relative),
        },
        "high": {
            "blocks": high.block.tolist(),
            "depth": rounded(high.depth),
            "relative": rounded(high.relative),
        },
    }

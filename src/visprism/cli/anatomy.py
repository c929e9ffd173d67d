"""``visprism anatomy``: the blocks of a model, as a table and a drawing."""

from argparse import ArgumentParser, Namespace

from visprism.cli.options import json_option, size_options, weights_options
from visprism.cli.output import columns, print_json
from visprism.cli.values import folder


def anatomy(arguments: Namespace) -> None:
    """Print a model's blocks; draw them if a folder is named."""
    import numpy as np
    import torch

    from visprism.analyses.subject import dissected_on
    from visprism.anatomy import costs
    from visprism.core.files import output_folder, slug
    from visprism.core.rng import stream
    from visprism.drawing.panel import panel
    from visprism.drawing.save import save_figure
    from visprism.models import load_model
    from visprism.report.tables import amount

    loaded = load_model(arguments.model, pretrained=arguments.pretrained, seed=arguments.seed)
    height, width = arguments.size or loaded.preprocessing.size
    noise = torch.randn(2, 3, height, width, generator=stream(arguments.seed, "noise"))
    blocks = dissected_on(loaded.model, noise, name=loaded.name)
    table = costs(blocks).with_provenance(model=loaded.name)
    outputs = (
        "x".join(str(int(n)) for n in row if n)
        for row in zip(table.channels, table.height, table.width, strict=True)
    )
    streams = table.columns()["stream"]
    several = bool(streams.any())
    rows = zip(
        table.block.tolist(),
        table.kind.tolist(),
        *([map(str, streams.tolist())] if several else []),
        map(str, table.stage.tolist()),
        outputs,
        map(amount, table.parameters.tolist()),
        map(amount, table.macs.tolist()),
        strict=True,
    )
    if arguments.json:
        by_block = {
            name: column
            for name, column in table.columns().items()
            if np.ndim(getattr(table, name)) or name == "stream"
        }
        print_json(
            {
                "model": loaded.name,
                "image": [height, width],
                "parameters": int(table.distinct_parameters),
                "macs": int(table.macs.sum()),
                "blocks": [
                    {key: values[i].item() for key, values in by_block.items()}
                    for i in range(len(table))
                ],
            }
        )
    else:
        print(loaded.name)
        head = ["block", "kind", *(["stream"] if several else []), "stage", "output"]
        print(columns([*head, "parameters", "MACs"], rows))
        print(
            f"{len(table)} blocks, {amount(table.distinct_parameters)} parameters, "
            f"{amount(table.macs.sum().item())} MACs per {height}x{width} image"
        )
    if arguments.out:
        with output_folder(arguments.out) as place:
            stem = f"{slug(loaded.label)}-anatomy"
            table.save(place / f"{stem}.npz")
            table.save_csv(place / f"{stem}.csv")
            save_figure(panel({loaded.label: table}), place / stem)


def add(to: ArgumentParser) -> None:
    """The arguments of ``anatomy``."""
    to.add_argument("model", metavar="MODEL", help="model, see below")
    to.add_argument(
        "--out",
        type=folder,
        metavar="DIR",
        help="folder for the table and a figure (default: print only)",
    )
    weights_options(to)
    size_options(to)
    json_option(to)
    to.set_defaults(run=anatomy)

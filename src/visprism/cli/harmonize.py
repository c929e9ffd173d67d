"""``visprism harmonize``: a CNN with self-attention instead of some of its Conv blocks."""

import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visprism.cli.arguments import DATA, MODEL, REQUIRED, Printing, argument
from visprism.cli.output import columns, print_json, records
from visprism.cli.train import Training
from visprism.core.errors import InputError
from visprism.core.interruption import on_interruption
from visprism.core.options import check_used
from visprism.core.request import Weights

if TYPE_CHECKING:
    from torch import nn

    from visprism.harmonize.convert import MSAConfig
    from visprism.harmonize.replacement_search import ReplacementSearch
    from visprism.models.loading import LoadedModel


@dataclass(frozen=True, kw_only=True)
class Harmonize(Printing, Weights, Training):
    """Replace convolutions of a CNN by self-attention."""

    group, epilog = "training", f"{MODEL}\n{DATA}"
    model: str = argument(
        REQUIRED, "convolutional network, see below", "MODEL", positional=True
    )
    out: Path = argument(REQUIRED, "output folder", "DIR")
    placement: str = argument(
        "alternate",
        "blocks to replace: alternate, end-of-stage, a number per stage such as 0,1,1,2, or "
        "names such as layer3.2,layer4.1",
        "RULE|COUNTS|NAMES",
    )
    heads: tuple[int, ...] | None = argument(
        None,
        "number of heads, of all MSA blocks or per stage (default: 3 x width of the spatial "
        "convolution / head dimension)",
        "N[,N...]",
        minimum=1,
    )
    head_dim: int = argument(64, "channels of each head", minimum=1)
    window: int | None = argument(
        None,
        "side of a window in positions of the feature map (default: the side of the last "
        "stage's feature map, at most 8)",
        minimum=1,
    )
    search: str | None = argument(
        None,
        "recipe by which candidates are trained to find the blocks; needs --data, takes "
        "--split, --epochs, --limit, --repeats, --set and --device (default: no search)",
        "RECIPE",
    )
    data: str | None = argument(None, "training data of a search", "DATA")
    repeats: int = argument(3, "number of seeds of each candidate of a search", minimum=1)
    alpha: float = argument(
        0.05, "significance level of the test of each candidate", above=0, maximum=0.5
    )

    def run(self) -> None:
        """Convert a CNN by a rule, or search for the blocks that attention should replace."""
        import torch

        from visprism.anatomy.trace.forward import errors_of_model
        from visprism.core.files import output_folder
        from visprism.core.processes import require_single_process
        from visprism.drawing.panel import panel
        from visprism.drawing.save import save_figure
        from visprism.harmonize.alternet import placement_of, save_alternet
        from visprism.harmonize.blocks import conv_blocks, select_blocks
        from visprism.harmonize.convert import MSAConfig
        from visprism.harmonize.convert import harmonize_model as convert

        require_single_process("visprism harmonize")
        if self.search is None:
            names = ("data", "split", "epochs", "limit", "repeats", "alpha", "set", "device")
            check_used(self, dict.fromkeys(names, "--search"))
        heads = self.heads[0] if self.heads and len(self.heads) == 1 else self.heads
        msa = MSAConfig(heads, self.head_dim, self.window)
        search = None
        if self.search is None:
            network, placement = self._network(), placement_of(self.placement.replace(",", "+"))
            if not placement:
                raise InputError(
                    "placement must be alternate, end-of-stage, numbers or names of blocks, "
                    f"got {self.placement!r}"
                )
        else:
            search, network = self._searched(msa)
            placement = search.best
        images = torch.zeros(2, 3, *network.preprocessing.size)
        with errors_of_model(network.model, images):
            blocks = conv_blocks(network.model, images)
        names = select_blocks(blocks, placement)
        alternet = convert(network.model, images, names, **asdict(msa), seed=self.seed)
        with output_folder(self.out) as folder:
            saved = save_alternet(
                alternet, network, folder, cnn=self.model, names=names, msa=msa
            )
            if search is not None:
                search.save(folder / "search.npz")
                save_figure(panel({network.label: search}), folder / "search")
        self._print(
            ["block", "stage", "output", "kind"],
            [
                (
                    b.name,
                    str(b.stage),
                    f"{b.out_chans}x{b.grid[0]}x{b.grid[1]}",
                    "MSA" if b.name in names else "Conv",
                )
                for b in blocks
            ],
            {
                "parameters_before": _parameters(network.model),
                "parameters_after": _parameters(alternet),
                "findings": [] if search is None else [str(f) for f in search.findings()],
                "out": str(self.out),
                # It was written to a temporary folder first.
                "model": saved.replace(str(folder), str(self.out)),
            },
        )

    def _print(self, header: list[str], rows: list[Any], values: dict[str, Any]) -> None:
        if self.json:
            print_json({"blocks": records(header, rows), **values})
            return
        print(columns(header, rows))
        before, after = values["parameters_before"], values["parameters_after"]
        print(f"{before:,} parameters before, {after:,} after")
        where = f"Wrote {values['out']}; load it as {shlex.quote(values['model'])}"
        print(*values["findings"], where, sep="\n")

    def _network(self) -> "LoadedModel":
        from visprism.models.loading import load_model

        loaded = load_model(self.model, pretrained=self.pretrained, seed=self.seed)
        if self.size is None:
            return loaded
        return replace(loaded, preprocessing=replace(loaded.preprocessing, size=self.size))

    def _searched(self, msa: "MSAConfig") -> "tuple[ReplacementSearch, LoadedModel]":
        from visprism.core.progress import console_progress
        from visprism.harmonize.search import search_by_recipe
        from visprism.training.job import Job

        if self.data is None:
            raise InputError("--search needs --data, on which candidates are trained")
        recipe = self.changed(str(self.search))
        names = ("model", "data", "split", "size")
        job = Job(
            folder=self.out,
            pretrained=self.pretrained is True,
            **{name: getattr(self, name) for name in names},
        )
        with on_interruption(self._remains), console_progress() as progress:
            return search_by_recipe(
                job,
                recipe,
                msa=msa,
                repeats=self.repeats,
                alpha=self.alpha,
                report=lambda text: print(text, file=sys.stderr, flush=True),
                run=replace(self.new_run(progress), seed=0),  # seeds are the recipe's
            )

    def _remains(self) -> str:
        from visprism.harmonize.search import LOG

        if not (self.out / LOG).exists():
            return "no training was complete"
        return f"{self.out / LOG} is kept; the same command resumes"


def _parameters(model: "nn.Module") -> int:
    return sum(parameter.numel() for parameter in model.parameters())

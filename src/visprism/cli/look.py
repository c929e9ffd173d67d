"""``visprism look``: one page on what models do with one image."""

from dataclasses import dataclass, fields
from pathlib import Path

from visprism.cli.arguments import DATA, MODEL, REQUIRED, WEIGHTS, Command, argument
from visprism.cli.study import Models
from visprism.core.request import Computation, Reading, Weights


@dataclass(frozen=True, kw_only=True)
class _Image(Command):
    """Which image."""

    data: str = argument(REQUIRED, "image, see below", "IMAGE", positional=True)


@dataclass(frozen=True, kw_only=True)
class Look(Reading, Computation, Weights, Models, _Image):
    """One page on what models do with one image, block by block."""

    group, heading = "studies", "look"
    epilog = f"IMAGE is a file, or DATA of which --images chooses\n\n{MODEL}\n{WEIGHTS}\n{DATA}"
    images: tuple[int, ...] = argument(
        (0,), "indices of images, where DATA has several", "I,J,...", minimum=0
    )
    target: str | None = argument(
        None, "true class, by its name or number (default: as DATA states)", "CLASS"
    )
    output: str | None = argument(
        None, "output with the logits, of models that return several tensors", "NAME"
    )
    channels: tuple[int, ...] = argument(
        (), "numbers of channels (default: the eight with the largest variance)", "C,D,..."
    )
    full: bool = argument(
        False,
        "also what takes longer than about 5 s on two cores, such as every step of the changes "
        "that may flip the class (default: what fits)",
    )
    study: Path | None = argument(
        None, "folder of a study, whose mean spectra are drawn (default: none)", "DIR"
    )
    out: Path | None = argument(
        None,
        "folder for the page, each picture as PNG and SVG, and tables (default: the page only, "
        "as look-IMAGE.html in the current folder)",
        "DIR",
    )

    def run(self) -> None:
        """Write the page and print its path."""
        from visprism.core.files import slug, write_text
        from visprism.core.progress import StatusLine, console_progress

        with console_progress(StatusLine(self.begin)) as progress:
            from visprism.analyses.features.feature_maps import NUM_CHANNELS
            from visprism.core.request import DataOptions
            from visprism.one_image.look import look
            from visprism.study.study import Study

            made = look(
                self.labeled(),
                self.data,
                images=self.images,
                target=self.target,
                channels=self.channels or NUM_CHANNELS,
                full=self.full,
                study=None if self.study is None else Study.load(self.study),
                options=DataOptions(**{f.name: getattr(self, f.name) for f in fields(Reading)}),
                pretrained=self.pretrained,
                output=self.output,
                run=self.new_run(progress),
            )
            page = Path(f"look-{slug(Path(self.data).stem)}.html")
            if self.out is not None:
                page = made.save(self.out)
            else:
                write_text(page, made.html())
        for models in made.images:
            for name, inside in models.items():
                said = [f"{inside.name_of(k)} {p:.0%}" for k, p in inside.best(1)]
                print(f"{name}: {', '.join(said) or 'no class scores'}")
        print(f"Page: {page}")

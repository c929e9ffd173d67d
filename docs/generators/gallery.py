"""The gallery of analyses, and what the declaration of an analysis adds to its page."""

import re
from pathlib import Path

import visprism as vp
from generators import run
from visprism.kit.analysis import GROUPS, Analysis

_NEEDS = {
    vp.Needs.FEATURES: "feature maps on a spatial grid",
    vp.Needs.ATTENTION: "attention weights that can be read",
    vp.Needs.TARGETS: "labels of the classes that the model predicts, and trained weights",
    vp.Needs.OUTCOMES: "targets of the model's task, and trained weights",
    vp.Needs.LABELS: "labels, and trained weights",
    vp.Needs.PIXELS: "the preprocessing of the model, since pixels are changed",
    vp.Needs.GRADIENTS: "a model that can be differentiated",
    vp.Needs.TRAINING_IMAGES: "training images, where the data has any",
    vp.Needs.TEXTURES: "images whose shape and texture are of different classes",
    vp.Needs.TWO_MODELS: "two models",
}
_SILENT = vp.Needs.OUTPUTS  # how passes are shared, not what a user must have

HEAD = """\
# Analyses

Each picture is drawn from a run on {images} images or fewer, when this site was built. Every
analysis is a class and, but for `training-curvature`, a command. Its page has the definition,
the options, how to read the figure, pitfalls, cost and source. In the code of these pages,
`model` is a classifier in evaluation mode, `images` a batch of its images, and `batches` a list
of images with targets.
"""


def pages(folder: Path) -> dict[str, str]:
    """The gallery: a card for each analysis, by group."""
    parts = [HEAD.format(images=run.main_study(folder / "run").positions.size)]
    pictures = {path.stem for path in (folder / "run").glob("*.png")}
    for group in GROUPS:
        cards = [_card(n, n in pictures) for n in vp.ANALYSES if vp.ANALYSES[n].group == group]
        cards = [card for card in cards if card]
        if cards:
            grid = "\n".join(["::::{grid} 1 2 3 3", ":gutter: 3", "", *cards, "::::"])
            parts.append(f"## {group.capitalize()}\n\n{grid}")
    stems = {path.stem for path in (folder.parent / "analyses").glob("*.md")}
    ordered = [name for name in vp.ANALYSES if name in stems]
    names = [f"../analyses/{name}" for name in [*ordered, *sorted(stems - set(ordered))]]
    parts.append("\n".join(["```{toctree}", ":hidden:", "", *names, "```"]))
    return {"gallery.md": "\n\n".join(parts) + "\n"}


def with_declaration(docname: str, text: str, source: Path) -> str:
    """The page of an analysis with a figure from a run and a table of its declaration."""
    folder, _, name = docname.rpartition("/")
    if folder != "analyses" or name not in vp.ANALYSES:
        return text
    title, _, rest = text.partition("\n\n")
    summary, _, rest = rest.partition("\n\n")
    return "\n\n".join([title, summary, _figure(name, source), _declared(name), rest])


def _figure(name: str, source: Path) -> str:
    example = run.examples(source / "generated" / "run").get(name)
    if example is None:
        return ""
    caption = f"{example.section.text} Measured when this site was built"
    caption += f" ({', '.join(example.results)}; {example.seconds:.1f} s)."
    head = f":::{{figure}} ../generated/run/{name}.png\n:alt: {example.section.title}"
    return f"{head}\n\n{caption}\n:::"


def _declared(name: str) -> str:
    analysis = vp.ANALYSES[name]
    rows = {
        "Class": f"{{py:obj}}`vp.{analysis.__name__} <visprism.{analysis.__name__}>`"
        if analysis.__name__ in visprism_analyses()
        else f"`vp.analyses.{analysis.__name__}`",
        "Command": f"`visprism {analysis.measured_by} --watch {name}`"
        if analysis.measured_by
        else f"[`visprism {name}`](../generated/commands/{name}.md)",
        "Needs": needs(analysis),
        "Images": _limits(analysis),
        "In a study": "by default" if analysis.default else "when it is named",
        "Claims": ", ".join(
            f"[{claim}](../findings.md#claims-c1-to-c16)" for claim in analysis.claims
        ),
        "Results": ", ".join(
            f"{{py:obj}}`{s.result.__name__} <visprism.results.{s.result.__name__}>`"
            for s in analysis.sections
        ),
        "Source": analysis.source,
    }
    lines = [f"| {key} | {value} |" for key, value in rows.items() if value]
    return "\n".join(["| Declaration | |", "|---|---|", *lines])


def visprism_analyses() -> set[str]:
    """Names of analyses that `visprism` itself has; `Anatomy` is another class there."""
    return {a.__name__ for a in vp.ANALYSES.values() if getattr(vp, a.__name__, None) is a}


def needs(analysis: type[Analysis]) -> str:
    """What an analysis needs in addition to a model and images, as a phrase."""
    flags = [flag for flag in vp.Needs if flag & analysis.needs and flag != _SILENT]
    return "; ".join(_NEEDS[flag] for flag in flags) or "nothing but a model and images"


def _limits(analysis: type[Analysis]) -> str:
    sizes = analysis.images
    least = f"at least {sizes.fewest}" if sizes.fewest > 1 else ""
    most = f"at most {sizes.quick:,} at quick effort" if sizes.quick else ""
    return ", ".join(part for part in (least, most) if part)


def _card(name: str, has_picture: bool) -> str:
    analysis = vp.ANALYSES[name]
    if not analysis.__module__.startswith("visprism."):
        return ""
    picture = [f":img-top: run/{name}-card.png"] if has_picture else []
    summary = re.sub(r"\.$", "", (analysis.__doc__ or "").strip().partition("\n")[0])
    return "\n".join(
        [
            f":::{{grid-item-card}} {name}",
            *picture,
            f":link: ../analyses/{name}",
            ":link-type: doc",
            ":class-card: analysis",
            "",
            summary,
            ":::",
            "",
        ]
    )

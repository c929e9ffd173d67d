"""Internal names that tests use beside public ones, from the module that defines them."""

import re
from collections import defaultdict
from functools import cache
from importlib import import_module
from pathlib import Path

import visprism

MODULES = {  # of names that several modules define
    "CLEAN": "analyses.predictions.corruptions",
    "DASH": "report.rows",
    "Form": "app.forms",
    "GROUPS": "analyses.base",
    "RANDOM": "analyses.features.attribution",
    "SIMILARITY": "drawing.style",
    "VARIANCE": "table.kinds",
    "caption": "drawing.text",
    "content_of": "study.report_content",
    "difference": "estimates.answers",
    "gaussian": "loss.directions",
    "images_of": "analyses.subjects",
    "in_order": "passes.batches",
    "number_of_images": "study.plan",
    "picture_columns": "analyses.pictures",
    "stacked": "estimates.estimated",
    "stages": "analyses.anatomy",
}
DEFINED = re.compile(
    r"^(?:class|def) (\w+)|^(\w+(?:, \w+)*)(?:: [^=\n]+)? = ", flags=re.MULTILINE
)


@cache
def modules():
    """The modules that define a name at their top level, by name."""
    by_name, root = defaultdict(list), Path(visprism.__file__).parent
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        for one, several in DEFINED.findall(path.read_text("utf-8")):
            for name in (one or several).split(", "):
                by_name[name].append(".".join(part for part in parts if part != "__init__"))
    return by_name


def __getattr__(name):
    places = [MODULES[name]] if name in MODULES else modules().get(name, [])
    if len(places) != 1:
        raise AttributeError(f"{name} is defined in {' and '.join(places) or 'no module'}")
    return getattr(import_module(f"visprism.{places[0]}"), name)

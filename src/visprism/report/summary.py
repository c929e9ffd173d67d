"""What a page says about models in few words: what they are made of, and the verdicts."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby

from visprism.anatomy.blocks.cost import Costs
from visprism.core.provenance import Provenance
from visprism.measure.features.per_block import PerBlock
from visprism.report.examination import Examination, Finding
from visprism.report.tables import MINUS, amount


def summary(examinations: Sequence[Examination]) -> dict[str, list[str]]:
    """What the models are made of, side by side: a fact -> its value for each model."""
    costs = [each.costs for each in examinations]
    return {
        "Input": ["x".join(map(str, c.provenance.image_shape)) for c in costs],
        "Parameters": [amount(c.distinct_parameters) for c in costs],
        "MACs per image": [amount(c.macs.sum()) for c in costs],
        "Blocks": [str(len(c)) for c in costs],
        "By kind": [
            ", ".join(f"{n} {kind}" for kind, n in Counter(c.kind.tolist()).items())
            for c in costs
        ],
        "Grids": [" → ".join(grids(c)) for c in costs],
        "Not on a grid": [", ".join(unobserved(each)) or "none" for each in examinations],
    }


def grids(costs: Costs) -> list[str]:
    """The grids that the blocks lie on, in forward order: 56x56, 28x28, ..."""
    shapes = [shape.split("x") for shape in costs.shape.tolist()]
    return [grid for grid, _ in groupby("x".join(s[1:]) for s in shapes if len(s) == 3)]


def unobserved(examination: Examination) -> list[str]:
    """Blocks that no result has a row for, because their output does not lie on a grid."""
    seen = [set(r.block.tolist()) for r in examination.results if isinstance(r, PerBlock)]
    return [b for b in examination.costs.block.tolist() if seen and b not in set.union(*seen)]


def verdicts(findings: Sequence[Finding]) -> list[str]:
    """What was found, in sentences with their numbers."""
    sentences = [sentence for finding in findings for sentence in finding.sentences()]
    return [f"{typeset(sentence[:1].upper() + sentence[1:])}." for sentence in sentences]


def typeset(sentence: str) -> str:
    """The sentence with minus signs before numbers, and per cent signs that keep to them."""
    return re.sub(r"(?<!\w)-(?=\d)", MINUS, sentence).replace(" %", "\N{NO-BREAK SPACE}%")


def provenance(sources: Sequence[Provenance]) -> dict[str, list[str]]:
    """Every fact about where results come from -> its value for each."""
    facts = [asdict(source) for source in sources]
    return {name.replace("_", " "): [_fact(each[name]) for each in facts] for name in facts[0]}


def _fact(value: str | int | tuple[int, ...]) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)

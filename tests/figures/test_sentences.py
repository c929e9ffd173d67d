"""Laws of sentences: intervals name their units, and maxima that they are selected."""

import re
from dataclasses import replace

import pytest
import torch

from visprism import Predictions, Provenance, calibration, temperature

NUMBER = r"[-+]?[\d.,]*\d%?(?:e[-+]?\d+)?"
INTERVAL = re.compile(rf"\[{NUMBER}, {NUMBER}\]")
UNITS = re.compile(
    r"\b[\d,]+ (?:test |training |trained |new |random |start |direction |groups of )?"
    r"(?:images|mini-batches|seeds|vectors|directions|pairs|batches|decisions)\b|"
    r"images of both data sets \(at least [\d,]+ of each\)"
)
EXTREME = re.compile(r"\b(?:largest|smallest|highest|lowest)\b")
# Extremes that are no selection: quantities of every block, head or matrix.
DEFINED = re.compile(
    r"relative to the lowest frequency|RMS of the highest over the lowest band|"
    r"largest in magnitude|smallest eigenvalue at most|largest Hessian eigenvalue|"
    r"largest attention weight of a head|"
    r"at the lowest and .* at the highest frequency|at the highest frequency in both directions"
)
SELECTED = re.compile(r"\bof (?:\d+|them|the leading)\b|selected on the test images")

PROVENANCE = Provenance(model="hand:net", images=60, split="test")


def predictions(seed: int) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(60, 4, generator=generator)
    targets = torch.multinomial((logits / 2).softmax(1), 1, generator=generator)[:, 0]
    return Predictions(logits, targets, PROVENANCE)


@pytest.fixture
def sentences(made):
    """The findings of every type of result, by its name."""
    drawn = predictions(0)
    results = [*made.values(), calibration(drawn), temperature(drawn)[0]]
    with_split = [
        replace(result, provenance=replace(result.provenance, split="test"))
        for result in results
    ]
    return {
        type(result).__name__: [finding.text for finding in result.findings()]
        for result in with_split
    }


def test_findings_with_intervals_say_once_what_they_are_over(sentences):
    printed = [" ".join(texts) for texts in sentences.values()]
    with_intervals = [text for text in printed if INTERVAL.search(text)]
    assert len(with_intervals) > 15
    assert [text for text in with_intervals if not UNITS.search(text)] == []


def test_every_selected_extreme_says_of_how_many_it_was_selected(sentences):
    texts = [DEFINED.sub("", text) for texts in sentences.values() for text in texts]
    selected = [text for text in texts if EXTREME.search(text)]
    assert len(selected) > 5
    assert [text for text in selected if not SELECTED.search(text)] == []


def test_numbers_of_images_stand_with_their_split(sentences):
    images = re.compile(r"\b[\d,]+ (\w+ )?images\b")
    without = [
        text
        for texts in sentences.values()
        for text in texts
        if (match := images.search(text))
        and match[1] is None
        and not re.search(
            "NLL of test images|with conflicting cues|fewer than [0-9]+ images", text
        )
    ]
    assert without == []

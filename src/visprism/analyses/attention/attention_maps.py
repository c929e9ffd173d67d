"""Attention maps and rollouts of one image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.features.attention_maps import attention_maps
from visprism.measure.features.attention_rollout import rollouts
from visprism.results.attention import AttentionMaps as AttentionMapsResult
from visprism.results.attention import Rollout
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class AttentionMaps(Analysis):
    """Attention weights of one query of the first image, by attention and head."""

    name = "attention-maps"
    group = "attention"
    needs = Needs.ATTENTION | Needs.GRADIENTS
    max_images = 1
    share = 0.0
    default = False
    source = "Abnar & Zuidema (2020); Chefer et al. (2021)"
    sections = (
        Section(
            AttentionMapsResult,
            "Attention maps",
            "Each picture is an attention layer: the weights of the query on the token grid, "
            "mean over heads, from 0 to the largest of the picture. The mean over queries "
            "shows how much each place is attended to.",
            table=False,
        ),
        Section(
            Rollout,
            "Attention rollout",
            "Attention rollout: the product of the attention weights of all layers, which "
            "shows how much each position contributes to the tokens that the head reads. It is "
            "undefined for models whose number of tokens changes between layers.",
            table=False,
        ),
    )

    query: Literal["mean", "class"] = option(
        "mean",
        "query of the maps: mean over all queries, or the class token that the head reads",
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Measure one model; see `Analysis.measure`."""
        image = subject.batches(1)[0][0]
        maps = attention_maps(subject.anatomy, image, query=self.query, run=run)
        return maps, *rollouts(subject.anatomy, image, run=run)

    def cost(self, subject: Subject) -> Cost:
        """Two forward passes for the maps, four and a backward pass for two rollouts."""
        return Cost(per_image=0.0, fixed=8.0)

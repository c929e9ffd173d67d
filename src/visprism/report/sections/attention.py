"""What a page says about `AttentionStatistics`."""

from visprism.measure.features import AttentionStatistics
from visprism.report.section import Section

ATTENTION = Section(
    result=AttentionStatistics,
    stem="attention",
    title="Attention",
    shows=(
        "Each point is a head: how far away it looks on average, and how widely it spreads its "
        "weight. Mutual information near 0 means that all positions attend to the same places, "
        "a cosine near 1 that the heads of a block do the same."
    ),
    columns={
        "block": "Block",
        "depth": "Depth",
        "head": "Head",
        "distance": "Distance (pixels)",
        "distance_error": "Standard error",
        "entropy": "Entropy (nats)",
        "entropy_error": "Standard error",
        "nmi": "Mutual information",
        "nmi_error": "Standard error",
        "prefix_share": "RankSlice off the grid",
        "redundancy": "Cosine with other heads",
    },
    figures={
        "": {},
        "-nmi": {"quantity": "nmi"},
        "-entropy": {"quantity": "entropy"},
        "-redundancy": {"quantity": "redundancy"},
    },
)

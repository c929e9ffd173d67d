"""Attention of single images: maps of a query, and rollouts."""

from visprism.measure.attention.maps import AttentionMaps, Query, attention_maps
from visprism.measure.attention.rollout import Rollout, rollout

__all__ = ["AttentionMaps", "Query", "Rollout", "attention_maps", "rollout"]

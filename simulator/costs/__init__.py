"""Costs: from a Program, a Cluster and a Profile to seconds and demands on links."""

from .costs import PROVENANCE, Costs, by_kind

__all__ = ["PROVENANCE", "Costs", "by_kind"]

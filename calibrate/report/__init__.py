"""One page about a Profile, from its file alone or with samples beside it."""

from .page import sections, write_report

__all__ = ["sections", "write_report"]

"""Timelines: what happened when, the questions asked of it, and the files that other tools open."""

from .timeline import Timeline

__all__ = ["Timeline"]

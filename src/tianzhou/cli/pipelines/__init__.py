"""`pipeline`: commands for the ready pipelines in `tianzhou.pipelines`."""

from __future__ import annotations

from tianzhou.cli.pipelines import archive_replay, collecting, databases, dead_letters, metrics
from tianzhou.cli.pipelines.command import app

__all__ = ["app", "archive_replay", "collecting", "databases", "dead_letters", "metrics"]

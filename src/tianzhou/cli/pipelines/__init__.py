"""`pipeline`: ready pipelines over topics; their own files are in `tianzhou.pipelines`."""

from __future__ import annotations

from tianzhou.cli.pipelines import collecting, databases, figures, letters, moving
from tianzhou.cli.pipelines.command import app

__all__ = ["app", "collecting", "databases", "figures", "letters", "moving"]

"""What the tests of connections share can be imported by its name."""

from __future__ import annotations

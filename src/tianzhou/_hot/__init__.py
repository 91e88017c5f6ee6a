"""The few functions that carry the cost, and the one place that says which implementation runs.

Today there is one, in Python over msgspec and struct (`MODE` is "pure"); a compiled twin would be chosen here.
"""

from __future__ import annotations

from typing import Final

from tianzhou._hot.frames import pull_reply as pull_reply
from tianzhou._hot.frames import send_reply as send_reply

MODE: Final = "pure"
"""Which implementation is active; shown when a server starts."""

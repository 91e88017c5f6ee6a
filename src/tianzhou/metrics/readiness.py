"""Readiness of a server: whether it should be sent clients. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a server should be sent clients.

    Attributes:
        reasons: why it is not ready; empty when it is.
        facts: what else operators look for.
    """

    reasons: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether there is no reason against it."""
        return not self.reasons

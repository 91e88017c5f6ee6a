"""Readiness of a server for clients. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Readiness:
    """Readiness of a server for clients.

    Attributes:
        reasons: why it is not ready; empty when it is.
        facts: further facts for operators.
    """

    reasons: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether no reason speaks against it."""
        return not self.reasons

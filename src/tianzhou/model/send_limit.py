"""Limits of sends, in messages and bytes a second, that a broker enforces (docs/adr/0031)."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final

from tianzhou.errors import ConfigError
from tianzhou.model import names
from tianzhou.model.name_rules import group_name_problem, topic_name_problem

DEFAULT: Final = "*"
"""Name of the limit of each topic, group or client that has no limit by name; each has tokens of its own."""
MAX_RATE: Final = 1e12
"""Maximum rate and burst of a limit, in messages or bytes."""
_LONGEST_CLIENT: Final = 1_024


class LimitScope(enum.StrEnum):
    """Kind of names whose sends a limit counts."""

    TOPIC = "topic"
    GROUP = "group"
    """A producer group."""
    CLIENT = "client"
    """An IP address, or an account of access control."""


class LimitProblem(ConfigError):
    """A value that a limit cannot have.

    Args:
        text: the value, what is wrong, and the remedy.
        field: attribute of `SendLimit` that has the value.
    """

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


@dataclass(frozen=True, slots=True)
class SendLimit:
    """A limit of sends to one broker.

    Attributes:
        scope: kind of names whose sends it counts.
        name: a topic, a producer group, an address or account; `*` for all that have no limit by name.
        rate: messages a second; 0 for any number.
        burst: maximum number of messages at once, after a time without sends.
        rate_bytes: bytes of bodies a second, as they are sent; 0 for any number.
        burst_bytes: maximum number of bytes at once.

    Raises:
        LimitProblem: a value is out of its range, or the name cannot be one.
    """

    scope: LimitScope
    name: str
    rate: float = 0
    burst: float = 0
    rate_bytes: float = 0
    burst_bytes: float = 0

    def __post_init__(self) -> None:
        if self.scope is LimitScope.CLIENT:
            object.__setattr__(self, "name", client_name(self.name))
        if problem := _name_problem(self.scope, self.name):
            raise LimitProblem(f"limit of {self.scope} {self.name!r}: {problem}", "name")
        for what, rate, burst, field in (
            ("rate", self.rate, self.burst, "rate"), ("bytes", self.rate_bytes, self.burst_bytes, "rate_bytes"),
        ):  # fmt: skip
            of_burst = field.replace("rate", "burst")
            _check(f"limit of {self}: {what}={rate:g}", rate, 0, field)
            _check(f"limit of {self}: burst of {what}={burst:g}", burst, 1 if rate else 0, of_burst)
            if burst and not rate:
                raise LimitProblem(f"limit of {self}: a burst needs a rate; give the rate of {what} as well", of_burst)
        if not self.rate and not self.rate_bytes:
            raise LimitProblem(
                f"limit of {self}: names neither messages nor bytes a second; delete it to have no limit", "rate"
            )

    def __str__(self) -> str:
        return f"{self.scope} {self.name}"

    @property
    def key(self) -> str:
        """Scope and name as one text: `topic:orders`."""
        return f"{self.scope}:{self.name}"

    @property
    def text(self) -> str:
        """The rates as text for people: `500 messages/s (burst 1000)`."""
        parts = []
        if self.rate:
            parts.append(f"{self.rate:.12g} messages/s (burst {self.burst:.12g})")
        if self.rate_bytes:
            parts.append(f"{self.rate_bytes:.12g} bytes/s (burst {self.burst_bytes:.12g})")
        return " and ".join(parts)

    def to_json(self) -> dict[str, float]:
        """Return the rates as JSON values."""
        values = {
            "rate": self.rate, "burst": self.burst, "rateBytes": self.rate_bytes, "burstBytes": self.burst_bytes,
        }  # fmt: skip
        return {name: int(value) if value == int(value) else value for name, value in values.items()}


def limit_of(
    scope: LimitScope,
    name: str,
    rate: float | None = None,
    burst: float | None = None,
    rate_bytes: float | None = None,
    burst_bytes: float | None = None,
) -> SendLimit:
    """Return a limit with default bursts: the messages or bytes of one second, and at least 1.

    Args:
        scope: kind of names whose sends it counts.
        name: of the topic, group or client; `*` for all others.
        rate: messages a second; None for any number.
        burst: maximum number of messages at once.
        rate_bytes: bytes a second; None for any number.
        burst_bytes: maximum number of bytes at once.

    Raises:
        LimitProblem: a value is out of its range, or the name cannot be one.
    """
    for what, value, field in (("--rate", rate, "rate"), ("--bytes", rate_bytes, "rate_bytes")):
        if value is not None and not value > 0:
            raise LimitProblem(f"{what} {value:g}: expected a number above 0; delete the limit to have none", field)
    return SendLimit(scope, name, rate or 0, _burst(rate, burst), rate_bytes or 0, _burst(rate_bytes, burst_bytes))


def decode_limit(key: str, value: Mapping[str, Any]) -> SendLimit:
    """Return the limit of a key and its JSON value.

    Args:
        key: `SendLimit.key`.
        value: `SendLimit.to_json`.

    Raises:
        ConfigError: key or value do not form a limit.
    """
    scope, name = split_key(key)
    try:
        numbers = [float(value.get(one, 0)) for one in ("rate", "burst", "rateBytes", "burstBytes")]
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"limit of {scope} {name}: a rate or burst is no number: {error}") from None
    return SendLimit(scope, name, *numbers)


def split_key(key: str) -> tuple[LimitScope, str]:
    """Return scope and name of a `SendLimit.key`.

    Raises:
        ConfigError: the text is no such key.
    """
    scope, _, name = key.partition(":")
    try:
        return LimitScope(scope), name
    except ValueError:
        raise ConfigError(f"limit {key!r}: expected topic:NAME, group:NAME or client:NAME") from None


def client_name(name: str) -> str:
    """Return the compressed form of an IP address, `::1` for `0:0:0:0:0:0:0:1`; return other names unchanged."""
    try:
        return ip_address(name).compressed
    except ValueError:
        return name


@lru_cache(4_096)
def counted_address(address: str) -> str:
    """Return the name by which `*` counts an address: for IPv6 its /64, because a machine has many addresses."""
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    return str(ip_network((ip, 64), strict=False)) if isinstance(ip, IPv6Address) else address


def is_unlimited(topic: str) -> bool:
    """Whether sends to a topic have no limit: retries and dead letters of consumers."""
    return topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))


def _name_problem(scope: LimitScope, name: str) -> str | None:
    if name == DEFAULT:
        return None
    if scope is LimitScope.TOPIC:
        if is_unlimited(name):
            return "retries and dead letters of consumers are not limited; name the topic that they came from"
        return topic_name_problem(name)
    if scope is LimitScope.GROUP:
        return group_name_problem(name)
    if not name or len(name) > _LONGEST_CLIENT or not name.isprintable() or " " in name:
        return "expected an IP address or the name of an account"
    return None


def _burst(rate: float | None, burst: float | None) -> float:
    if burst is not None:
        return burst
    return float(max(1, math.ceil(rate))) if rate and math.isfinite(rate) else 0


def _check(what: str, value: float, least: float, field: str) -> None:
    if not (math.isfinite(value) and least <= value <= MAX_RATE):
        raise LimitProblem(f"{what}: expected {least:g} to {MAX_RATE:g}", field)

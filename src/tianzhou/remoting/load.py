"""Metric families of the memory that peers use in a server, and of its refusals and failures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tianzhou.limits import Refusals
from tianzhou.metrics.families import Family, Kind, Steps, counters, gauges
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.troubles import Troubles


def server_steps(groups: Iterable[tuple[int, ConnectionGroup[Any]]], refusals: Refusals, troubles: Troubles) -> Steps:
    """Yield the metric families of a server.

    Args:
        groups: connections of its ports, by port.
        refusals: refusal counts by limit.
        troubles: tasks that fail now, and failures by task.
    """
    connections = Family("tianzhou_connections", Kind.GAUGE, "Connections of a port.", ("port",))
    held = {"requests": 0, "replies": 0, "half_received": 0}
    for port, group in groups:
        connections.add(len(group.connections), str(port))
        held["requests"] += group.requests.used
        held["replies"] += group.unread.used
        held["half_received"] += group.budget.used
    yield connections
    yield gauges("tianzhou_held_bytes", "Bytes in memory because of peers.", "what", held)
    yield counters("tianzhou_refused_total", "What was refused, by limit.", "limit", dict(refusals.counts))
    yield counters("tianzhou_task_failures_total", "Failures of tasks.", "task", dict(troubles.totals))
    present = {one.name: one.count for one in troubles.present()}
    yield gauges("tianzhou_task_failing", "Failures in a row of tasks that fail now.", "task", present)

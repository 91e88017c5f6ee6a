"""Reports of a run: a document for programs, rows for users, ratios to an earlier run. Pure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tianzhou.bench.series import PERCENTILES, Second
from tianzhou.errors import ConfigError

ROLES = {"send": "sent", "receive": "received"}
LATENCIES = ("mean", *PERCENTILES, "max")
SHOWN = (*PERCENTILES, "max")
COLUMNS = (
    "",
    "messages",
    "errors",
    "messages/s",
    "MiB/s",
    *(f"{name} ms" for name in SHOWN),
    "client CPU us",
)
"""Columns of the table for users. The last is the load processes' processor time per message."""
CSV_COLUMNS = ("role", "second", "warm_up", "messages", "bytes", "errors", *(f"{name}_ms" for name in LATENCIES))
BUSY = 0.95
"""Busy time above which a load process was itself the limit, as a part of the time."""
STARVED = 0.2
"""Waiting time for a processor above which the machine was the limit and not the cluster, as a part of the time."""
_COMPARED = ("messages_per_second", "mib_per_second", "client_cpu_us_per_message")


def table(document: Mapping[str, Any]) -> list[list[str]]:
    """Return a row of figures for each role, under `COLUMNS`."""
    rows = []
    for role, named in ROLES.items():
        figures = document.get(role)
        if figures is None:
            continue
        latency = figures["latency_ms"] or {}
        rows.append(
            [
                named,
                str(figures["messages"]),
                str(figures["errors"]),
                f"{figures['messages_per_second']:.0f}",
                _number(figures["mib_per_second"], 2),
                *(_number(latency.get(name), 3) for name in SHOWN),
                _number(figures["client_cpu_us_per_message"], 2),
            ]
        )
    return rows


def limits(processes: Sequence[Mapping[str, Any]], processors: int) -> list[str]:
    """Return why the load processes, or the machine, may have been the limit and not the cluster; one text per role.

    Args:
        processes: for each its role, and the parts of the time in which it used a processor (`cpu`) and waited for a
            busy one (`waited`).
        processors: number of processors of the machine.
    """
    texts = []
    for role, named in (("send", "sends"), ("receive", "receives")):
        used = [one for one in processes if one["role"] == role]
        if not used:
            continue
        worst = max(used, key=lambda one: float(one["cpu"]) + float(one["waited"]))
        cpu, waited = float(worst["cpu"]), float(worst["waited"])
        if cpu + waited >= BUSY and waited < STARVED:
            more = f"try --processes {2 * len(used)}"
            if len(used) >= processors:
                more = "this machine has no more processors: run the load on another one"
            texts.append(
                f"the load process that {named} was the limit: it was busy for {cpu + waited:.0%} of the time, so the "
                f"cluster may do more; {more}"
            )
        elif waited >= STARVED:
            texts.append(
                f"the machine was the limit: the load process that {named} waited for a processor for {waited:.0%} of "
                "the time; run the load on another machine, or when less else runs on this one"
            )
    return texts


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def compare(document: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a run divided by those of an earlier run, by role; None if one of them has no figure."""
    ratios: dict[str, Any] = {}
    for role in ROLES:
        now, then = document.get(role), earlier.get(role)
        if now is None or then is None:
            continue
        ratios[role] = {name: _ratio(now.get(name), then.get(name)) for name in _COMPARED}
        now_ms, then_ms = now.get("latency_ms") or {}, then.get("latency_ms") or {}
        ratios[role]["latency_ms"] = {name: _ratio(now_ms.get(name), then_ms.get(name)) for name in LATENCIES}
    return ratios


def _ratio(now: float | None, then: float | None) -> float | None:
    return round(now / then, 3) if now is not None and then else None


def ratio_rows(ratios: Mapping[str, Any]) -> list[list[str]]:
    """Return the ratios under `COLUMNS`."""
    return [
        [
            ROLES[role],
            "-",
            "-",
            _number(found["messages_per_second"], 2),
            _number(found["mib_per_second"], 2),
            *(_number(found["latency_ms"][name], 2) for name in SHOWN),
            _number(found["client_cpu_us_per_message"], 2),
        ]
        for role, found in ratios.items()
    ]


def read_earlier(text: str, source: str) -> dict[str, Any]:
    """Parse the document of an earlier run.

    Args:
        text: content of the file.
        source: name of the file, for messages.

    Raises:
        ConfigError: the text is not such a document.
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    figures = [found[role] for role in ROLES if role in found] if isinstance(found, dict) else []
    if not figures or not all(isinstance(one, dict) and "messages_per_second" in one for one in figures):
        raise ConfigError(
            f"--compare {source}: is no result of an earlier run; keep one with: tianzhou bench … -o json > {source}"
        )
    assert isinstance(found, dict)
    return found


def differing(document: Mapping[str, Any], earlier: Mapping[str, Any]) -> list[str]:
    """Return the settings in which two runs differ, as `name then -> now`."""
    now, then = document.get("given") or {}, earlier.get("given") or {}
    names = [name for name in now if name in then and now[name] != then[name]]
    found = [f"{name} {then[name]} -> {now[name]}" for name in names]
    if document.get("command") != earlier.get("command"):
        found.insert(0, f"command {earlier.get('command')} -> {document.get('command')}")
    return found


def csv_text(seconds: Mapping[str, Sequence[Second]]) -> str:
    """Return the seconds of each role as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for role, rows in seconds.items():
        for one in rows:
            latency = one.latency_ms or {}
            writer.writerow(
                [role, one.second, str(one.warm_up).lower(), one.messages, one.size, one.errors]
                + [latency.get(name, "") for name in LATENCIES]
            )
    return out.getvalue()


def progress_line(number: int, found: Iterable[tuple[str, Second | None]]) -> str:
    """Return one second as text for users.

    Args:
        number: the second, from 0.
        found: each role and its counts in that second.
    """
    parts, warm_up = [], False
    for role, second in found:
        if second is None:
            parts.append(f"{ROLES[role]} 0/s")
            continue
        warm_up = warm_up or second.warm_up
        latency = second.latency_ms
        timed = f", p50 {latency['p50']:.2f} ms, p99 {latency['p99']:.2f} ms" if latency else ""
        failed = f", {second.errors} failed" if second.errors else ""
        parts.append(f"{ROLES[role]} {second.messages}/s{timed}{failed}")
    return f"{number + 1:>4} s  " + "; ".join(parts) + ("  (warm-up)" if warm_up else "")

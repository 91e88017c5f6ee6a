"""`plan brokers`: the number of brokers that a load needs, and the resources of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tianzhou.bench.capacity import GIB, MB, Figures, Load, Mode
from tianzhou.bench.capacity import plan as figures_of
from tianzhou.cli.output import Output, OutputOption, print_json, print_note, print_rows
from tianzhou.errors import ConfigError


def brokers(
    rate: Annotated[float, typer.Option(metavar="N", help="Messages a second at the peak.")],
    size: Annotated[int, typer.Option(metavar="BYTES", help="Average body.")] = 1024,
    average_rate: Annotated[
        float, typer.Option(metavar="N", help="Messages a second over the whole retention; default: the peak.")
    ] = 0,
    retention: Annotated[float, typer.Option(metavar="HOURS", help="For how long messages stay.")] = 72,
    copies: Annotated[int, typer.Option(metavar="N", help="Brokers that have each message.")] = 3,
    mode: Annotated[Mode, typer.Option(help="What acknowledgements wait for.")] = Mode.GROUP,
    node_rate: Annotated[
        float,
        typer.Option(metavar="N", help="Messages of that size a second that one broker takes, as bench produce says."),
    ] = 0,
    measured: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The same from a run: tianzhou bench produce -o json > FILE"),
    ] = None,
    headroom: Annotated[float, typer.Option(metavar="PERCENT", help="What is left free of a broker's rate.")] = 40,
    disk_mb: Annotated[
        float, typer.Option(metavar="MB", help="MB a second that a broker's disk takes; 0: does not count.")
    ] = 0,
    network_mb: Annotated[
        float, typer.Option(metavar="MB", help="MB a second of a broker's network, each way; 0: does not count.")
    ] = 0,
    groups: Annotated[int, typer.Option(metavar="N", help="Consumer groups that read every message.")] = 1,
    queues: Annotated[int, typer.Option(metavar="N", help="Queues of all topics on a broker.")] = 64,
    keys: Annotated[int, typer.Option(metavar="N", help="Keys of a message, its unique key included.")] = 1,
    hot_minutes: Annotated[
        float, typer.Option(metavar="MIN", help="Readers so far behind are to be served from memory.")
    ] = 10,
    output: OutputOption = Output.text,
) -> None:
    """Show how many brokers a load needs, and how much disk, network and memory each of them.

    Nothing is asked and nothing measured; docs/howto/planning.md has the arithmetic.

    Example: tianzhou plan brokers --rate 100000 --size 1024 --retention 72 --copies 3
    """
    if measured is not None:
        if node_rate:
            raise ConfigError("--node-rate and --measured exclude each other; give one")
        node_rate = measured_rate(measured)
    load = Load(
        rate=rate,
        size_bytes=size,
        average_rate=average_rate,
        retention_hours=retention,
        copies=copies,
        mode=mode,
        node_rate=node_rate,
        disk_mb_s=disk_mb,
        network_mb_s=network_mb,
        headroom=headroom / 100,
        groups=groups,
        queues=queues,
        keys=keys,
        hot_minutes=hot_minutes,
    )
    figures = figures_of(load)
    if output is Output.json:
        print_json(figures.document())
        return
    print_rows(("figure", "value", "why"), rows(load, figures), output)
    for text in figures.warnings:
        print_note(f"note: {text}")


def measured_rate(path: Path) -> float:
    """Return the messages per second of a run of `tianzhou bench produce -o json`.

    Args:
        path: file with the output of the run.

    Raises:
        ConfigError: the file cannot be read, or is not the output of such a run.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rate = float(found["send"]["messages_per_second"])
    except OSError as error:
        raise ConfigError(f"--measured {path}: {error.strerror}; name a file that is there") from None
    except (ValueError, TypeError, KeyError):
        raise ConfigError(
            f"--measured {path}: is no run of sending; make one by: tianzhou bench produce -o json > FILE"
        ) from None
    if rate <= 0:
        raise ConfigError(f"--measured {path}: nothing was sent in that run; measure again")
    return rate


def rows(load: Load, figures: Figures) -> list[tuple[Any, ...]]:
    """Return the table for text output."""
    per_set = f"{load.rate / figures.sets:,.0f} messages/s each at the peak"
    return [
        ("rate of a broker", f"{figures.node_rate:,.0f}/s", figures.node_rate_source),
        (
            "brokers that take messages",
            figures.sets,
            f"by {figures.bound_by}, {load.headroom:.0%} left free; {per_set}",
        ),
        ("brokers in all", figures.nodes, f"{load.copies} copies"),
        ("messages on a broker", f"{figures.messages:,}", f"{load.retention_hours:g} h"),
        ("disk of a broker", size_text(figures.disk_bytes), "75 % of it full (diskMaxUsedSpaceRatio)"),
        ("disk of all", size_text(figures.disk_bytes_of_all), "what is written, without that reserve"),
        ("a broker's disk writes", rate_text(figures.write_bytes_s), "log, queues, index"),
        ("network to a broker", rate_text(figures.network_in_bytes_s), "messages and their records' fields"),
        (
            "network from a broker",
            rate_text(figures.network_out_bytes_s),
            f"{load.copies - 1} copies, {load.groups} consumer groups",
        ),
        ("files of a broker", f"{figures.files:,}", f"{figures.segments:,} of them of the log, 1 GiB each"),
        (
            "memory of a broker",
            size_text(figures.memory_bytes),
            f"readers up to {load.hot_minutes:g} min behind are served from the page cache",
        ),
    ]


def size_text(size_bytes: int) -> str:
    """Return a size as text, in GiB or TiB."""
    return f"{size_bytes / GIB / 1024:,.1f} TiB" if size_bytes >= 1024 * GIB else f"{size_bytes / GIB:,.1f} GiB"


def rate_text(bytes_s: int) -> str:
    """Return a byte rate as text."""
    return f"{bytes_s / MB:,.1f} MB/s"

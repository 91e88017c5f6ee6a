"""A plot of a run's seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from tianzhou.bench.report import ROLES
from tianzhou.bench.series import HOW_TO_INSTALL, Second
from tianzhou.errors import ConfigError

SHOWN = ("p50", "p99", "max")
COLOURS = {"send": "tab:blue", "receive": "tab:orange"}
STYLES = {"p50": "-", "p99": "--", "max": ":"}


def check_can_plot() -> None:
    """Check that matplotlib is installed.

    Raises:
        ConfigError: it is not.
    """
    if find_spec("matplotlib") is None:
        raise ConfigError(f"--png needs matplotlib; {HOW_TO_INSTALL}")


def plot(path: Path, title: str, seconds: Mapping[str, Sequence[Second]]) -> None:
    """Write a PNG: messages per second above, percentiles of the latency below if the run is timed.

    Args:
        path: the file.
        title: heading of the plot.
        seconds: the seconds by role.
    """
    from matplotlib.figure import Figure

    timed = any(one.latency_ms for rows in seconds.values() for one in rows)
    figure = Figure(figsize=(9, 6 if timed else 3.5), layout="constrained")
    above, *below = figure.subplots(2 if timed else 1, 1, sharex=True, squeeze=False)[:, 0]
    for role, rows in seconds.items():
        at = [one.second + 1 for one in rows]
        above.plot(at, [one.messages for one in rows], color=COLOURS[role], label=ROLES[role])
        for axes in below:
            for name in SHOWN:
                known = [(one.second + 1, one.latency_ms[name]) for one in rows if one.latency_ms]
                if known:
                    xs, ys = zip(*known, strict=True)
                    axes.plot(xs, ys, STYLES[name], color=COLOURS[role], label=f"{ROLES[role]}, {name}")
    warm_up_s = max((one.second + 1 for rows in seconds.values() for one in rows if one.warm_up), default=0)
    for axes in (above, *below):
        if warm_up_s:
            axes.axvspan(0.5, warm_up_s + 0.5, color="0.92", label="warm-up")
        axes.grid(visible=True, color="0.9")
        axes.legend(fontsize="small")
    above.set_ylabel("messages / s")
    above.set_ylim(bottom=0)
    for axes in below:
        axes.set_ylabel("latency, ms")
        axes.set_yscale("log")
    (below or [above])[-1].set_xlabel("seconds")
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, format="png", dpi=110)

"""For tests of code that uses Tianzhou or RocketMQ: clusters in the test's process, with a time of their own.

`docs/howto/test-your-consumers.md` shows how. The names most tests need are importable from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tianzhou.testing.async_cluster import AsyncCluster
    from tianzhou.testing.clock import VirtualClock
    from tianzhou.testing.cluster import Cluster
    from tianzhou.testing.faults import COMMITS, ENDS, EVERYTHING, PULLS, SEND_BACKS, SENDS, Fault, Faults
    from tianzhou.testing.options import ClusterOptions, NotReached
    from tianzhou.testing.plugin import cluster_fixture
    from tianzhou.testing.virtual_loop import VirtualLoop, run_virtual

_HOMES = {
    "COMMITS": "faults",
    "ENDS": "faults",
    "EVERYTHING": "faults",
    "PULLS": "faults",
    "SENDS": "faults",
    "SEND_BACKS": "faults",
    "AsyncCluster": "async_cluster",
    "Cluster": "cluster",
    "ClusterOptions": "options",
    "Fault": "faults",
    "Faults": "faults",
    "NotReached": "options",
    "VirtualClock": "clock",
    "VirtualLoop": "virtual_loop",
    "cluster_fixture": "plugin",
    "run_virtual": "virtual_loop",
}

__all__ = [
    "COMMITS",
    "ENDS",
    "EVERYTHING",
    "PULLS",
    "SENDS",
    "SEND_BACKS",
    "AsyncCluster",
    "Cluster",
    "ClusterOptions",
    "Fault",
    "Faults",
    "NotReached",
    "VirtualClock",
    "VirtualLoop",
    "cluster_fixture",
    "run_virtual",
]


def __getattr__(name: str) -> Any:
    # Imported when first used: the pytest plugin is loaded in every test run of every project that has the package.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""Clusters inside a test's process, with their own time, for tests of code that uses Tianzhou or RocketMQ.

See `docs/howto/test-your-consumers.md`. The names that most tests need are importable from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tianzhou.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tianzhou.testing.async_cluster import AsyncCluster
    from tianzhou.testing.clock import VirtualClock
    from tianzhou.testing.cluster import Cluster
    from tianzhou.testing.faults import COMMITS, ENDS, EVERYTHING, PULLS, SEND_BACKS, SENDS, Fault, Faults
    from tianzhou.testing.options import ClusterOptions, NotReached
    from tianzhou.testing.plugin import cluster_fixture
    from tianzhou.testing.virtual_loop import VirtualLoop, run_virtual

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

# Import on first use, because every test run of every project with the package installed loads the pytest plugin.
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "async_cluster": "AsyncCluster",
        "clock": "VirtualClock",
        "cluster": "Cluster",
        "faults": "COMMITS ENDS EVERYTHING Fault Faults PULLS SENDS SEND_BACKS",
        "options": "ClusterOptions NotReached",
        "plugin": "cluster_fixture",
        "virtual_loop": "VirtualLoop run_virtual",
    },
)

"""Pickling of sources, readers and writers into tasks, with a clear error on nodes that lack this package.

Spark pickles these objects by the names of their classes. A node without this package then fails while it unpickles the
task, with an error that contains a module name, but neither the node nor a remedy. Here they are pickled as bytes in
the call of a function that cloudpickle sends by value. The function needs no package on the node: it unpickles the
bytes and reports a missing package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tianzhou
from tianzhou.spark.sessions.daemon import quieten_own

Unpack = Callable[[bytes, str], Any]

# PySpark's own daemon forks the processes that find, make and plan sources, and each of them imports this module.
quieten_own()


class Pickled:
    """A base of objects that Spark pickles into tasks. It must be the first base."""

    def __reduce__(self) -> tuple[Unpack, tuple[bytes, str]]:
        """Return a call that any node can make. Its arguments are the pickled object and this package's version."""
        from pyspark import cloudpickle

        dumps: Callable[..., bytes] = cloudpickle.dumps
        return _unpacking(), (dumps((type(self), self.__getstate__())), tianzhou.__version__)


def _unpacking() -> Unpack:
    """Return the function that nodes run.

    It is a nested function because cloudpickle sends nested functions by value. For the same reason it refers to no
    name outside itself.
    """

    def unpack(content: bytes, version: str) -> Any:
        import pickle
        import platform
        import socket
        import sys

        python = f"node {socket.gethostname()}, {sys.executable} (Python {platform.python_version()})"
        fix = (
            f"pip install 'tianzhou[spark]=={version}' for that Python, on every node, or send an environment with "
            "spark.archives (docs/howto/spark-cluster.md)"
        )
        try:
            import tianzhou as package
        except ImportError as error:
            raise ImportError(f"{python} has no package tianzhou, and tasks need it; {fix}") from error
        there = package.__version__
        if there != version:
            raise ImportError(f"{python} has tianzhou {there} and the driver {version}; tasks need the same; {fix}")
        try:
            kind, state = pickle.loads(content)
        except ImportError as error:
            raise ImportError(f"{python} cannot import {error.name} ({error}), which tianzhou needs; {fix}") from error
        made = kind.__new__(kind)
        made.__dict__.update(state or {})
        return made

    return unpack

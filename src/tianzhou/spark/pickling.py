"""How sources, readers and writers travel to tasks, and what a node says that cannot take them.

Spark pickles them by the names of their classes, so a node without this package fails while it unpacks a task, with a
line that names a module and neither the node nor what to do. Here they go as bytes inside the call of a function that
cloudpickle sends whole: it needs nothing on the node, unpacks what is there, and says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tianzhou
from tianzhou.spark.sessions.daemon import quieten_own

Unpack = Callable[[bytes, str], Any]

# Where sources are found, made and planned, PySpark's own daemon forks the processes, and each comes here.
quieten_own()


class Pickled:
    """Something that Spark pickles into tasks; put it first among the bases."""

    def __reduce__(self) -> tuple[Unpack, tuple[bytes, str]]:
        """A call that any node can make; its arguments are the object and this package's version."""
        from pyspark import cloudpickle

        dumps: Callable[..., bytes] = cloudpickle.dumps
        return _unpacking(), (dumps((type(self), self.__getstate__())), tianzhou.__version__)


def _unpacking() -> Unpack:
    """The function that nodes run.

    It is made inside a function because cloudpickle sends such functions by value, and for the same reason names
    nothing outside itself.
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

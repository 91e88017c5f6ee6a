"""Spark's Python processes as children of an interpreter that has imported PySpark, PyArrow and the package.

Each stream starts a Python process for its source, and a session starts one for each kind of work. The imports of such
a process take 1.3 s of a processor, most of the time of a short query. Here an interpreter imports the modules once and
forks a child per process. `PYSPARK_PYTHON` of the tests' session names a script that requests the child. Sessions that
tests start as programs of their own run the real interpreter.

Run as a program, this file is the interpreter that forks.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

CLIENT = Path(__file__).with_name("forked_python_client.py")
IMPORTED = (
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark_tianzhou",
    "pyspark_tianzhou_lake",
    "pyspark_tianzhou_store",
    "tianzhou.spark.source.readers",
    "tianzhou.spark.rows.columns",
)
"""Modules to import before the first fork."""
ENVIRONMENT = {
    # Spark sets this for its processes, and an interpreter reads it when it starts.
    "PYTHONHASHSEED": "0",
    # PyArrow's allocator and numpy would start threads, which do not outlive a fork.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OPENBLAS_NUM_THREADS": "1",
}


@contextmanager
def forking_python(folder: Path) -> Iterator[Path]:
    """Start the interpreter that forks and end it at the end of the block.

    Args:
        folder: an empty folder.

    Returns:
        The path for `PYSPARK_PYTHON`.
    """
    path = folder / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno())],
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )
    python = folder / "python"
    # -I and -S: the script needs neither the environment nor installed packages, and starts in a third of the time.
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{CLIENT}" "{path}" "$@"\n')
    python.chmod(0o700)
    try:
        yield python
    finally:
        process.communicate()
        assert process.returncode == 0


def main(listener: socket.socket) -> None:
    """Fork a child per connection, until the tests close stdin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests handle Ctrl-C and close stdin
    for name in IMPORTED:
        import_module(name)
    base = list(sys.path[1:])
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes children that have ended
    while True:
        ready = select.select([listener, sys.stdin.fileno()], [], [])[0]
        if listener not in ready:
            return
        connection, _ = listener.accept()
        pid = os.fork()
        if pid == 0:
            listener.close()
            run(connection, base)
        connection.close()


def run(connection: socket.socket, base: list[str]) -> None:
    """Run the module that a client requests, send the exit code, and end this process.

    Args:
        connection: of the client; it begins with three descriptors and a JSON object, with a line feed at the end.
        base: entries of `sys.path` for installed packages.
    """
    message, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    while not message.endswith(b"\n"):
        message += connection.recv(1 << 16)
    request: dict[str, Any] = json.loads(message)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    connection.sendall(b"%d\n" % os.getpid())
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    option, module, *args = request["args"]
    assert option == "-m", request["args"]
    sys.modules.pop(module, None)  # `runpy` warns of a module that is imported already
    sys.argv = [module, *args]
    entries = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.path[:] = [request["cwd"], *entries, *(entry for entry in base if entry not in entries)]
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as an interpreter reports it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(b"%d\n" % (code & 0xFF))
        os._exit(code & 0xFF)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))

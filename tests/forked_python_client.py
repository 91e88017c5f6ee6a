"""The program that `PYSPARK_PYTHON` names in the tests' Spark session; see `forked_pythons.py`.

Arguments: path of the socket of the interpreter that forks, then the arguments of a Python interpreter. The program
ends with the exit code of the child. SIGTERM ends the child too.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main(path: str, *args: str) -> int:
    """Request a child for the arguments and wait for its end.

    Returns:
        The child's exit code; 137 when a signal ended the child.
    """
    if args[0] != "-m":  # PySpark queries the version by -c
        os.execv(sys.executable, [sys.executable, *args])
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = json.dumps({"args": args, "environ": dict(os.environ), "cwd": os.getcwd()}).encode() + b"\n"
        sent = socket.send_fds(connection, [request], [0, 1, 2])
        connection.sendall(request[sent:])
        replies = connection.makefile("rb")
        pid = int(replies.readline())

        def end(number: int, _: object) -> None:
            os.kill(pid, number)
            sys.exit(128 + number)

        signal.signal(signal.SIGTERM, end)
        return int(replies.readline() or 137)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Our mqadmin as a process that runs command after command, as `java/mqadmin/Mqadmin.java` runs Apache's."""

from __future__ import annotations

import sys

from tianzhou.cli.mqadmin.failures import failure
from tianzhou.cli.mqadmin.tool import run
from tianzhou.errors import TianzhouError

if __name__ == "__main__":
    mark = sys.argv[1]
    for line in sys.stdin:
        try:
            run(line.rstrip("\n").split("\t"), print)
        except TianzhouError as error:
            print("FAILED:", failure(error))
        print(mark, flush=True)

"""The `tianzhou` command: how it begins and ends.

Nothing heavy is imported here, so that Ctrl-C during the first moments ends the process without a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn, TextIO

from tianzhou.cli.process import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, explain
from tianzhou.errors import ConfigError, StoreLocked, TianzhouError
from tianzhou.escaping import escaped


def main() -> None:
    """Run the command line.

    Exit codes: 0 done; 1 failed; 2 wrong usage or configuration, also a port or folder that is taken;
    130 interrupted.
    """
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_missing_streams()
    try:
        from tianzhou.cli.app import app

        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        app(prog_name="tianzhou")
    except TianzhouError as error:
        _fail(explain(error), EXIT_USAGE if isinstance(error, ConfigError | StoreLocked) else EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away (`| head`), which is its right.
        _give_up_stdout()
        sys.exit(EXIT_FAILED)
    except OSError as error:
        _give_up_stdout()
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), EXIT_FAILED)
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _fail(text: str, code: int) -> NoReturn:
    shown = escaped(text, keep="\t\n")
    sys.stderr.write(f"tianzhou: {shown}\n")
    sys.exit(code)


def _open_missing_streams() -> None:
    # A shell's `>&-` leaves no stream at all, and every write would need a test for that.
    if sys.stdout is None:
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()


def _nowhere() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _give_up_stdout() -> None:
    # What is still buffered cannot be written; Python would say so once more while it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()

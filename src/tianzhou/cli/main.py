"""The `tianzhou` command: how it begins and ends.

Nothing heavy is imported here, so that Ctrl-C during the first moments ends the process without a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import NoReturn, TextIO

from tianzhou.errors import BrokerError, ConfigError, ConnectFailed, RequestTimeout, StoreLocked, TianzhouError
from tianzhou.escaping import escaped

BEGAN = time.monotonic()
"""When the process began, or nearly so: servers say how long they took to be ready."""
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_NOT_SUPPORTED = 3  # wire.md §2


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


def explain(error: TianzhouError) -> str:
    """What people are told about an error: its text, and what to do where the text cannot know it."""
    text = str(error) or type(error).__name__
    advice = _advice(error, text)
    return f"{text}\n{advice}" if advice else text


def _advice(error: TianzhouError, text: str) -> str:
    if isinstance(error, ConnectFailed) and text.startswith("no name server"):
        if "not trusted" in text or "speak TLS?" in text:
            return ""  # somebody is there, and the text says what is wrong
        if "was lost" in text:
            return "Somebody answers there, and ends the connection. Does that server take TLS only? Give --tls."
        return "Start a server with `tianzhou serve`, or name the right one with -n host:port or NAMESRV_ADDR."
    if isinstance(error, ConnectFailed):
        return (
            "Is the broker running? Its address is what it advertises (--advertise, brokerIP1); it must be reachable."
        )
    if isinstance(error, RequestTimeout):
        return "Is the server alive, and the right one? It takes connections, and does not answer."
    if isinstance(error, BrokerError) and error.code == _NOT_SUPPORTED and " is asked of a " not in text:
        return "Does -n name a name server? Its port is 9876 as a rule, a broker's 10911."
    return ""


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

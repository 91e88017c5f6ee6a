"""The process of a command: its start time, its error texts and its exit codes.

It is imported before Ctrl-C can be handled, and therefore imports few modules itself.
"""

from __future__ import annotations

import _thread
import sys
import time

from tianzhou.lazy_exports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from tianzhou.errors import TianzhouError

BEGAN = time.monotonic()
"""Time of the process's start, approximately. Servers report the seconds from it until they are ready."""
RAISE_AGAIN_S = 0.01
"""Seconds after which a KeyboardInterrupt that the interpreter ignored is raised once more."""
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_NOT_SUPPORTED = 3  # wire.md §2


class Interruptions:
    """The record of a Ctrl-C since the start of a command.

    A library may catch the KeyboardInterrupt during its import. Without this record a server would then start and
    ignore the Ctrl-C.
    """

    noted = False

    @classmethod
    def interrupt(cls, number: int, frame: FrameType | None) -> None:
        """Note the signal and raise KeyboardInterrupt, as Python's own handler of SIGINT does.

        Args:
            number: the signal.
            frame: the interrupted stack frame.

        Raises:
            KeyboardInterrupt: always, except within `raise_again`, where the interpreter would ignore the exception.
        """
        cls.noted = True
        if is_within(frame, cls.raise_again.__func__.__code__):  # type: ignore[attr-defined]
            signal_again(number)
            return
        raise KeyboardInterrupt

    @classmethod
    def raise_again(cls, ignored: sys.UnraisableHookArgs) -> None:
        """Raise a KeyboardInterrupt again that the interpreter ignored, as between two imports.

        Args:
            ignored: the ignored exception. Exceptions of other types are printed.
        """
        if not isinstance(ignored.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(ignored)
            return
        import signal

        signal_again(signal.SIGINT)


def start_thread(work: Callable[..., object], *args: object) -> None:
    """Start a thread that does not prevent the process's exit. May be called by a signal handler.

    `threading.Thread.start` would wait until the thread runs, and the next signal would interrupt the handler there.

    Args:
        work: function that the thread runs.
        args: arguments of the function.
    """
    _thread.start_new_thread(work, args)


def signal_again(number: int) -> None:
    """Send the calling thread, which is the main thread, a signal in `RAISE_AGAIN_S`.

    Args:
        number: the signal.
    """
    import signal

    main = _thread.get_ident()

    def send() -> None:
        time.sleep(RAISE_AGAIN_S)
        signal.pthread_kill(main, number)

    start_thread(send)


def is_within(frame: FrameType | None, code: CodeType) -> bool:
    """Whether a stack frame is one of a function, or of a function that it has called.

    Args:
        frame: the stack frame.
        code: code of the function.
    """
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def explain(error: TianzhouError) -> str:
    """Return the text of an error for users: its message, and a remedy that the message does not contain."""
    text = str(error) or type(error).__name__
    advice = _advice(error, text)
    return f"{text}\n{advice}" if advice else text


def _advice(error: TianzhouError, text: str) -> str:
    from tianzhou.errors import BrokerError, ConnectFailed, RequestTimeout

    if isinstance(error, ConnectFailed) and text.startswith("no name server"):
        if "not trusted" in text or "speak TLS?" in text:
            return ""  # A server answered, and the text contains the cause.
        if "was lost" in text:
            return "Somebody answers there, and ends the connection. Does that server take TLS only? Give --tls."
        return "Start a server with `tianzhou serve`, or name the right one with -n host:port or NAMESRV_ADDR."
    if isinstance(error, ConnectFailed):
        return (
            "Is the broker running? Its address is what it advertises (--advertise, brokerIP1); it must be reachable."
        )
    if isinstance(error, RequestTimeout):
        return "Is the server alive, and the right one? It takes connections, and does not answer."
    if isinstance(error, BrokerError) and error.code == _NOT_SUPPORTED and " not supported: " not in text:
        return "Does -n name a name server? Its port is 9876 as a rule, a broker's 10911."
    return ""

"""The process of a command: when it began, what it says of an error, and with which code it ends.

Imported before Ctrl-C can be seen to, and therefore next to nothing itself.
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
"""When the process began, or nearly so: servers say how long they took to be ready."""
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
        """Raise a KeyboardInterrupt once more that the interpreter ignored, as between two imports.

        Args:
            ignored: the exception; any other one is printed.
        """
        if not isinstance(ignored.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(ignored)
            return
        import signal

        signal_again(signal.SIGINT)


def start_thread(work: Callable[..., object], *args: object) -> None:
    """Start a thread that does not keep the process alive; may be called by a signal handler.

    `threading.Thread.start` waits until the thread runs, and the next signal would find the handler there.

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
    """An error for people: its text, and what to do where the text cannot know it."""
    text = str(error) or type(error).__name__
    advice = _advice(error, text)
    return f"{text}\n{advice}" if advice else text


def _advice(error: TianzhouError, text: str) -> str:
    from tianzhou.errors import BrokerError, ConnectFailed, RequestTimeout

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
    if isinstance(error, BrokerError) and error.code == _NOT_SUPPORTED and " not supported: " not in text:
        return "Does -n name a name server? Its port is 9876 as a rule, a broker's 10911."
    return ""

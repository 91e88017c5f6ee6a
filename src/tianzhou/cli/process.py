"""The process of a command: when it began, what it says of an error, and with which code it ends.

Imported before Ctrl-C can be seen to, and therefore next to nothing itself.
"""

from __future__ import annotations

import time

from tianzhou.lazy_exports import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

    from tianzhou.errors import TianzhouError

BEGAN = time.monotonic()
"""When the process began, or nearly so: servers say how long they took to be ready."""
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
    def interrupt(cls, number: int, frame: FrameType | None) -> NoReturn:
        """Note the signal and raise KeyboardInterrupt, as Python's own handler of SIGINT does.

        Args:
            number: the signal.
            frame: the interrupted stack frame.

        Raises:
            KeyboardInterrupt: always.
        """
        cls.noted = True
        raise KeyboardInterrupt


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

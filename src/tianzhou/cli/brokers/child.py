"""A broker process of `tianzhou serve --brokers N`. It gets an order in JSON, and answers with one line of JSON.

It ends on SIGTERM, and when its parent has ended, which closes its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

from tianzhou.cli.process import BEGAN, EXIT_FAILED, EXIT_USAGE, explain
from tianzhou.cli.serving.server_logs import LogFormat, set_up_logs
from tianzhou.cli.signals import run_server
from tianzhou.errors import ConfigError, StoreLocked, TianzhouError
from tianzhou.logs import log_to_stderr

STOP_LIMIT_S = 4.0
"""Maximum seconds of a clean end. The parent waits a little longer."""
SETTINGS_ENV = "TIANZHOU_BROKER_SETTINGS"
_STDIN = 0
_UNSEEN = ("tls", "values", "own")


@dataclass(frozen=True)
class BrokerOrder:
    """The configuration of a broker process.

    Attributes:
        name: the broker's name.
        data: the data folder of all brokers.
        home: the folder of this broker's files.
        host: address to listen on.
        advertised: host for clients.
        port: port of the broker.
        broker_name: the name for clients; empty for `name`.
        namesrv: address of the name server.
        flush: ASYNC_FLUSH or SYNC_FLUSH; empty for the flush in `values`.
        tls: the `tls.*` values of `serve`.
        level: level of the log.
        log_format: form of the log, see `set_up_logs`.
        log_levels: levels of modules, see `set_up_logs`.
        values: settings of the broker under RocketMQ's keys. They may contain secrets, and other users can read a
            process's arguments. So `values`, `tls` and `own` are passed in the environment, which only the user of the
            process can read. The process removes them from it.
        own: access key and secret with which the servers of this command sign requests; empty for none.
    """

    name: str
    data: str
    home: str
    host: str
    advertised: str
    port: int
    namesrv: str
    flush: str = ""
    broker_name: str = ""
    tls: dict[str, str] = field(default_factory=dict, repr=False)
    level: int = logging.WARNING
    log_format: str = ""
    log_levels: Sequence[str] = ()
    values: dict[str, str] = field(default_factory=dict, repr=False)
    own: Sequence[str] = field(default=(), repr=False)

    def text(self) -> str:
        """Return the public part of the order, as an argument of the process."""
        shown = {name: value for name, value in asdict(self).items() if name not in _UNSEEN}
        return json.dumps(shown, separators=(",", ":"))

    def environment(self) -> dict[str, str]:
        """Return the secret part of the order, as environment variables that only the process's owner can read."""
        return {SETTINGS_ENV: json.dumps({name: getattr(self, name) for name in _UNSEEN})}


@dataclass(frozen=True)
class BrokerReady:
    """The answer of a broker that serves: its address for clients, and the implementation of its hot path."""

    address: str
    mode: str


@dataclass(frozen=True)
class Failed:
    """The answer of a broker that cannot start.

    Attributes:
        reason: the reason, for users.
        code: the exit code for the reason.
        locked: whether another process has locked the store.
    """

    reason: str
    code: int = EXIT_FAILED
    locked: bool = False


def answer_of(line: bytes) -> BrokerReady | Failed | None:
    """Parse the answer of a broker process; None if it ended without an answer."""
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return BrokerReady(**answer["ready"]) if "ready" in answer else Failed(**answer["failed"])


class Prefixed:
    """A stream that prefixes every line with the broker's name.

    Args:
        stream: the target stream.
        prefix: the prefix of each line.
    """

    def __init__(self, stream: TextIO, prefix: str) -> None:
        self._stream = stream
        self._prefix = prefix
        self._rest = ""

    def write(self, text: str) -> int:
        """Write all complete lines in one call, so that lines of several processes do not mix."""
        *lines, self._rest = (self._rest + text).split("\n")
        if lines:
            # The reader may have ended. That must not prevent a clean end of the broker.
            with contextlib.suppress(OSError):
                self._stream.write("".join(f"{self._prefix}{line}\n" for line in lines))
                self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """Do nothing: only incomplete lines are buffered."""

    def fileno(self) -> int:
        """Return the target stream's file descriptor."""
        return self._stream.fileno()


def main() -> None:
    """Run the broker process of the order in the first argument."""
    order = BrokerOrder(**json.loads(sys.argv[1]), **json.loads(os.environ.pop(SETTINGS_ENV, "{}")))
    # In JSON, a field contains the broker's name.
    sys.stderr = Prefixed(sys.stderr, "" if order.log_format == LogFormat.json else f"{order.name}: ")
    log_to_stderr(order.level)
    set_up_logs(order.log_format, order.log_levels, order.name)
    try:
        run_server(lambda: start(order), limit_s=STOP_LIMIT_S)
    except TianzhouError as error:
        code = EXIT_USAGE if isinstance(error, ConfigError | StoreLocked) else EXIT_FAILED
        _answer("failed", asdict(Failed(explain(error), code, isinstance(error, StoreLocked))))
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(0)  # interrupted before it had started anything
    except OSError as error:
        _answer("failed", asdict(Failed(f"{error.filename}: {error.strerror}" if error.filename else str(error))))
        sys.exit(EXIT_FAILED)


async def start(order: BrokerOrder) -> Callable[[], Awaitable[None]]:
    """Start the broker and answer when it serves. Return a function that stops it."""
    from tianzhou import _hot
    from tianzhou.broker.settings import LINGER_MICROS
    from tianzhou.embedded import EmbeddedSettings, enter_broker
    from tianzhou.remoting.gates.access_control import Credentials
    from tianzhou.remoting.tls import load_tls

    loop = asyncio.get_running_loop()
    loop.add_reader(_STDIN, _end_when_alone, loop)
    settings = EmbeddedSettings(
        Path(order.data),
        order.host,
        broker_port=order.port,
        broker_name=order.broker_name or order.name,
        flush=order.flush,
        home=Path(order.home),
        linger_micros=LINGER_MICROS,
        values=order.values,
    )
    stack = AsyncExitStack()
    try:
        broker = await enter_broker(
            stack,
            settings,
            order.namesrv,
            advertised=order.advertised,
            tls=load_tls(order.tls, source="serve"),
            own=Credentials(*order.own) if order.own else None,
        )
        await broker.ready()
    except BaseException:
        await stack.aclose()
        raise
    logging.getLogger(__name__).info("serves after %.2f s", time.monotonic() - BEGAN)
    _answer("ready", asdict(BrokerReady(broker.address, _hot.MODE)))

    async def stop() -> None:
        await stack.aclose()
        if broker.left_undone:
            raise TianzhouError(f"stopped, but not all is well: {'; '.join(broker.left_undone)}")

    return stop


def _end_when_alone(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(BlockingIOError):
        if os.read(_STDIN, 1):
            return
        loop.remove_reader(_STDIN)
        os.kill(os.getpid(), signal.SIGTERM)


def _answer(what: str, value: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps({what: value}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

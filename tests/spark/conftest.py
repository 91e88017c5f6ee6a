"""One Spark session and one server for all tests of the connector."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from quick_start import JAVA, environment
from spark_processes import CONF

from forked_pythons import forking_python
from tianzhou.clock import SystemClock
from tianzhou.model import Message, MessageQueue
from tianzhou.remoting.tls import TlsSettings

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything below this directory `spark`."""
    here = Path(__file__).resolve().parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)


class ShiftedClock(SystemClock):
    """A clock whose wall-clock time a test moves ahead.

    Attributes:
        ahead_ms: ms by which it is ahead of the machine's clock.
    """

    ahead_ms = 0

    def now_ms(self) -> int:
        """Return the time, in ms since the epoch."""
        return super().now_ms() + self.ahead_ms


class Server:
    """A name server and broker on a thread of their own, and the operations of tests on them.

    Attributes:
        folder: the folder of all files; the broker's store is in `store`.
        broker_clock: the clock of name server and broker, whose time a test moves ahead by a minute at most, because
            name servers forget brokers that are silent for two.
    """

    def __init__(
        self,
        folder: Path,
        tls: TlsSettings | None = None,
        values: Mapping[str, str] | None = None,
        **client: str,
    ) -> None:
        self.folder = folder
        self._tls = tls
        self._values = values or {}
        self._client = client
        self.broker_clock = ShiftedClock()
        self._ports = (0, 0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def broker(self):
        """The running broker."""
        return self._server.broker

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def start(self) -> None:
        self._thread.start()
        self.run(self._start())

    async def _start(self) -> None:
        from tianzhou.admin import Admin
        from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
        from tianzhou.client.producer.producer import Producer
        from tianzhou.embedded import EmbeddedServer, EmbeddedSettings

        namesrv, broker = self._ports
        self._server = EmbeddedServer(
            EmbeddedSettings(self.folder, namesrv_port=namesrv, broker_port=broker, values=self._values),
            clock=self.broker_clock,
            tls=self._tls,
        )
        await self._server.__aenter__()
        self._ports = (self._server.namesrv.port, self._server.broker.port)
        self.address = self._server.namesrv_address
        client = {"tls": self._tls is not None, **self._client}
        self._clock = ShiftedClock()
        self._producer = Producer("tests", self.address, clock=self._clock, **client)
        await self._producer.start()
        self.consumer = PullConsumer("tests", self.address, auto_commit=False, **client)
        await self.consumer.start()
        self.admin = Admin(self.address, **client)
        await self.admin.start()

    def restart(self) -> None:
        """Stop and start again on the same ports."""
        self.run(self._stop())
        self.run(self._start())

    def stop(self) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _stop(self) -> None:
        await self.admin.stop()
        await self.consumer.stop()
        await self._producer.stop()
        await self._server.__aexit__(None, None, None)

    # --- operations of tests

    def create(self, topic: str, queues: int = 2) -> str:
        self.run(self.admin.topics.create(topic, read_queue_nums=queues, write_queue_nums=queues))
        return topic

    def delete(self, topic: str) -> None:
        self.run(self.admin.topics.delete(topic))

    def send(self, topic: str, bodies, *, queue: int | None = None, after_s: float = 0, **attributes) -> None:
        """Send one message per body.

        Args:
            topic: the topic.
            bodies: bytes, or values whose text is the body.
            queue: the number of the queue, None for any.
            after_s: seconds by which the messages are born later than now.
            **attributes: arguments of `Message`, each a value or a function of the body's index.
        """
        self._clock.ahead_ms = round(after_s * 1000)

        async def one(index, body):
            values = {name: value(index) if callable(value) else value for name, value in attributes.items()}
            target = None if queue is None else MessageQueue(topic, "broker-a", queue)
            content = body if isinstance(body, bytes) else str(body).encode()
            await self._producer.send(Message(topic, content, **values), target)

        async def every():
            await asyncio.gather(*(one(index, body) for index, body in enumerate(bodies)))

        try:
            self.run(every())
        finally:
            self._clock.ahead_ms = 0

    def maxima(self, topic: str) -> dict[int, int]:
        async def every():
            queues = await self.consumer.queues(topic)
            return {queue.queue_id: await self.consumer.max_offset(queue) for queue in queues}

        return self.run(every())

    def messages(self, topic: str):
        """Return every message of the topic, by queue and offset."""

        async def every():
            found = []
            for queue in await self.consumer.queues(topic):
                at, end = await self.consumer.min_offset(queue), await self.consumer.max_offset(queue)
                while at < end:
                    result = await self.consumer.pull(queue, at)
                    found += result.messages
                    at = result.next_offset
            return found

        return self.run(every())


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path) -> Iterator[Server]:
    """Yield a server for one test, which may stop it."""
    server = Server(tmp_path / "server")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def module_server() -> Iterator[Callable[..., Server]]:
    """Return a function that starts servers for the tests of a file; arguments as of `Server`."""
    started = []

    def start(folder: Path, **arguments) -> Server:
        started.append(Server(folder, **arguments))
        started[-1].start()
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def tls_server(tmp_path) -> Iterator[Callable[[TlsSettings], Server]]:
    """Return a function that starts a server with TLS settings for one test."""
    started = []

    def start(tls: TlsSettings) -> Server:
        started.append(Server(tmp_path / f"server-{len(started)}", tls))
        started[-1].start()
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """Yield a session on this machine, or at the address in `TIANZHOU_TEST_SPARK`: see `test_spark_elsewhere.py`."""
    from tianzhou.spark import session

    os.environ["TZ"] = "UTC"
    where = os.environ.get("TIANZHOU_TEST_SPARK", "")
    folders = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.local.dir": str(tmp_path_factory.mktemp("local")),
    }
    with ExitStack() as stack:
        if where.startswith("sc://"):
            made = session("tests", remote=where)
        elif where:
            made = session("tests", "cluster", master=where, **CONF, **folders)
        else:
            python = stack.enter_context(forking_python(tmp_path_factory.mktemp("python")))
            with pytest.MonkeyPatch.context() as patched:  # processes that Spark starts later inherit these
                patched.setenv("SPARK_HOME", environment(tmp_path_factory.mktemp("home"))["SPARK_HOME"])
                patched.setenv("PYSPARK_PYTHON", str(python))
                patched.setenv("PYSPARK_DRIVER_PYTHON", str(python))
                made = session("tests", "test", **JAVA, **folders)
        if not where.startswith("sc://"):
            made.sparkContext.setLogLevel("FATAL")
        yield made
        made.stop()


@pytest.fixture
def tasks_are_run_again() -> bool:
    """Whether Spark repeats a failed task within its batch, like clusters do; on one machine the query fails."""
    return bool(os.environ.get("TIANZHOU_TEST_SPARK"))


@pytest.fixture
def topic(server) -> str:
    """Return a topic of two queues."""
    return server.create(f"topic-{next(_numbers)}")


@pytest.fixture
def source(spark, server, topic):
    """Return a function for batch or stream readers of the topic: `source(spark.read, tags="A").load()`."""

    def make(reader, **options):
        options = {"namesrvAddr": server.address, "subscribe": topic, "pollTimeoutMs": 5000, **options}
        return reader.format("tianzhou").options(**options)

    return make


@pytest.fixture
def cli(spark, server, monkeypatch, capsys):
    """Run `tianzhou ARGS… -n SERVER` in this process, with this session; return exit code, stdout, stderr."""
    from tianzhou.cli import main

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["tianzhou", *args, "-n", server.address])
        with pytest.raises(SystemExit) as ended:
            main.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def pipeline(cli):
    """Run `tianzhou pipeline ARGS… -o json`, check that it ends with 0, and return its output."""

    def run(*args: str):
        code, out, err = cli("pipeline", *args, "-o", "json")
        assert code == 0, err
        return json.loads(out.splitlines()[-1])

    return run

"""A name server in this process, and brokers in separate processes, on one data folder.

A broker whose process has ended is started again. `Restarts` decides how soon and how often.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from tianzhou.broker.addresses import free_port_pair
from tianzhou.cli.brokers.child import STOP_LIMIT_S, BrokerOrder, BrokerReady, Failed
from tianzhou.cli.brokers.kinds import BrokersKind
from tianzhou.cli.brokers.plan import plan_ports
from tianzhou.cli.brokers.processes import BrokerProcess, Launch, ended_how, launch
from tianzhou.cli.brokers.restarts import Restarts
from tianzhou.cli.brokers.shared_topics import Missing, SharedTopics
from tianzhou.cli.reachability import is_free
from tianzhou.cli.serving.server_logs import ServerLogs
from tianzhou.clock import Clock, SystemClock
from tianzhou.data_folder import claim, claim_group, save_ports, saved_ports
from tianzhou.embedded import (
    EmbeddedSettings,
    advertised_address,
    check_values,
    client_tls_settings,
    inner_address,
    make_name_server,
    page_port,
)
from tianzhou.errors import ConfigError, StoreLocked, TianzhouError
from tianzhou.model import TopicConfig
from tianzhou.model.names import MASTER_ID
from tianzhou.namesrv.routes import Registration
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.gates.access_control import credentials_by_chance
from tianzhou.remoting.tls import TlsSettings, client_context
from tianzhou.supervision import retrieve_exception, start_awaited, start_owned
from tianzhou.wire.bodies.topics import TOPIC_CONFIGS
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command

KILL_AFTER_S = STOP_LIMIT_S + 0.5
"""Seconds after SIGTERM at which a broker is killed by SIGKILL."""
ELECTION_LIMIT_S = 30.0
"""Seconds to wait for a group's election before the group is announced."""
LOCKED_LIMIT_S = 6.0
LOCKED_STEP_S = 0.25
TOPICS_AT_ONCE = 500
TOPICS_TIMEOUT_MS = 5_000
TOPICS_TRIES = 5

_log = logging.getLogger(__name__)


@dataclass
class BrokerPlace:
    """One broker: the configuration of its process, and the present process.

    Attributes:
        order: configuration of the process.
        process: the present process; None between two.
        address: address for clients.
        serves_since: time at which it began to serve, None while it does not.
        restarts: the policy for its restarts.
    """

    order: BrokerOrder
    process: BrokerProcess | None = None
    address: str = ""
    serves_since: float | None = None
    restarts: Restarts = field(default_factory=Restarts)

    @property
    def name(self) -> str:
        """The broker's name."""
        return self.order.name


class BrokersSupervisor:
    """A supervisor of the brokers, which serve inside `async with BrokersSupervisor(settings, kind)`.

    Args:
        settings: folders and addresses; `broker_port` is the port of the first broker.
        kind: the brokers and the relation between them.
        tls: the `tls.*` values for the brokers.
        tls_settings: the parsed `tls.*` values.
        logs: the brokers' logs.
        clock: the monotonic clock.
        start: starts a process.

    Attributes:
        failure: the reason why the supervisor ended by itself; empty otherwise.
        unclean: brokers that did not end cleanly on SIGTERM.

    Raises:
        ConfigError: an address is unreachable, a port is in use, or the folder cannot be used or needs more brokers.
        StoreError: a store is in use or cannot be opened.
    """

    def __init__(
        self,
        settings: EmbeddedSettings,
        kind: BrokersKind,
        *,
        tls: Mapping[str, str] | None = None,
        tls_settings: TlsSettings | None = None,
        logs: ServerLogs | None = None,
        clock: Clock | None = None,
        start: Launch = launch,
    ) -> None:
        check_values(settings.values)
        self.settings = settings
        self.failure = ""
        self.unclean: list[str] = []
        self.mode = ""
        self.advertised = advertised_address(settings.host, settings.advertise)
        if settings.namesrv_port and settings.namesrv_port in kind.ports_of(settings.broker_port)[:2]:
            raise ConfigError(
                f"--namesrv-port {settings.namesrv_port}: the broker takes it, which uses its port and the one "
                "2 below; give another"
            )
        self._kind = kind
        self._names = list(kind.names)
        self._tls_values = dict(tls or {})
        self._tls = tls_settings or TlsSettings()
        self._logs = logs or ServerLogs()
        self._clock = clock or SystemClock()
        self._start_process = start
        self._own = credentials_by_chance()
        self._stack = AsyncExitStack()
        self._topics = SharedTopics(() if kind.elects else kind.names)
        self._broker_names = {kind.broker_name(name) for name in kind.names}
        self._elected = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._making: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._stopping = False
        self.places: list[BrokerPlace] = []

    @property
    def namesrv_address(self) -> str:
        """The name server for clients: `host:port`."""
        return f"{self.advertised}:{self._namesrv.port}"

    async def over(self) -> None:
        """Wait until the supervisor ends by itself. `failure` contains the reason."""
        await self._over.wait()

    async def __aenter__(self) -> Self:
        settings = self.settings
        (claim_group if self._kind.elects else claim)(settings.data, len(self._names))
        try:
            self._namesrv = await self._stack.enter_async_context(
                make_name_server(
                    settings, clock=self._clock, tls=self._tls, on_register=self._registered, own=self._own
                )
            )
            towards = client_tls_settings(self._tls)
            self._client = await self._stack.enter_async_context(
                RemotingClient(
                    clock=self._clock,
                    hooks=self._namesrv.hooks,
                    tls=client_context(towards) if towards.enable else None,
                )
            )
            ports = self._plan_ports()
            self.places = [BrokerPlace(self._order(name, ports)) for name in self._names]
            await self._start_all()
            if settings.broker_port:
                save_ports(settings.data, ports)
            if self._kind.elects:
                await self._wait_for_election()
            while self._making:
                await asyncio.wait(self._making)
        except BaseException:
            await self._stop()
            raise
        for place in self.places:
            self._spawn(self._restart_when_ended(place))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    def kill(self) -> None:
        """Kill all broker processes. May be called in any thread."""
        for place in self.places:
            if place.process is not None:
                place.process.kill()

    # start

    def _plan_ports(self) -> dict[str, int]:
        settings, taken = self.settings, {self._namesrv.port}
        if settings.broker_port:
            saved = saved_ports(settings.data)
            free = partial(is_free, settings.host)
            return plan_ports(
                self._names,
                settings.broker_port,
                saved=saved,
                taken=taken,
                is_free=free,
                ports_of=self._kind.ports_of,
                must_be_free=len(self._kind.ports_of(0)) if self._kind.elects else 2,
            )
        planned: dict[str, int] = {}
        for name in self._names:
            port = free_port_pair(settings.host)
            while not taken.isdisjoint(self._kind.ports_of(port)):
                port = free_port_pair(settings.host)
            taken.update(self._kind.ports_of(port))
            planned[name] = port
        return planned

    def _order(self, name: str, ports: Mapping[str, int]) -> BrokerOrder:
        settings, kind = self.settings, self._kind
        host = inner_address(settings.host, 0).rpartition(":")[0]
        return BrokerOrder(
            name=name,
            data=str(settings.data),
            home=str(kind.home(settings.data, name)),
            host=settings.host,
            advertised=self.advertised,
            port=ports[name],
            broker_name=kind.broker_name(name),
            namesrv=inner_address(settings.host, self._namesrv.port),
            flush=settings.flush,
            tls=self._tls_values,
            level=logging.getLogger().level,
            log_format=self._logs.form,
            log_levels=self._logs.levels,
            values={
                **settings.values,
                **page_port(settings.values, self._names.index(name)),
                **kind.values(name, ports, host),
            },
            own=self._own,
        )

    async def _start_all(self) -> None:
        starting = [start_awaited(self._first_start(place)) for place in self.places]
        try:
            await asyncio.gather(*starting)
        finally:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)

    async def _first_start(self, place: BrokerPlace) -> None:
        # The brokers of a killed command need a moment to notice it and to end cleanly.
        deadline = self._clock.monotonic() + LOCKED_LIMIT_S
        warned = False
        while isinstance(failed := await self._launch(place), Failed):
            if not failed.locked or self._clock.monotonic() >= deadline:
                raise (StoreLocked if failed.locked else ConfigError if failed.code == 2 else TianzhouError)(
                    failed.reason
                )
            if not warned:
                warned = True
                _log.warning("%s waits for its store: %s", place.name, failed.reason)
            await asyncio.sleep(LOCKED_STEP_S)

    async def _wait_for_election(self) -> None:
        """Wait until the group has elected a leader. Log a warning after `ELECTION_LIMIT_S`."""
        try:
            async with asyncio.timeout(ELECTION_LIMIT_S):
                await self._elected.wait()
        except TimeoutError:
            _log.warning(
                "no member of the group has been elected for %g s; the log of each says why, and the others serve",
                ELECTION_LIMIT_S,
            )

    async def _launch(self, place: BrokerPlace) -> BrokerProcess | Failed:
        """Start a broker's process. Return it when it serves, or else the failure."""
        place.process = process = await self._start_process(place.order)
        answer = await process.answer()
        if isinstance(answer, BrokerReady):
            place.address, self.mode = answer.address, answer.mode
            place.serves_since = self._clock.monotonic()
            return process
        code = await process.wait()
        place.process = None
        return answer or Failed(f"{place.name} {ended_how(code)} before it served")

    # while they serve

    async def _restart_when_ended(self, place: BrokerPlace) -> None:
        """Start a broker again whenever its process ends."""
        while place.process is not None:
            process, since = place.process, place.serves_since
            code = await process.wait()
            place.process = place.serves_since = None
            if self._stopping:
                return
            self._topics.gone(place.name)
            why = f"process {process.pid} {ended_how(code)}"
            served_s = 0.0 if since is None else self._clock.monotonic() - since
            while True:
                pause_s = place.restarts.ended(served_s)
                if pause_s is None:
                    self._give_up(place, why)
                    return
                _log.error(
                    "%s: %s after it had served for %.0f s; it is started again in %.1f s (restart %d)",
                    place.name, why, served_s, pause_s, place.restarts.count,
                )  # fmt: skip
                await asyncio.sleep(pause_s)
                launched = await self._launch(place)
                if not isinstance(launched, Failed):
                    _log.warning("%s serves again, process %d", place.name, launched.pid)
                    break
                why, served_s = f"could not start: {launched.reason}", 0.0

    def _give_up(self, place: BrokerPlace, why: str) -> None:
        self.failure = self.failure or (
            f"{place.name} ended {place.restarts.row} times without ever serving for a minute, the last time: {why}; "
            f"everything is stopped. Its messages are in {place.order.home}; `tianzhou store check` looks at them"
        )
        self._over.set()

    def _registered(self, registration: Registration) -> None:
        if registration.broker_id == MASTER_ID and registration.broker_name in self._broker_names:
            self._elected.set()
        missing = self._topics.registered(registration.broker_name, registration.topics)
        if missing:
            task = start_owned(self._make(missing), "serve")
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    async def _make(self, missing: Missing) -> None:
        ports = {place.name: place.order.port for place in self.places}
        for broker, configs in missing.items():
            for at in range(0, len(configs), TOPICS_AT_ONCE):
                await self._make_on(broker, ports[broker], configs[at : at + TOPICS_AT_ONCE])

    async def _make_on(self, broker: str, port: int, configs: list[TopicConfig]) -> None:
        body = TOPIC_CONFIGS.dumps([_as_changes(config) for config in configs])
        address = inner_address(self.settings.host, port)
        why = ""
        for _ in range(TOPICS_TRIES):
            try:
                command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
                reply = await self._client.invoke(address, command, TOPICS_TIMEOUT_MS)
            except TianzhouError as error:
                why = str(error)
                await asyncio.sleep(1)
                continue
            if reply.code == ResponseCode.SUCCESS:
                _log.info("%s has %d topics of the other brokers, too", broker, len(configs))
                return
            why = f"code {reply.code}: {reply.remark}"
            break
        _log.warning(
            "%s was not given %d topics that other brokers have, the first is %s: %s; `tianzhou topic create` makes"
            " a topic on all",
            broker, len(configs), configs[0].topic_name, why,
        )  # fmt: skip

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = start_awaited(work)
        self._tasks.add(task)
        task.add_done_callback(self._failed)

    def _failed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if (error := retrieve_exception(task)) is not None:
            self.failure = self.failure or f"the brokers are no longer looked after: {type(error).__name__}: {error}"
            self._over.set()

    # end

    async def _stop(self) -> None:
        self._stopping = True
        tasks = [*self._tasks, *self._making]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(self._end(place) for place in self.places))
        await self._stack.aclose()

    async def _end(self, place: BrokerPlace) -> None:
        process = place.process
        if process is None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(KILL_AFTER_S):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            code = await process.wait()
        place.process = None
        # A broker that did not serve yet may have been killed by the signal itself.
        if code and place.serves_since is not None:
            self.unclean.append(place.name)


def _as_changes(config: TopicConfig) -> TopicConfig:
    return replace(config, attributes={f"+{key}": value for key, value in config.attributes.items()})

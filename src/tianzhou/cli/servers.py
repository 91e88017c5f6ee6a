"""`serve`, `namesrv`, `broker`: the commands that run servers."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.conf_files import (
    check_port,
    check_served,
    print_ignored,
    print_settings,
    read_conf,
)
from tianzhou.cli.output import Output, OutputOption, print_json, print_line, print_note
from tianzhou.cli.process import BEGAN
from tianzhou.cli.reachability import check_address
from tianzhou.cli.serving.lost_state import accept_in, state_folders
from tianzhou.cli.serving.server_logs import LogFormat, LogFormatOption, LogLevelOption, ServerLogs, set_up_logs
from tianzhou.cli.serving.server_settings import broker_settings, serve_values
from tianzhou.cli.serving.slave_changes import changed_slave
from tianzhou.cli.serving.sub_commands import starts
from tianzhou.cli.signals import import_msgspec, run_server
from tianzhou.errors import ConfigError, Faults, TianzhouError
from tianzhou.setting_rules import check
from tianzhou.settings import bind, dump

if TYPE_CHECKING:
    import asyncio

    from tianzhou.cli.brokers.console_process import Beside
    from tianzhou.cli.brokers.kinds import BrokersKind
    from tianzhou.embedded import EmbeddedSettings
    from tianzhou.remoting.tls import TlsSettings

Stop = Callable[[], Awaitable[None]]
STILL_WAITING_S = 3.0
IMPORTANT_OF_NAMESRV = {"listenPort", "bindAddress", "kvConfigPath", "configStorePath"}
IMPORTANT_OF_BROKER = {
    "brokerClusterName", "brokerName", "brokerId", "brokerIP1", "brokerIP2", "listenPort", "namesrvAddr",
    "storePathRootDir", "storePathCommitLog", "brokerRole", "flushDiskType", "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup", "deleteWhen", "durability", "fileReservedTime", "maxMessageSize", "brokerConfigPath",
}  # fmt: skip


class Flush(StrEnum):
    """The condition on which a message counts as stored."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class TlsMode(StrEnum):
    """The connections that use TLS."""

    permissive = "permissive"
    enforcing = "enforcing"
    disabled = "disabled"


ConfOption = Annotated[Path | None, typer.Option("-c", metavar="FILE", help="RocketMQ's configuration file.")]
PrintAllOption = Annotated[bool, typer.Option("-p", help="Print every setting and exit.")]
PrintImportantOption = Annotated[bool, typer.Option("-m", help="Print the important settings and exit.")]
AcceptLostStateOption = Annotated[
    bool,
    typer.Option("--accept-lost-state", help="Start once without state files that cannot be read; list what is lost."),
]


def serve(
    data: Annotated[Path, typer.Option(help="Folder for everything the server keeps.")] = Path("tianzhou-data"),
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    advertise: Annotated[str, typer.Option(help="Address that clients connect to; default: derived from --host.")] = "",
    namesrv_port: Annotated[int, typer.Option(help="Name server port, 0 for any free one.")] = 9876,
    broker_port: Annotated[int, typer.Option(help="Broker port, 0 for any free one; it uses the port 2 below too.")] = (
        10911
    ),
    flush: Annotated[
        Flush | None, typer.Option(help="SYNC_FLUSH acknowledges after the disk has it; default: ASYNC_FLUSH.")
    ] = None,
    tls: Annotated[
        TlsMode | None,
        typer.Option(help="permissive (default): TLS with who begins to, plain with the others; enforcing: only TLS."),
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option(metavar="N", help="Broker processes, or auto: one per core; default: as many as the folder has."),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(metavar="N", help="Members of one group, each with every message; default: as the folder has."),
    ] = None,
    tls_config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="RocketMQ's tls.* keys; without them it is self-signed.")
    ] = None,
    config: ConfOption = None,
    set_values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting under RocketMQ's key; may be repeated."),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Serve the web console, too, in a process of its own, on 127.0.0.1.")
    ] = False,
    console_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="The console's port, 0 for any free one; implies --console.")
    ] = None,
    accept_lost_state: AcceptLostStateOption = False,
    log_format: LogFormatOption = LogFormat.text,
    log_level: LogLevelOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Run name server and broker in this process, or several brokers in processes of their own.

    Segments have 64 MiB, unexpired data is never deleted, Ctrl-C ends it. What `tianzhou config set` changes stays.

    Example: tianzhou serve --data ./data
    """
    import_msgspec()
    from tianzhou.broker.settings import LINGER_MICROS
    from tianzhou.broker.zero_loss import with_profile
    from tianzhou.cli.brokers.console_process import port_of, start_beside
    from tianzhou.cli.brokers.kinds import Group, Several
    from tianzhou.cli.brokers.plan import broker_count
    from tianzhou.data_folder import count_in
    from tianzhou.embedded import EmbeddedSettings
    from tianzhou.remoting.tls import load_tls

    logs = set_up_logs(log_format, log_level)
    faults = Faults()
    with faults.noted():
        check_port("--namesrv-port", namesrv_port)
    with faults.noted():
        check_port("--broker-port", broker_port, least=3)
    console_port = port_of(console, console_port)
    values, tls_values = serve_values(config, set_values or [], faults)
    flags = {"tls.server.mode": tls, "tls.config.file": tls_config}
    tls_values |= {key: str(flag) for key, flag in flags.items() if flag is not None}
    tls_settings = load_tls(tls_values, source="--tls-config" if tls_config else str(config or "--set"), faults=faults)
    faults.check()
    folder = data.expanduser()
    if accept_lost_state:
        accept_in(state_folders(folder))
    members = _members(replicas, brokers, folder)
    count = members or broker_count(brokers, count_in(folder), _cores())
    if with_profile(values).get("durability", "").strip() and not members:
        raise ConfigError(
            f"durability={values['durability']}: brokers of `tianzhou serve` have no copies; give --replicas 3, or see "
            "docs/howto/zero-loss.md for `tianzhou broker`"
        )
    settings = EmbeddedSettings(
        folder,
        host,
        advertise,
        namesrv_port,
        broker_port,
        flush=flush.value if flush else "",
        linger_micros=LINGER_MICROS,
        values=values,
    )
    if count > 1:
        kind = Group.of(members) if members else Several.of(count)
        _serve_several(settings, kind, tls_values, tls_settings, console_port, output, logs)
        return

    async def start() -> Stop:
        from tianzhou import _hot
        from tianzhou.embedded import EmbeddedServer

        server = EmbeddedServer(settings, tls=tls_settings)
        await server.__aenter__()
        beside = await start_beside(server, console_port, folder, tls_settings, logs)
        _announce(
            output,
            f"ready: name server {server.namesrv_address}, broker {server.broker_address}, data {data} "
            f"({time.monotonic() - BEGAN:.2f} s, {how_fast(_hot.MODE)})",
            {
                "namesrv": server.namesrv_address,
                "broker": server.broker_address,
                "brokers": [{"name": settings.broker_name, "address": server.broker_address, "pid": os.getpid()}],
                "data": str(data),
                "mode": _hot.MODE,
                **_page_field(server.metrics_url),
                **beside.fields,
            },
        )
        checking = (
            check_address(server.broker_address, "--advertise", tls_settings, server.broker.hooks)
            if advertise
            else None
        )
        return _stopper(server, checking, beside=beside)

    run_server(start)


def _page_field(url: str) -> dict[str, str]:
    return {"metrics": url} if url else {}


def _members(replicas: int | None, brokers: str | None, folder: Path) -> int:
    """Return the number of members of the group to serve; 0 for no group.

    Raises:
        ConfigError: the group cannot be served.
    """
    from tianzhou.cli.brokers.kinds import Group, member_count
    from tianzhou.data_folder import members_in

    members = member_count(replicas, members_in(folder))
    if not members:
        return 0
    if brokers is not None:
        raise ConfigError(f"--brokers {brokers} and --replicas {members} exclude each other: a group is one broker")
    ports = dict.fromkeys(Group.of(members).names, 0)
    for name in ports:
        check_served(Group.of(members).values(name, ports, "127.0.0.1"), f"--replicas {members}")
    return members


def how_fast(hot: str) -> str:
    """Describe the speed of this process: whether its hot functions are compiled, and how Python was built.

    Args:
        hot: `_hot.MODE` of the serving process.
    """
    from tianzhou.doctor.looks.interpreter import optimised

    return f"{hot} mode" + (", Python built without optimisation: 1.5 times slower" if optimised() is False else "")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _serve_several(
    settings: EmbeddedSettings,
    kind: BrokersKind,
    tls_values: dict[str, str],
    tls: TlsSettings,
    console_port: int | None,
    output: Output,
    logs: ServerLogs,
) -> None:
    from tianzhou.broker.zero_loss import described
    from tianzhou.cli.brokers.console_process import start_beside
    from tianzhou.cli.brokers.supervisor import BrokersSupervisor

    supervisor = BrokersSupervisor(settings, kind, tls=tls_values, tls_settings=tls, logs=logs)

    async def start() -> Stop:
        await supervisor.__aenter__()
        beside = await start_beside(supervisor, console_port, settings.data, tls, logs)
        places = supervisor.places
        listed = ", ".join(f"{place.name} {place.address}" for place in places)
        what = f"group {kind.broker_name(places[0].name)} of" if kind.elects else "brokers"
        if profile := described(places[0].order.values):
            print_note(profile)
        brokers = [
            {"name": place.name, "address": place.address, "pid": place.process.pid if place.process else None}
            for place in places
        ]
        _announce(
            output,
            f"ready: name server {supervisor.namesrv_address}, {what} {listed}, data {settings.data} "
            f"({time.monotonic() - BEGAN:.2f} s, {how_fast(supervisor.mode)})",
            {
                "namesrv": supervisor.namesrv_address,
                "broker": places[0].address,
                "brokers": brokers,
                "data": str(settings.data),
                "mode": supervisor.mode,
                **beside.fields,
            },
        )
        addresses = [place.address for place in places] if settings.advertise else []
        checks = [check_address(address, "--advertise", tls) for address in addresses]
        return _stopper(supervisor, *checks, beside=beside)

    run_server(start, over=supervisor.over, at_once=supervisor.kill)
    if supervisor.failure:
        raise TianzhouError(supervisor.failure)
    if supervisor.unclean:
        whose = " and ".join(supervisor.unclean)
        raise TianzhouError(f"{whose} did not end in order; the next start recovers the store")


def namesrv(
    config: ConfOption = None,
    port: Annotated[int | None, typer.Option("--port", help="Listen port, instead of the file's.")] = None,
    accept_lost_state: AcceptLostStateOption = False,
    print_all: PrintAllOption = False,
    print_important: PrintImportantOption = False,
    log_format: LogFormatOption = LogFormat.text,
    log_level: LogLevelOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Run a name server with RocketMQ's flags and keys.

    Example: tianzhou namesrv -c namesrv.conf
    """
    import_msgspec()
    from tianzhou.namesrv.changeable_settings import RULES
    from tianzhou.namesrv.settings import IGNORED, NamesrvSettings
    from tianzhou.remoting.tls import TlsSettings, load_tls

    set_up_logs(log_format, log_level)
    faults = Faults()
    values = read_conf(config, NamesrvSettings, TlsSettings, faults=faults)
    if port is not None:
        values["listenPort"] = str(port)
    if config is not None:
        values.setdefault("configStorePath", str(config))
    source = str(config or "flags")
    settings = bind(NamesrvSettings, values, source=source, faults=faults)
    with faults.noted("listenPort"):
        check_port(f"{source}: listenPort", settings.listen_port)
    check(RULES, settings, source=source, faults=faults)
    tls = load_tls(values, source=source, faults=faults)
    faults.check()
    print_ignored(source, IGNORED, settings)
    if print_all or print_important:
        print_settings([settings, tls], None if print_all else IMPORTANT_OF_NAMESRV, output, IGNORED)
        return
    if accept_lost_state:
        accept_in([settings.kv_config_file.parent])

    async def start() -> Stop:
        from tianzhou.namesrv.server import NameServer

        server = NameServer(settings, tls=tls)
        await server.__aenter__()
        _announce(
            output,
            f"ready: name server on {settings.bind_address}:{server.port} ({time.monotonic() - BEGAN:.2f} s)",
            {"port": server.port, **_page_field(server.metrics_url)},
        )
        return _stopper(server)

    run_server(start)


def broker(
    context: typer.Context,
    config: ConfOption = None,
    namesrv_addr: Annotated[
        str, typer.Option("-n", metavar="HOST:PORT", help="Name servers, several joined by ';'.")
    ] = "",
    promote: Annotated[
        bool,
        typer.Option("--promote", help="Make a slave the master: -c FILE becomes a master's. Stop the old one first."),
    ] = False,
    allow_cut: Annotated[
        bool, typer.Option("--allow-cut", help="Let a slave whose log differs from its master's cut its log, once.")
    ] = False,
    accept_lost_state: AcceptLostStateOption = False,
    print_all: PrintAllOption = False,
    print_important: PrintImportantOption = False,
    log_format: LogFormatOption = LogFormat.text,
    log_level: LogLevelOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Run a broker with RocketMQ's flags and keys; or look at brokers that run: `list`, `show`.

    Example: tianzhou broker -n 127.0.0.1:9876 -c broker.conf
    """
    if not starts(context):
        return
    import_msgspec()
    from tianzhou.broker.ignored_settings import IGNORED
    from tianzhou.broker.zero_loss import described

    set_up_logs(log_format, log_level)
    found = broker_settings(config, namesrv_addr)
    if promote or allow_cut:
        found = changed_slave(found, config, namesrv_addr, promote=promote, allow_cut=allow_cut)
    settings, store_settings, tls = found
    if print_all or print_important:
        print_settings([settings, store_settings, tls], None if print_all else IMPORTANT_OF_BROKER, output, IGNORED)
        return
    if accept_lost_state:
        accept_in([store_settings.root / "config"])

    async def start() -> Stop:
        from tianzhou import _hot
        from tianzhou.broker.server import Broker

        if profile := described(dump(store_settings)):
            print_note(profile)
        server = Broker(settings, store_settings, tls=tls)
        await server.__aenter__()
        took = time.monotonic() - BEGAN
        if settings.namesrv_addr or settings.fetch_namesrv_addr_by_address_server:
            try:
                await _registered(server.ready(), settings.namesrv_addr or f"one that {settings.namesrv_domain} lists")
            except BaseException:
                # A signal cancels the wait for a name server. Close the store in this case too.
                await server.__aexit__(None, None, None)
                raise
        else:
            print_note("warning: no name server is given, so clients cannot find this broker; give -n host:port")
        _announce(
            output,
            f"ready: broker {settings.broker_name} on {server.address} ({took:.2f} s, {how_fast(_hot.MODE)})",
            {"name": settings.broker_name, "address": server.address, "port": server.port, "mode": _hot.MODE}
            | _page_field(server.metrics_url),
        )
        return _stopper(server, check_address(server.address, "brokerIP1", tls, server.hooks))

    run_server(start)


async def _registered(ready: Coroutine[Any, Any, None], namesrv_addr: str) -> None:
    """Wait for the registration at the name servers, and print a note if that takes long."""
    import asyncio

    from tianzhou.supervision import start_awaited

    waiting = start_awaited(ready)
    try:
        done, _ = await asyncio.wait({waiting}, timeout=STILL_WAITING_S)
        if not done:
            print_note(f"not ready yet: the broker runs, and waits for a name server: {namesrv_addr}")
        await waiting
    finally:
        waiting.cancel()


def _stopper(server: Any, *tasks: asyncio.Task[None] | None, beside: Beside | None = None) -> Stop:
    import asyncio

    async def stop() -> None:
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(server.__aexit__(None, None, None), beside.stop() if beside else asyncio.sleep(0))
        if undone := getattr(server, "left_undone", None):
            raise TianzhouError(f"stopped, but not all is well: {'; '.join(undone)}")

    return stop


def _announce(output: Output, text: str, fields: dict[str, Any]) -> None:
    if output is Output.json:
        print_json({"event": "ready", "pid": os.getpid(), **fields})
    else:
        print_line(text + "".join(f", {name} {fields[name]}" for name in ("metrics", "console") if name in fields))

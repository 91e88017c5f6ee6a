"""`serve`, `namesrv`, `broker`: the processes that stay."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tianzhou.cli.output import Output, OutputOption, print_json, print_line, print_note
from tianzhou.errors import ConfigError
from tianzhou.settings import bind, dump, format_properties, parse_properties, unknown_keys

log = logging.getLogger(__name__)
STOP_LIMIT_S = 5.0


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(help=serve.__doc__)(serve)
    app.command(help=namesrv.__doc__)(namesrv)
    app.command(help=broker.__doc__)(broker)


def serve(
    data: Annotated[Path, typer.Option(help="Folder for everything the server keeps.")] = Path("tianzhou-data"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    advertise: Annotated[str, typer.Option(help="Address clients are told; default: derived from --host.")] = "",
    namesrv_port: Annotated[int, typer.Option(help="Name server port, 0 for any free one.")] = 9876,
    broker_port: Annotated[int, typer.Option(help="Broker port, 0 for any free one.")] = 10911,
    flush: Annotated[
        str, typer.Option(help="ASYNC_FLUSH, or SYNC_FLUSH to acknowledge after the disk.")
    ] = "ASYNC_FLUSH",
    output: OutputOption = Output.text,
) -> None:
    """Run name server and broker in this process, for laptops and tests.

    Example: tianzhou serve --data ./data
    """
    if flush not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise ConfigError(f"--flush {flush}: expected ASYNC_FLUSH or SYNC_FLUSH")

    async def body(started: float) -> Callable[[], Awaitable[None]]:
        from tianzhou import _hot
        from tianzhou.embedded import EmbeddedServer, EmbeddedSettings

        server = EmbeddedServer(EmbeddedSettings(data, host, advertise, namesrv_port, broker_port, flush=flush))
        await server.__aenter__()
        _announce(
            output,
            f"ready: name server {server.namesrv_address}, broker {server.broker_address}, data {data} "
            f"({time.monotonic() - started:.2f} s, {_hot.MODE} mode)",
            {
                "namesrv": server.namesrv_address,
                "broker": server.broker_address,
                "data": str(data),
                "mode": _hot.MODE,
            },
        )

        async def stop() -> None:
            await server.__aexit__(None, None, None)

        return stop

    _run_server(body)


def namesrv(
    config: Annotated[Path | None, typer.Option("-c", help="namesrv.conf, RocketMQ's keys.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Listen port, instead of the file's.")] = None,
    print_all: Annotated[bool, typer.Option("-p", help="Print every setting and exit.")] = False,
    print_important: Annotated[bool, typer.Option("-m", help="Print the important settings and exit.")] = False,
    output: OutputOption = Output.text,
) -> None:
    """Run a name server with RocketMQ's flags and keys.

    Example: tianzhou namesrv -c namesrv.conf
    """
    from tianzhou.namesrv.settings import NamesrvSettings

    values = _read_config(config, NamesrvSettings)
    if port is not None:
        values["listenPort"] = str(port)
    if config is not None:
        values.setdefault("configStorePath", str(config))
    settings = bind(NamesrvSettings, values, source=str(config or "flags"))
    if print_all or print_important:
        important = {"listenPort", "bindAddress", "kvConfigPath", "configStorePath"}
        _print_settings([settings], None if print_all else important, output)
        return

    async def body(started: float) -> Callable[[], Awaitable[None]]:
        from tianzhou.namesrv.server import NameServer

        server = NameServer(settings)
        await server.__aenter__()
        _announce(
            output,
            f"ready: name server on port {server.port} ({time.monotonic() - started:.2f} s)",
            {"port": server.port},
        )

        async def stop() -> None:
            await server.__aexit__(None, None, None)

        return stop

    _run_server(body)


def broker(
    config: Annotated[Path | None, typer.Option("-c", help="broker.conf, RocketMQ's keys.")] = None,
    namesrv_addr: Annotated[str, typer.Option("-n", help="Name servers, host:port joined by ';'.")] = "",
    print_all: Annotated[bool, typer.Option("-p", help="Print every setting and exit.")] = False,
    print_important: Annotated[bool, typer.Option("-m", help="Print the important settings and exit.")] = False,
    output: OutputOption = Output.text,
) -> None:
    """Run a broker with RocketMQ's flags and keys.

    Example: tianzhou broker -n 127.0.0.1:9876 -c broker.conf
    """
    from tianzhou.broker.settings import BrokerSettings
    from tianzhou.store.settings import StoreSettings

    values = _read_config(config, BrokerSettings, StoreSettings)
    if namesrv_addr:
        values["namesrvAddr"] = namesrv_addr
    if config is not None:
        values.setdefault("brokerConfigPath", str(config))
    if "storePathRootDir" in values:
        values.setdefault("storePathCommitLog", str(Path(values["storePathRootDir"]) / "commitlog"))
    source = str(config or "flags")
    settings = bind(BrokerSettings, values, source=source)
    store_settings = bind(StoreSettings, values, source=source)
    if print_all or print_important:
        important = {
            "brokerClusterName", "brokerName", "brokerId", "brokerIP1", "listenPort", "namesrvAddr",
            "storePathRootDir", "storePathCommitLog", "flushDiskType", "autoCreateTopicEnable", "deleteWhen",
            "fileReservedTime",
        }  # fmt: skip
        _print_settings([settings, store_settings], None if print_all else important, output)
        return

    async def body(started: float) -> Callable[[], Awaitable[None]]:
        from tianzhou import _hot
        from tianzhou.broker.server import Broker

        server = Broker(settings, store_settings)
        await server.__aenter__()
        if settings.namesrv_addr:
            await server.ready()
        _announce(
            output,
            f"ready: broker {settings.broker_name} on port {server.port} "
            f"({time.monotonic() - started:.2f} s, {_hot.MODE} mode)",
            {"name": settings.broker_name, "port": server.port, "mode": _hot.MODE},
        )

        async def stop() -> None:
            await server.__aexit__(None, None, None)

        return stop

    _run_server(body)


def _announce(output: Output, text: str, fields: dict[str, Any]) -> None:
    if output is Output.json:
        print_json({"event": "ready", "pid": os.getpid(), **fields})
    else:
        print_line(text)


def _run_server(body: Callable[[float], Awaitable[Callable[[], Awaitable[None]]]]) -> None:
    from tianzhou.remoting.loop import run

    started = time.monotonic()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        starting = asyncio.current_task()

        def end() -> None:
            if ended.is_set():
                # Asked a second time: someone is in a hurry, and recovery is made for this.
                os._exit(1)
            ended.set()
            if starting is not None and not serving:
                starting.cancel()

        serving = False
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end)
        try:
            stop = await body(started)
        except asyncio.CancelledError:
            return
        serving = True
        await ended.wait()
        began = time.monotonic()
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await stop()
        except TimeoutError:
            print_note(f"not stopped cleanly within {STOP_LIMIT_S:g} s; the next start will recover the store")
            os._exit(1)
        log.info("stopped in %.2f s", time.monotonic() - began)

    run(main())


def _read_config(path: Path | None, *classes: type) -> dict[str, str]:
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"-c {path}: cannot be read: {error}") from error
    values = parse_properties(text, source=str(path))
    for key, near in unknown_keys(values, *classes).items():
        hint = f"; did you mean {near}?" if near else ""
        print_note(f"warning: {path}: unknown key {key} is ignored{hint}")
    return values


def _print_settings(settings: list[Any], only: set[str] | None, output: Output) -> None:
    values = {key: value for key, value in dump(*settings).items() if only is None or key in only}
    if output is Output.json:
        print_json(values)
    else:
        print_line(format_properties(values).rstrip("\n"))

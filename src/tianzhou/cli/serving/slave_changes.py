"""`tianzhou broker --promote` and `--allow-cut`: changes of a slave by an operator, after the slave has halted."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tianzhou.cli.serving.server_settings import broker_settings
from tianzhou.errors import ConfigError, TianzhouError
from tianzhou.file_modes import replace_file
from tianzhou.setting_files import decoded
from tianzhou.settings import parse_properties

if TYPE_CHECKING:
    from tianzhou.broker.settings import BrokerSettings
    from tianzhou.remoting.tls import TlsSettings
    from tianzhou.store.settings import StoreSettings

    Settings = tuple[BrokerSettings, StoreSettings, TlsSettings]

_REPLACED: Final = re.compile(r"[ \t\f]*(?:brokerRole|brokerId|haMasterAddress)[ \t\f]*(?:[=:]|[ \t\f]).*")
_ANSWER_S: Final = 3.0
"""Seconds to wait for a connection to the former master, which should be refused."""


def changed_slave(
    present: Settings, config: Path | None, namesrv_addr: str, *, promote: bool, allow_cut: bool
) -> Settings:
    """Return the settings of a slave that becomes the master, or that may cut its log once.

    Args:
        present: the slave's settings.
        config: the slave's configuration file, which `promote` rewrites.
        namesrv_addr: value of the flag; overrides the file's key.
        promote: whether the slave becomes the master.
        allow_cut: whether the slave may cut its log once.

    Raises:
        ConfigError: the broker is not a slave, the options exclude each other, or the former master still answers.
    """
    from tianzhou.store.startup.marked_cut import allow_cut as allow

    settings, store_settings, _ = present
    if promote and allow_cut:
        raise ConfigError("--promote keeps what --allow-cut would cut: give one of them")
    if promote:
        _promote(config, settings.namesrv_addr, settings.broker_name)
        return broker_settings(config, namesrv_addr)
    if store_settings.broker_role != "SLAVE":
        raise ConfigError(f"--allow-cut: brokerRole={store_settings.broker_role} is no slave's; start without it")
    try:
        allow(store_settings.root)
    except OSError as error:
        raise ConfigError(f"--allow-cut: cannot write to {store_settings.root}: {error.strerror}") from error
    return present


def promoted(text: str, source: str) -> str:
    """Return the text of a slave's configuration as a master's. Lines of other keys are not changed.

    Args:
        text: the slave's configuration.
        source: name of the file, for the error.

    Raises:
        ConfigError: the configuration is not that of a slave.
    """
    values = parse_properties(text, source=source)
    if values.get("brokerRole", "").strip() != "SLAVE":
        raise ConfigError(
            f"{source}: --promote, but brokerRole={values.get('brokerRole', '') or 'ASYNC_MASTER'} is no slave's; "
            "start this broker without --promote"
        )
    # A pair with zero loss waits for its slave. Any other broker serves alone immediately.
    role = "SYNC_MASTER" if values.get("durability", "").strip() == "zero-loss" else "ASYNC_MASTER"
    kept = [line for line in text.splitlines() if not _REPLACED.fullmatch(line)]
    return "\n".join([*kept, f"brokerRole={role}", "brokerId=0", ""])


def _promote(config: Path | None, namesrv_addr: str, broker_name: str) -> None:
    """Replace the configuration file of a slave with that of a master. The former text is saved as `.bak`.

    Args:
        config: the file.
        namesrv_addr: name servers of the broker, several joined by `;`.
        broker_name: name of the broker.

    Raises:
        ConfigError: the file is missing, is not that of a slave or cannot be written, or the former master still
            answers.
    """
    if config is None:
        raise ConfigError("--promote: give the slave's configuration file by -c FILE")
    text = promoted(decoded(config.read_bytes()), str(config))
    if address := asyncio.run(_answering_master(namesrv_addr, broker_name)):
        raise ConfigError(
            f"--promote: the master of {broker_name} still answers at {address}: stop it first, because two masters of "
            "one name would store different messages"
        )
    try:
        replace_file(config, text.encode(), backup=config.with_name(config.name + ".bak"))
    except OSError as error:
        raise ConfigError(f"--promote: cannot write {config}: {error.strerror}; make its folder writable") from error


async def _answering_master(namesrv_addr: str, broker_name: str) -> str:
    """Return the address of the registered master that accepts connections; empty without one."""
    from tianzhou.remoting.client import RemotingClient
    from tianzhou.wire.bodies.route import CLUSTER_INFO
    from tianzhou.wire.codes import RequestCode
    from tianzhou.wire.command import Command

    async with RemotingClient() as client:
        for server in filter(None, (one.strip() for one in namesrv_addr.split(";"))):
            try:
                reply = await client.invoke(server, Command(RequestCode.GET_BROKER_CLUSTER_INFO), _ANSWER_S * 1000)
                brokers = CLUSTER_INFO.loads(reply.body).broker_addr_table
            except TianzhouError:
                continue  # another name server may have its address
            master = brokers[broker_name].broker_addrs.get(0, "") if broker_name in brokers else ""
            if master and await _accepts(master):
                return master
    return ""


async def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_ANSWER_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, ValueError, TimeoutError):
        return False
    writer.close()
    return True

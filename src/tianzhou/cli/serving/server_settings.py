"""Settings of servers from files and flags. One error lists all faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tianzhou.cli.conf_files import check_given, check_port, print_ignored, read_assignments, read_conf
from tianzhou.cli.output import print_note
from tianzhou.errors import ConfigError, Faults
from tianzhou.setting_rules import check
from tianzhou.settings import bind, ignored_lines

if TYPE_CHECKING:
    from tianzhou.broker.settings import BrokerSettings
    from tianzhou.remoting.tls import TlsSettings
    from tianzhou.store.settings import StoreSettings


def serve_values(
    config: Path | None, assignments: Sequence[str], faults: Faults
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of `serve` from `-c` and `--set`. `--set` overrides `-c`.

    Args:
        config: the file of `-c`.
        assignments: the `key=value` of each `--set`.
        faults: collects each wrong line and value.

    Returns:
        The settings of the servers, and the settings of TLS.
    """
    from tianzhou.broker.changeable_settings import RULES
    from tianzhou.broker.ignored_settings import IGNORED
    from tianzhou.broker.settings import BrokerSettings
    from tianzhou.embedded import check_values
    from tianzhou.namesrv.changeable_settings import RULES as RULES_OF_NAMESRV
    from tianzhou.namesrv.settings import IGNORED as IGNORED_OF_NAMESRV
    from tianzhou.namesrv.settings import NamesrvSettings
    from tianzhou.remoting.tls import KEYS, TlsSettings
    from tianzhou.store.settings import StoreSettings

    classes = BrokerSettings, StoreSettings, NamesrvSettings, TlsSettings
    of_file = read_conf(config, *classes, faults=faults)
    of_flags = read_assignments("--set", assignments, *classes, faults=faults)
    values = of_file | of_flags
    with faults.noted():
        check_values(values)
    servers = ((RULES, (BrokerSettings, StoreSettings)), (RULES_OF_NAMESRV, (NamesrvSettings,)))
    in_force = {key: value for key, value in of_file.items() if key not in of_flags}
    for origin, given in ((f"-c {config}", in_force), ("--set", of_flags)):
        for rules, kinds in servers:
            check_given(rules, kinds, given, origin, faults)
    source = " ".join(text for text, used in ((f"-c {config}", config), ("--set", assignments)) if used)
    for line in dict.fromkeys(ignored_lines(values, IGNORED) + ignored_lines(values, IGNORED_OF_NAMESRV)):
        print_note(f"warning: {source}: {line}")
    of_tls = {key: value for key, value in values.items() if key in KEYS}
    return {key: value for key, value in values.items() if key not in KEYS}, of_tls


def _note_slave_faults(settings: BrokerSettings, store_settings: StoreSettings, source: str, faults: Faults) -> None:
    """Add a fault for each setting with which a slave cannot find its master.

    Args:
        settings: the slave's settings.
        store_settings: settings of the slave's store.
        source: name of the file with the settings.
        faults: collects the faults.
    """
    if settings.broker_id <= 0:
        faults.note(f"{source}: brokerRole=SLAVE with brokerId={settings.broker_id}: a slave's is 1 or more")
    if settings.namesrv_addr or settings.fetch_namesrv_addr_by_address_server:
        return
    if not store_settings.ha_master_address:
        faults.note(f"{source}: brokerRole=SLAVE without namesrvAddr: a slave learns its master from there")
        return
    print_note(
        f"warning: {source}: haMasterAddress without namesrvAddr: this slave copies the log only. Name servers tell it "
        "where its master serves topics, groups and offsets"
    )


def broker_settings(config: Path | None, namesrv_addr: str) -> tuple[BrokerSettings, StoreSettings, TlsSettings]:
    """Return a broker's settings from its file and flags, with the values RocketMQ derives (broker.md §3.1).

    Args:
        config: the file; None without a file.
        namesrv_addr: value of the flag; overrides the file's key.

    Raises:
        ConfigError: the file or the flag has faults; the error lists all of them.
    """
    from tianzhou.broker.changeable_settings import RULES
    from tianzhou.broker.ignored_settings import IGNORED
    from tianzhou.broker.settings import BrokerSettings
    from tianzhou.broker.zero_loss import with_profile
    from tianzhou.filter.bloom import BloomFilter
    from tianzhou.remoting.tls import TlsSettings, load_tls
    from tianzhou.store.settings import StoreSettings

    faults = Faults()
    values = read_conf(config, BrokerSettings, StoreSettings, TlsSettings, faults=faults)
    source = str(config or "flags")
    if namesrv_addr:
        values["namesrvAddr"] = namesrv_addr
    if config is not None:
        values.setdefault("brokerConfigPath", str(config))
    with faults.noted("durability"):
        values = with_profile(values)
    settings = bind(BrokerSettings, values, source=source, faults=faults)
    with faults.noted("listenPort"):
        check_port(f"{source}: listenPort", settings.listen_port, least=3)
    if not settings.broker_name.strip():
        faults.note(
            f"{source}: brokerName is empty; give it a name, or remove the key for this machine's", "brokerName"
        )
    _check_addresses(settings, source, "-n" if namesrv_addr else "", faults)
    if settings.listen_port and "listenPort" not in faults.keys:
        values.setdefault("haListenPort", str(settings.listen_port + 1))
    store_settings = bind(StoreSettings, values, source=source, faults=faults)
    check(RULES, settings, store_settings, source=source, faults=faults)
    if store_settings.broker_role == "SLAVE" and "brokerId" not in faults.keys:
        _note_slave_faults(settings, store_settings, source, faults)
    tls = load_tls(values, source=source, faults=faults)
    faults.check()
    # Slaves of RocketMQ 4.9 ignore the key and serve pulls; slaves of 5.3.3 serve them only with `true`. By default a
    # slave serves pulls, so that consumers continue without the master.
    if "slaveReadEnable" not in values:
        settings.slave_read_enable = store_settings.may_follow
    if not store_settings.store_path_commit_log:
        store_settings.store_path_commit_log = str(store_settings.root / "commitlog")
    if not settings.broker_config_path:
        settings.broker_config_path = str(store_settings.root / "config" / "broker.properties")
    if store_settings.broker_role != "SLAVE" and settings.broker_id:
        print_note(f"warning: {source}: brokerId={settings.broker_id}: a master's is 0, and 0 is used")
        settings.broker_id = 0
    # A broker writes its filter's size in bits into its own file. No user has set this value, so print no warning.
    own = BloomFilter(settings.max_error_rate_of_bloom_filter, settings.expect_consumer_num_use_filter).bits
    written = {"bitMapLengthConsumeQueueExt"} if store_settings.bit_map_length_consume_queue_ext == own else ()
    print_ignored(source, IGNORED, settings, store_settings, written=written)
    return settings, store_settings, tls


def _check_addresses(settings: BrokerSettings, source: str, flag: str, faults: Faults) -> None:
    """Check the addresses of a broker and of its name servers.

    Args:
        settings: the broker's settings.
        source: name of the file with the settings.
        flag: the flag that sets the name servers; empty if `source` sets them.
        faults: collects each malformed address, and each address to which no client can connect.
    """
    from tianzhou.client.cluster.identity import name_server_addresses
    from tianzhou.embedded import check_advertised

    try:
        if settings.namesrv_addr:
            name_server_addresses(settings.namesrv_addr)
    except ConfigError as error:
        for text in error.texts:
            faults.note(f"{flag or f'{source}: namesrvAddr'}: {text}", "namesrvAddr")
    for key, address in (("brokerIP1", settings.broker_ip1), ("brokerIP2", settings.broker_ip2)):
        if address:
            with faults.noted(key):
                check_advertised(f"{source}: {key}={address}", address, settings.bind_address)

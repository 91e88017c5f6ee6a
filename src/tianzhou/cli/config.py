"""`config get|set`: the settings of running brokers and name servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.cli.conf_files import assignment
from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    print_json,
    print_line,
    print_note,
)
from tianzhou.cli.topics import with_admin
from tianzhou.errors import ConfigError
from tianzhou.escaping import escaped, shown

if TYPE_CHECKING:
    from tianzhou.admin import Admin

app = typer.Typer(
    help="Settings of running servers: get, set.",
    epilog="Example: tianzhou config set fileReservedTime=48",
    no_args_is_help=True,
)
BrokerOption = Annotated[
    str | None, typer.Option("-b", "--broker", metavar="HOST:PORT", help="Only this broker; else all of them.")
]
ClusterOption = Annotated[str | None, typer.Option("-c", "--cluster", help="Only this cluster's brokers.")]
OfNamesrvOption = Annotated[bool, typer.Option("--namesrv-server", help="The name servers' settings, not brokers'.")]


@app.command()
def get(
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="Which; all without.")] = None,
    broker: BrokerOption = None,
    cluster: ClusterOption = None,
    of_namesrv: OfNamesrvOption = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show settings of running brokers or name servers under RocketMQ's keys.

    Example: tianzhou config get fileReservedTime maxMessageSize
    """
    _check_target(broker, cluster, of_namesrv)
    found = with_admin(namesrv, tls, lambda admin: _present(admin, broker, cluster, of_namesrv))
    for key in keys or ():
        _check_known(key, found)
    wanted = {server: {key: values[key] for key in keys or values} for server, values in found.items()}
    if output is Output.json:
        print_json(wanted)
        return
    for server, values in wanted.items():
        print_line(f"# {server}")
        for key, value in values.items():
            print_line(f"{escaped(key)}={escaped(value)}")


@app.command("set")
def set_settings(
    assignments: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="What is to be changed.")],
    broker: BrokerOption = None,
    cluster: ClusterOption = None,
    of_namesrv: OfNamesrvOption = False,
    at_next_start: Annotated[
        bool,
        typer.Option(
            "--at-next-start", help="Write them to the brokers' files alone, also settings that only a start reads."
        ),
    ] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Change settings of running brokers or name servers; their next start has them, too.

    Paths, ports, names and security are set in the configuration file. Nothing is changed when one value cannot be.

    Example: tianzhou config set fileReservedTime=48
    """
    _check_target(broker, cluster, of_namesrv)
    if at_next_start and of_namesrv:
        raise ConfigError("--at-next-start writes the files of brokers; edit the name servers' files yourself")
    values = dict(map(assignment, assignments))

    async def work(admin: Admin) -> list[str]:
        found = await _present(admin, broker, cluster, of_namesrv)
        # A server ignores unknown keys, so check them here.
        for key in values:
            _check_known(key, found)
        if of_namesrv:
            await admin.cluster.update_namesrv_config(values)
        else:
            for address in found:
                await admin.cluster.update_broker_config(address, values, at_next_start=at_next_start)
        return list(found)

    servers = with_admin(namesrv, tls, work)
    if output is Output.json:
        print_json({"changed": values, "servers": servers, "at_next_start": at_next_start})
        return
    for key, value in values.items():
        print_line(f"{key}={value} at {', '.join(servers)}" + " from the next start on" * at_next_start)
    for line in _without_effect(values, of_namesrv):
        print_note(f"warning: {line}")


def _check_target(broker: str | None, cluster: str | None, of_namesrv: bool) -> None:
    if sum((broker is not None, cluster is not None, of_namesrv)) > 1:
        raise ConfigError("-b, -c and --namesrv-server exclude each other; give one")


def _check_known(key: str, found: Mapping[str, Mapping[str, str]]) -> None:
    from tianzhou.settings import nearest

    for server, values in found.items():
        if key not in values:
            near = nearest(key, values)
            hint = f"did you mean {near}?" if near else "see all with: tianzhou config get"
            raise ConfigError(f"{shown(key)}: {server} has no such key; {hint}")


async def _present(
    admin: Admin, broker: str | None, cluster: str | None, of_namesrv: bool
) -> dict[str, dict[str, str]]:
    """Return the settings of the servers that the options select, by address."""
    if of_namesrv:
        return await admin.cluster.namesrv_config()
    addresses: Sequence[str] = [broker] if broker else sorted((await admin.cluster.masters(cluster)).values())
    return {address: await admin.cluster.broker_config(address) for address in addresses}


def _without_effect(values: Mapping[str, str], of_namesrv: bool) -> list[str]:
    from tianzhou.settings import ignored_lines

    if of_namesrv:
        from tianzhou.namesrv.settings import IGNORED as IGNORED_OF_NAMESRV

        return ignored_lines(values, IGNORED_OF_NAMESRV)
    from tianzhou.broker.ignored_settings import IGNORED

    return ignored_lines(values, IGNORED)

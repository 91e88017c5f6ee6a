"""`topic list|describe|create|delete`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    counted,
    local_time,
    print_fields,
    print_json,
    print_line,
    print_names,
    print_note,
    print_rows,
)
from tianzhou.cli.signals import run_client
from tianzhou.errors import ClientError, ConfigError, UnknownTopic

if TYPE_CHECKING:
    from tianzhou.admin import Admin

T = TypeVar("T")
PERMISSIONS = {"r": 4, "w": 2, "rw": 6}


class Perm(StrEnum):
    """What clients may do with a topic."""

    rw = "rw"
    r = "r"
    w = "w"


app = typer.Typer(
    help="Topics: list, describe, create, delete.",
    epilog="Example: tianzhou topic create orders --queues 4",
    no_args_is_help=True,
)
TopicArgument = Annotated[str, typer.Argument(help="The topic.")]


def confirm(question: str) -> None:
    """Ask at the terminal; without one, nothing is done.

    Raises:
        ConfigError: there is nobody to ask.
        typer.Abort: the answer is no.
    """
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody is there to confirm it; give --yes")
    typer.confirm(question, abort=True, err=True)


def with_admin(
    namesrv: str,
    tls: bool | None,
    work: Callable[[Admin], Awaitable[T]],
    *,
    topic: str | None = None,
    **client_options: Any,
) -> T:
    """Run admin operations against a cluster; returns what they return.

    Args:
        namesrv: the name servers.
        tls: see `TlsOption`.
        work: the operations.
        topic: the topic they are about: when it does not exist, the error names the one of nearest name.
        client_options: further ones of the client.
    """

    async def main() -> T:
        from tianzhou.admin import Admin

        async with Admin(namesrv, tls=tls, **client_options) as admin:
            try:
                return await work(admin)
            except UnknownTopic as error:
                raise await with_nearest(error, topic, admin) from None

    return run_client(main())


async def with_nearest(error: ClientError, topic: str | None, admin: Admin) -> ClientError:
    """An error about a topic that does not exist, with the topic of nearest name if there is one."""
    from tianzhou.settings import nearest

    near = nearest(topic, await admin.topics.names()) if topic else None
    return error if near is None else UnknownTopic(f"{error}; did you mean {near}?")


@app.command("list")
def list_topics(
    system: Annotated[bool, typer.Option("--system", help="Also retry, dead letter and system topics.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List topics.

    Example: tianzhou topic list -n 127.0.0.1:9876
    """

    async def work(admin: Admin) -> list[str]:
        found = await admin.topics.names()
        if system:
            return found
        reserved = set(await admin.topics.system_names())
        return [name for name in found if name not in reserved and not name.startswith("%")]

    print_names(with_admin(namesrv, tls, work), output, "no topics yet; make one with: tianzhou topic create NAME")


@app.command()
def describe(
    topic: TopicArgument,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show a topic's configuration, queues, offsets and consumers.

    Example: tianzhou topic describe orders
    """
    found = with_admin(namesrv, tls, lambda admin: admin.topics.describe(topic), topic=topic)
    if output is Output.json:
        print_json(
            {
                "topic": topic,
                "messages": found.message_count,
                "groups": found.groups,
                "brokers": {
                    name: {
                        "read_queue_nums": config.read_queue_nums,
                        "write_queue_nums": config.write_queue_nums,
                        "perm": config.perm,
                        "order": config.order,
                        "attributes": config.attributes,
                    }
                    for name, config in found.configs.items()
                },
                "queues": [
                    {
                        "broker": queue.broker_name,
                        "queue_id": queue.queue_id,
                        "min_offset": bounds.min_offset,
                        "max_offset": bounds.max_offset,
                        "last_update_timestamp": bounds.last_update_timestamp,
                    }
                    for queue, bounds in found.offsets.items()
                ],
            }
        )
        return
    print_fields({"topic": topic, "messages": found.message_count, "groups": ", ".join(found.groups) or "none"}, output)
    for name, config in found.configs.items():
        perm = ("r" if config.readable else "") + ("w" if config.writable else "")
        print_line(
            f"on {name}: {config.read_queue_nums} read, {config.write_queue_nums} write queues, perm {perm or '-'}"
        )
    print_line("")
    print_rows(
        ("broker", "queue", "min offset", "max offset", "messages", "last stored"),
        [
            (
                q.broker_name,
                q.queue_id,
                b.min_offset,
                b.max_offset,
                b.max_offset - b.min_offset,
                local_time(b.last_update_timestamp),
            )
            for q, b in found.offsets.items()
        ],
        output,
    )


@app.command()
def create(
    topic: TopicArgument,
    queues: Annotated[
        int, typer.Option("-q", "--queues", help="Queues per broker, read and write.", min=1, max=65535)
    ] = 8,
    perm: Annotated[Perm, typer.Option(help="Reading, writing or both.")] = Perm.rw,
    order: Annotated[bool, typer.Option("--order", help="Keep queue order while brokers come and go.")] = False,
    cluster: Annotated[str | None, typer.Option("-c", "--cluster", help="Only on this cluster's brokers.")] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Create a topic on every broker, or replace its configuration.

    Example: tianzhou topic create orders --queues 4
    """

    async def work(admin: Admin) -> tuple[list[str], list[str]]:
        made = await admin.topics.create(
            topic, read_queue_nums=queues, write_queue_nums=queues, perm=PERMISSIONS[perm], order=order, cluster=cluster
        )
        return made, await _brokers_without(topic, cluster, admin)

    brokers, without = with_admin(namesrv, tls, work)
    if output is Output.json:
        print_json({"topic": topic, "queues": queues, "brokers": brokers})
    else:
        print_line(f"topic {topic} with {counted(queues, 'queue')} on {', '.join(brokers)}")
    for name in without:
        print_note(
            f"broker {name} had no master, so topic {topic} was not created on it; repeat the command when tianzhou "
            "status shows its master"
        )


async def _brokers_without(topic: str, cluster: str | None, admin: Admin) -> list[str]:
    """Return the brokers of a cluster, or of all, that do not have a topic: a group's brokers before an election."""
    info = await admin.cluster.info()
    names = set(info.broker_addr_table)
    if cluster is not None:
        names &= set(info.cluster_addr_table.get(cluster, ()))
    route = await admin.topics.route(topic)
    return sorted(names - {data.broker_name for data in route.queue_datas})


@app.command()
def delete(
    topic: TopicArgument,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Delete a topic with its messages from every broker and name server.

    Example: tianzhou topic delete orders --yes
    """
    if not yes:
        confirm(f"delete topic {topic} and all its messages?")

    async def work(admin: Admin) -> bool:
        existed = await admin.topics.exists(topic)
        await admin.topics.delete(topic)
        return existed

    existed = with_admin(namesrv, tls, work)
    if output is Output.json:
        print_json({"topic": topic, "deleted": existed})
    else:
        print_line(f"topic {topic} deleted" if existed else f"topic {topic} did not exist")

"""`topic list|describe|create|update|delete`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
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
    from tianzhou.admin import Admin, QueuePlan

T = TypeVar("T")
PERMISSIONS = {"r": 4, "w": 2, "rw": 6}
MOST_SHOWN = 50
"""Maximum number of queues that a preview lists."""
LOOK_EVERY_S = 1.0
"""Seconds between two checks whether groups have consumed the queues that are to be removed."""


class Perm(StrEnum):
    """Permissions of clients for a topic."""

    rw = "rw"
    r = "r"
    w = "w"


class MessageType(StrEnum):
    """Types of messages that a topic may accept, the values of its attribute `message.type`."""

    unspecified = "unspecified"
    normal = "normal"
    fifo = "fifo"
    delay = "delay"
    transaction = "transaction"
    mixed = "mixed"


app = typer.Typer(
    help="Topics: list, describe, create, update, delete.",
    epilog="Example: tianzhou topic create orders --queues 4",
    no_args_is_help=True,
)
TopicArgument = Annotated[str, typer.Argument(help="The topic.")]


def confirm(question: str) -> None:
    """Ask for confirmation at the terminal.

    Raises:
        ConfigError: there is no terminal.
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
    """Run admin operations on a cluster. Return their result.

    Args:
        namesrv: the name servers.
        tls: see `TlsOption`.
        work: the operations.
        topic: the topic of the operations. If it does not exist, the error contains the most similar topic.
        client_options: further options of the client.
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
    """Return an error about a topic that does not exist, with the most similar topic if there is one."""
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
    only_new: Annotated[bool, typer.Option("--only-new", help="Refuse a name that exists.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Create a topic on every broker, or replace its configuration.

    To change a topic that has messages, use tianzhou topic update.

    Example: tianzhou topic create orders --queues 4
    """

    async def work(admin: Admin) -> tuple[list[str], list[str]]:
        made = await admin.topics.create(
            topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=PERMISSIONS[perm],
            order=order,
            cluster=cluster,
            only_new=only_new,
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
    """Return the brokers of a cluster, or all, that do not have a topic.

    Brokers of a group lack the topic before the group has elected a leader.
    """
    info = await admin.cluster.info()
    names = set(info.broker_addr_table)
    if cluster is not None:
        names &= set(info.cluster_addr_table.get(cluster, ()))
    route = await admin.topics.route(topic)
    return sorted(names - {data.broker_name for data in route.queue_datas})


@app.command()
def update(
    topic: TopicArgument,
    queues: Annotated[
        int | None, typer.Option("-q", "--queues", help="Queues per broker, read and write.", min=1, max=65535)
    ] = None,
    read: Annotated[
        int | None, typer.Option("--read", help="Queues per broker that consumers read.", min=1, max=65535)
    ] = None,
    write: Annotated[
        int | None, typer.Option("--write", help="Queues per broker that producers write.", min=1, max=65535)
    ] = None,
    perm: Annotated[Perm | None, typer.Option(help="Reading, writing or both.")] = None,
    message_type: Annotated[MessageType | None, typer.Option(help="Type of messages that it accepts.")] = None,
    broker: Annotated[
        list[str] | None, typer.Option("-b", "--broker", metavar="NAME", help="Only on this broker; may be repeated.")
    ] = None,
    wait_s: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", help="Time for groups to consume the queues that go.", min=0),
    ] = 60.0,
    drop_unread: Annotated[
        bool, typer.Option("--drop-unread", help="Let queues go with their unread messages.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Change a topic; what is not given stays.

    More queues are read before they are written. Fewer queues are written first, and read when every group has
    consumed the queues that go.

    Example: tianzhou topic update orders --queues 4 --dry-run
    """
    if queues is not None and (read is not None or write is not None):
        raise ConfigError("--queues sets both numbers; leave it out, or leave out --read and --write")
    if queues is None and read is None and write is None and perm is None and message_type is None:
        raise ConfigError(f"nothing to change of topic {topic}; give --queues, --read, --write, --perm, --message-type")
    numbers: dict[str, Any] = {
        "read_queue_nums": queues if read is None else read,
        "write_queue_nums": queues if write is None else write,
        "brokers": broker,
    }

    async def look(admin: Admin) -> QueuePlan:
        return await admin.topics.plan_queues(topic, **numbers)

    async def work(admin: Admin) -> QueuePlan:
        if perm is not None or message_type is not None:
            await admin.topics.update(
                topic,
                perm=None if perm is None else PERMISSIONS[perm],
                attributes=None if message_type is None else {"message.type": message_type.upper()},
                brokers=broker,
            )
        import asyncio  # The import would cost `--help` milliseconds.

        left = await admin.topics.change_queues(topic, drop_unread=drop_unread, **numbers)
        clock = admin.instance.clock
        deadline = clock.monotonic() + wait_s
        while left.steps and clock.monotonic() < deadline:
            await asyncio.sleep(LOOK_EVERY_S)
            left = await admin.topics.change_queues(topic, drop_unread=drop_unread, **numbers)
        return left

    plan = with_admin(namesrv, tls, look, topic=topic)
    if output is Output.text:
        _show_plan(plan)
    if dry_run:
        if output is Output.json:
            print_json(_plan_value(plan, plan))
        else:
            print_note("nothing was changed; leave out --dry-run to do it")
        return
    if drop_unread and (unread := plan.unread()) and not yes:
        confirm(f"let queues of topic {topic} go with unread messages ({_unread_words(unread)})?")
    left = with_admin(namesrv, tls, work, topic=topic)
    if output is Output.json:
        print_json(_plan_value(plan, left))
    if left.steps:
        held_by = _unread_words(left.unread()) or "messages that came meanwhile"
        raise ClientError(
            f"topic {topic} still reads the queues that go, because they have unread messages: {held_by}. Repeat the "
            "command when the groups have consumed them, or give --drop-unread"
        )
    if output is Output.text:
        print_line(f"topic {topic} is changed")


def _unread_words(unread: Mapping[str, int]) -> str:
    return ", ".join(f"{counted(count, 'message')} of group {group}" for group, count in unread.items())


def _show_plan(plan: QueuePlan) -> None:
    """Print the old and new numbers, the steps, and the queues that are to be removed."""
    print_rows(
        ("broker", "read now", "read then", "write now", "write then"),
        [(name, old.read, new.read, old.write, new.write) for name, (old, new) in plan.numbers.items()],
        Output.text,
    )
    for number, step in enumerate(plan.steps, 1):
        once = ", once every group has consumed the queues that go" if step.cuts_reading else ""
        print_line(f"{number}. {counted(step.number, f'{step.use} queue')} on {', '.join(step.brokers)}{once}")
    if held := [queue for queue in plan.dropped if queue.messages]:
        print_line("")
        print_rows(
            ("queue that goes", "messages", "unread"),
            [
                (f"{one.broker_name}:{one.queue_id}", one.messages, _unread_words(one.unread) or "none")
                for one in held[:MOST_SHOWN]
            ],
            Output.text,
        )
        if len(held) > MOST_SHOWN:
            print_note(f"{len(held) - MOST_SHOWN} further queues with messages go")


def _plan_value(plan: QueuePlan, left: QueuePlan) -> dict[str, Any]:
    """Return a change as JSON: the numbers of the first plan, with the remaining steps and queues."""
    return {
        "topic": plan.topic,
        "brokers": {
            name: {
                "read_queue_nums": {"before": old.read, "after": new.read},
                "write_queue_nums": {"before": old.write, "after": new.write},
            }
            for name, (old, new) in plan.numbers.items()
        },
        "steps": [
            {"use": step.use.value, "number": step.number, "brokers": step.brokers, "waits": step.cuts_reading}
            for step in left.steps
        ],
        "dropped": [
            {"broker": one.broker_name, "queue_id": one.queue_id, "messages": one.messages, "unread": dict(one.unread)}
            for one in left.dropped
        ],
        "done": not left.steps,
    }


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

"""Stores of a group's offsets: at the brokers, or in a local file for broadcasting (client.md §16)."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tianzhou.client.cluster import rpc
from tianzhou.client.cluster.identity import local_ip, make_client_id
from tianzhou.client.consumer.options import ConsumerOptions
from tianzhou.client.instance import ClientInstance
from tianzhou.client.namespaces.namespaces import wrap
from tianzhou.client.namespaces.request_names import offsets_inside, offsets_outside
from tianzhou.damaged_files import blank, is_damage, keep_aside, unreadable
from tianzhou.errors import BrokerError, ClientError, ProtocolError, TianzhouError
from tianzhou.file_modes import make_synced_folders, replace_file, sync_folder
from tianzhou.model import ConsumeFromWhere, MessageQueue, names
from tianzhou.wire.bodies.offsets import OFFSET_TABLE
from tianzhou.wire.json_dialect import loads

_log = logging.getLogger(__name__)

OFFSET_DIR_ENV = "ROCKETMQ_CLIENT_LOCALOFFSETSTOREDIR"


class OffsetStore(Protocol):
    """A store of the next offset to consume for each queue."""

    async def load(self) -> None:
        """Prepare the store for `read`."""
        ...

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the stored offset; None without one.

        Raises:
            TianzhouError: the offset cannot be read now.
        """
        ...

    async def persist(self, offsets: Mapping[MessageQueue, int], *, confirm: bool = False) -> set[MessageQueue]:
        """Store offsets.

        Args:
            offsets: the next offset to consume, by queue.
            confirm: whether to wait until the offsets are stored; otherwise they are sent without waiting for an
                answer.

        Returns:
            The queues whose offsets were sent or stored.
        """
        ...


def offset_store(instance: ClientInstance, group: str, options: ConsumerOptions) -> OffsetStore:
    """Return the store of a consumer: a local file for broadcasting, otherwise the group's store at the brokers."""
    if not options.is_broadcast:
        return RemoteOffsets(instance, group, options.consume_from_where)
    # The client id must be the same after a restart. The group's name is the servers' name, as in RocketMQ's own
    # client, so that two namespaces do not share a file.
    client_id = make_client_id(
        local_ip(instance.name_servers[0] if instance.name_servers else ""), options.instance_name
    )
    namespace = instance.namespace
    return LocalOffsets(options.local_offset_dir, client_id, wrap(namespace, group), namespace)


class RemoteOffsets:
    """The group's offsets at the brokers, for clustering.

    Args:
        instance: reaches the brokers.
        group: the consumer group.
        wish: position at which the group begins on queues without an offset. With None the broker chooses, and answers
            0 for young queues.
    """

    def __init__(self, instance: ClientInstance, group: str, wish: ConsumeFromWhere | None = None) -> None:
        self._instance = instance
        self._group = group
        self._wish = wish
        self._begun: set[tuple[str, str]] = set()

    async def load(self) -> None:
        """Do nothing, because every read asks the broker."""

    async def read(self, queue: MessageQueue) -> int | None:
        """See `OffsetStore.read`."""
        address = self._instance.send_address(await self._instance.reader(queue))
        remoting = self._instance.remoting
        # A consumer may send a message back before a member is assigned the retry topic's queue. So read retry topics
        # from their beginning, whatever position is configured for other topics.
        if self._wish is None or queue.topic.startswith(names.RETRY_PREFIX):
            return await rpc.query_offset(remoting, address, self._group, queue)
        offset, sure = await rpc.query_committed(remoting, address, self._group, queue)
        if (
            sure
            or self._wish is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            or await self._has_committed(address, queue)
        ):
            return offset
        return None

    async def _has_committed(self, address: str, queue: MessageQueue) -> bool:
        """Whether a broker before 5.0 that answers 0 for a queue has a committed offset of the group.

        A wrong False makes the group skip messages, so the method returns True in any doubt.
        """
        if queue.topic.startswith(names.LMQ_PREFIX):
            return True
        limit_ms = self._instance.api_timeout_ms
        if await rpc.max_offset(self._instance.remoting, address, queue, limit_ms) == 0:
            return True  # an empty queue begins at 0 with and without a commit
        try:
            table = await rpc.all_committed(self._instance.remoting, address)
        except (BrokerError, ProtocolError) as error:
            _log.warning(
                "group %s begins %s at offset 0: broker %s is older than 5.0 and does not show whether the group has "
                "an offset there (%s); to begin elsewhere, reset the group's offsets before it starts",
                self._group,
                queue,
                address,
                error,
            )
            return True
        namespace = self._instance.namespace
        key = f"{wrap(namespace, queue.topic)}@{wrap(namespace, self._group)}"
        return queue.queue_id in table.get(key, {})

    async def persist(self, offsets: Mapping[MessageQueue, int], *, confirm: bool = False) -> set[MessageQueue]:
        """See `OffsetStore.persist`."""
        # Apache's broker creates its table for a group and topic at the first commit. It can lose one of two commits
        # that arrive at the same time. So wait for the answer to the first commit before the others are sent.
        first = {
            (queue.broker_name, queue.topic): queue
            for queue in offsets
            if (queue.broker_name, queue.topic) not in self._begun
        }
        ahead = set(first.values())
        done = await self._store({queue: offsets[queue] for queue in first.values()}, confirm=True)
        self._begun.update((queue.broker_name, queue.topic) for queue in done)
        rest = {queue: offset for queue, offset in offsets.items() if queue not in ahead}
        return done | await self._store(rest, confirm=confirm)

    async def _store(self, offsets: Mapping[MessageQueue, int], *, confirm: bool) -> set[MessageQueue]:
        async def one(queue: MessageQueue, offset: int) -> MessageQueue | None:
            try:
                address = self._instance.send_address(await self._instance.reader(queue))
                if confirm:
                    await rpc.update_offset(self._instance.remoting, address, self._group, queue, offset)
                else:
                    await self._instance.remoting.invoke_oneway(
                        address, rpc.update_offset_request(self._group, queue, offset)
                    )
            except TianzhouError as error:
                _log.warning("offset %d of %s could not be stored for group %s: %s", offset, queue, self._group, error)
                return None
            return queue

        done = await asyncio.gather(*(one(queue, offset) for queue, offset in offsets.items()))
        return {queue for queue in done if queue is not None}


class LocalOffsets:
    """One member's offsets in a file in RocketMQ's format, for broadcasting.

    Args:
        directory: the folder of all local offsets; None uses the environment's folder, or `~/.rocketmq_offsets`.
        client_id: name of this client's folder; it has to be the same after a restart.
        group: the consumer group, by its name at the servers.
        namespace: namespace of the topics; the file has the servers' names.
    """

    def __init__(self, directory: Path | str | None, client_id: str, group: str, namespace: str | None = None) -> None:
        root = directory or os.environ.get(OFFSET_DIR_ENV) or Path.home() / ".rocketmq_offsets"
        self.path = Path(root) / client_id / group / "offsets.json"
        self._namespace = namespace
        self._offsets: dict[MessageQueue, int] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read the file, or its backup when the file is missing or damaged. A damaged file is renamed and not deleted.

        Without both files the member begins as a new one, at its `consume_from_where`.

        Raises:
            ClientError: a file is damaged and no backup can be read, or this user may not read a file.
        """
        problems = []
        for candidate in (self.path, self._backup):
            try:
                text = candidate.read_bytes()
                if problem := blank(text):
                    raise ProtocolError(problem)
                self._offsets = offsets_inside(self._namespace, _table(text))
            except FileNotFoundError:
                continue
            except OSError as error:
                if not is_damage(error):
                    raise ClientError(f"local offsets: {unreadable(candidate, error)}") from error
                problems.append(f"{candidate}: {error.strerror}")
            except TianzhouError as error:
                problems.append(f"{candidate}: {error}")
            else:
                if problems:
                    aside = keep_aside(self.path)
                    _log.error(
                        "local offsets: %s; the version before it, %s, is used%s", "; ".join(problems), candidate.name,
                        "" if aside is None else f"; the damaged file is saved as {aside.name}",
                    )  # fmt: skip
                return
        if problems:
            missing = [f"{one}: there is no such file" for one in (self.path, self._backup) if not one.exists()]
            raise ClientError(
                f"local offsets of this member cannot be read: {'; '.join([*problems, *missing])}; put back a copy of "
                f"{self.path}, or move both files away: the member then begins as a new one (consume_from_where)"
            )

    @property
    def _backup(self) -> Path:
        return self.path.with_suffix(".json.bak")

    async def read(self, queue: MessageQueue) -> int | None:
        """See `OffsetStore.read`."""
        return self._offsets.get(queue)

    async def persist(self, offsets: Mapping[MessageQueue, int], *, confirm: bool = False) -> set[MessageQueue]:
        """See `OffsetStore.persist`; the offsets of other queues do not change."""
        self._offsets.update(offsets)
        body = OFFSET_TABLE.dumps(offsets_outside(self._namespace, self._offsets))
        async with self._writing:
            try:
                await asyncio.to_thread(self._write, body)
            except OSError as error:
                _log.warning("local offsets could not be written to %s: %s", self.path, error)
                return set()
        return set(offsets)

    def _write(self, body: bytes) -> None:
        """Replace the file, and flush it to the disk before the return, so that no power failure leaves an empty file.

        Raises:
            OSError: the write failed.
        """
        make_synced_folders(self.path.parent)
        replace_file(self.path, body, backup=self._backup)
        sync_folder(self.path.parent)


def _table(text: bytes) -> dict[MessageQueue, int]:
    found = loads(text)
    table = found.get("offsetTable", found.get("messageQueueTable")) if isinstance(found, dict) else found
    if not isinstance(table, dict):
        raise ProtocolError(f"offsetTable is {'null' if table is None else f'a {type(table).__name__}'}, not an object")
    return OFFSET_TABLE.loads(text)

"""Undecided half messages, read from the brokers' own topics (broker.md §13)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tianzhou.admin.queue_reading import ReadAllowance, read_range
from tianzhou.admin.reach import Reach
from tianzhou.client.cluster import rpc
from tianzhou.errors import ClientError
from tianzhou.model import MessageExt, MessageQueue, TransactionState, names
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.codes import RequestCode

CHECK_GROUP = "CID_RMQ_SYS_TRANS"
"""Consumer group whose offsets are the positions of the broker's transaction check in the half and op queues."""
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
MOST_READ = 5_000
"""Maximum number of records to read of each of the two topics of one broker."""


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message of an open transaction.

    Attributes:
        broker_name: name of its broker.
        topic: topic of the delivery after a commit.
        producer_group: group of the producers that decide.
        msg_id: its unique key.
        queue_offset: its offset in the half queue.
        stored_ms: store time of the message, or of its newest copy, in ms since the epoch.
        born_ms: birth time that the producer set, in ms since the epoch.
        checks: number of times that the broker has asked the producer.
        body_bytes: size of its body in bytes.
        commitlog_offset: offset of its newest copy in the broker's commit log.
    """

    broker_name: str
    topic: str
    producer_group: str
    msg_id: str
    queue_offset: int
    stored_ms: int
    born_ms: int
    checks: int
    body_bytes: int
    commitlog_offset: int = -1


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Open half messages of a broker.

    Attributes:
        broker_name: name of the broker.
        halves: the half messages, the oldest first.
        unread: number of half messages behind the read ones; whether they are open is unknown.
    """

    broker_name: str
    halves: list[HalfMessage]
    unread: int = 0


def decided_offsets(marks: Iterable[MessageExt]) -> set[int]:
    """Return the offsets of the half messages that op messages mark as decided (broker.md §13.3)."""
    texts = (text for mark in marks for text in mark.body.decode("ascii", "replace").split(","))
    return {int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) < 20}


def undecided(halves: Iterable[MessageExt], decided: set[int]) -> list[HalfMessage]:
    """Return the half messages without an op message. Of several copies of a message, return the newest.

    Args:
        halves: messages of the half topic.
        decided: result of `decided_offsets`.
    """
    newest: dict[tuple[str, str, int], HalfMessage] = {}
    for half in halves:
        if half.queue_offset in decided:
            continue
        checks = half.properties.get(CHECK_TIMES, "0")
        found = HalfMessage(
            half.broker_name,
            half.properties.get(names.REAL_TOPIC, ""),
            half.properties.get(names.PGROUP, ""),
            half.msg_id,
            half.queue_offset,
            half.store_timestamp,
            half.born_timestamp,
            int(checks) if checks.isascii() and checks.isdecimal() and len(checks) < 10 else 0,
            len(half.body),
            half.commitlog_offset,
        )
        newest[found.msg_id, found.producer_group, found.born_ms] = found
    return sorted(newest.values(), key=lambda one: one.queue_offset)


class Transactions:
    """Operations on undecided transactions.

    Args:
        reach: finds the servers and sends the requests.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def open(
        self, broker_name: str | None = None, failures: dict[str, str] | None = None
    ) -> list[OpenTransactions]:
        """Return the undecided half messages, by broker.

        A decision is visible after the broker has stored it, which some brokers do seconds later.

        Args:
            broker_name: name of the only broker to read; None takes all.
            failures: receives the reason of each broker that does not answer, by name; None raises the first failure.
        """
        masters = sorted((await self._reach.masters()).items())
        chosen = {name: address for name, address in masters if broker_name in (None, name)}
        return list((await self._reach.each_broker(chosen, self._open_at, failures)).values())

    async def half(self, broker_name: str, queue_offset: int) -> tuple[HalfMessage, MessageExt]:
        """Return an undecided half message, and the message as it is stored.

        Args:
            broker_name: the broker.
            queue_offset: offset of the newest copy in the half queue.

        Raises:
            ClientError: the broker has no master, or has no such undecided half message.
        """
        for found in await self.open(broker_name):
            for half in found.halves:
                if half.queue_offset == queue_offset:
                    address = (await self._reach.masters())[broker_name]
                    queue = MessageQueue(names.HALF_TOPIC, broker_name, 0)
                    read = await read_range(
                        self._reach, address, queue, queue_offset, queue_offset + 1, ReadAllowance(32 << 20)
                    )
                    if read and read[0].queue_offset == queue_offset:
                        return half, read[0]
        raise ClientError(
            f"broker {broker_name} has no open half message at offset {queue_offset}; it is decided, or was "
            "copied when its producer was asked: read the list of open transactions again"
        )

    async def end(self, half: HalfMessage, state: TransactionState) -> None:
        """Commit or roll back a half message in place of its producer.

        A broker of Tianzhou ends a transaction only once, by the first decision. A broker of Apache delivers the
        message again for each commit, so this method refuses such a broker.

        Args:
            half: the half message, as `open` or `half` returns it.
            state: `COMMIT` or `ROLLBACK`.

        Raises:
            ClientError: the broker has no master, or is no broker of Tianzhou.
            BrokerError: the transaction has ended with the other decision, or the message cannot be stored.
        """
        if state is TransactionState.UNKNOWN:
            raise ClientError("a transaction ends by COMMIT or ROLLBACK; UNKNOWN leaves it open")
        address = (await self._reach.masters()).get(half.broker_name)
        if address is None:
            raise ClientError(f"broker {half.broker_name} has no master now; start it, or wait until one is elected")
        runtime = await self._reach.load(address, RequestCode.GET_BROKER_RUNTIME_INFO, KV_TABLE)
        if "tianzhouVersion" not in runtime:
            raise ClientError(
                f"{half.broker_name} is no broker of Tianzhou and may deliver a message twice when its producer "
                "decides as well; let the producer decide"
            )
        await self._reach.call(
            address,
            RequestCode.END_TRANSACTION,
            topic=half.topic,
            producer_group=half.producer_group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.commitlog_offset,
            commit_or_rollback=state.value,
            # An operator need not wait for the time in which only a transaction check of the broker may decide.
            from_transaction_check=True,
            msg_id=half.msg_id,
            transaction_id=half.msg_id,
        )

    async def _open_at(self, broker_name: str, address: str) -> OpenTransactions:
        allowance = ReadAllowance(32 << 20)
        halves, unread = await self._behind(broker_name, address, names.HALF_TOPIC, allowance)
        marks, _ = await self._behind(broker_name, address, names.OP_HALF_TOPIC, ReadAllowance(16 << 20))
        return OpenTransactions(broker_name, undecided(halves, decided_offsets(marks)), unread)

    async def _behind(
        self, broker_name: str, address: str, topic: str, allowance: ReadAllowance
    ) -> tuple[list[MessageExt], int]:
        """Return the messages behind the transaction check's position in a topic, and the number of unread ones."""
        queue, remoting = MessageQueue(topic, broker_name, 0), self._reach.remoting
        done = await rpc.query_offset(remoting, address, CHECK_GROUP, queue) or 0
        begin = max(done, await rpc.min_offset(remoting, address, queue))
        end = await rpc.max_offset(remoting, address, queue)
        found = await read_range(self._reach, address, queue, begin, min(end, begin + MOST_READ), allowance)
        reached = found[-1].queue_offset + 1 if found else begin
        return found, max(0, end - reached)

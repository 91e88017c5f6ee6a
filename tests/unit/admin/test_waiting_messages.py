"""Messages that wait, opened and ended by an operator: delayed ones, and halves of transactions."""

from __future__ import annotations

import pytest

from tianzhou.admin import HalfMessage
from tianzhou.errors import BrokerError, ClientError
from tianzhou.model import Message, TransactionState
from tianzhou.testing import AsyncCluster, run_virtual

pytestmark = pytest.mark.runner.with_args(run_virtual)


async def only_half(cluster: AsyncCluster) -> HalfMessage:
    async with cluster.admin() as admin:
        (found,) = [half for one in await admin.transactions.open() for half in one.halves]
        return found


@pytest.mark.parametrize("first", [TransactionState.COMMIT, TransactionState.ROLLBACK])
async def test_an_operator_ends_a_transaction_once(first: TransactionState) -> None:
    answers = [TransactionState.UNKNOWN]
    async with AsyncCluster(virtual=True) as cluster:
        await cluster.create_topic("orders", 1)
        producer = cluster.transaction_producer("shop", check=lambda _: answers[0])
        async with producer, cluster.admin() as admin:
            await producer.send_in_transaction(Message("orders", b"half"), lambda *_: TransactionState.UNKNOWN)
            half = await only_half(cluster)
            found, message = await admin.transactions.half(half.broker_name, half.queue_offset)
            assert (found, message.body, found.topic, found.producer_group) == (half, b"half", "orders", "shop")
            other = TransactionState.ROLLBACK if first is TransactionState.COMMIT else TransactionState.COMMIT
            await admin.transactions.end(half, first)
            await admin.transactions.end(half, first)
            with pytest.raises(BrokerError, match="a transaction ends once"):
                await admin.transactions.end(half, other)
            # The producer also commits when the broker checks the transaction.
            answers[0] = TransactionState.COMMIT
            await cluster.advance(seconds=300)
            assert [one.body for one in await cluster.messages("orders")] == (
                [b"half"] if first is TransactionState.COMMIT else []
            )
            with pytest.raises(ClientError, match="no open half message"):
                await admin.transactions.half(half.broker_name, half.queue_offset)
            with pytest.raises(ClientError, match="COMMIT or ROLLBACK"):
                await admin.transactions.end(half, TransactionState.UNKNOWN)


async def test_a_delayed_message_is_opened_until_it_is_delivered() -> None:
    async with AsyncCluster(virtual=True) as cluster:
        await cluster.create_topic("orders", 1)
        await cluster.send("orders", "later", delay_level=3, keys="k")
        async with cluster.admin() as admin:
            (level,) = [one for one in await admin.delays.levels() if one.waiting]
            (due,) = level.next
            found, message = await admin.delays.message(level.broker_name, level.level, due.queue_offset)
            assert (found, message.body, message.keys) == (due, b"later", "k")
            assert due.due_ms == message.store_timestamp + 10_000
            for place in ((level.broker_name, level.level, 7), (level.broker_name, 99, 0), ("nobody", level.level, 0)):
                with pytest.raises(ClientError):
                    await admin.delays.message(*place)
            await cluster.advance(seconds=11)
            with pytest.raises(ClientError, match="it is delivered"):
                await admin.delays.message(level.broker_name, level.level, due.queue_offset)

"""The blocking producer of messages that are bound to local transactions."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from tianzhou import client
from tianzhou.client.producer.transactions import LocalTransaction, as_state
from tianzhou.model import Message, TransactionSendResult, TransactionState
from tianzhou.sync.producer import Producer

_log = logging.getLogger(__name__)


async def _awaited(outcome: Awaitable[Any]) -> Any:
    return await outcome


class TransactionProducer(Producer):
    """A producer whose messages can be bound to local transactions.

    A local transaction runs in the thread that calls `send_in_transaction`; checks run in threads of their own.

    Args:
        group: the producer group.
        namesrv_addr: name servers, `host:port` joined by `;`.
        options: as of `tianzhou.client.TransactionProducer`; `check` is required.
    """

    _producer: client.TransactionProducer

    @staticmethod
    def _made(group: str, namesrv_addr: str | Sequence[str] | None, options: dict[str, Any]) -> client.Producer:
        return client.TransactionProducer(group, namesrv_addr, **options)

    def send_in_transaction(
        self, message: Message, execute: LocalTransaction, arg: Any = None
    ) -> TransactionSendResult:
        """See `tianzhou.client.TransactionProducer.send_in_transaction`."""
        half = self._run(self._producer.prepare(message))
        state, failure = TransactionState.ROLLBACK, None
        if half.is_safe:
            try:
                outcome: Any = execute(half.message, arg)
                if inspect.isawaitable(outcome):
                    outcome = self._run(_awaited(outcome))
                state = as_state(outcome, execute)
            except Exception as error:  # noqa: BLE001 - whatever the user's code raises, the broker asks later
                _log.warning("the local transaction %s failed; its state is unknown", half.result.msg_id, exc_info=True)
                state, failure = TransactionState.UNKNOWN, error
        return self._run(self._producer.conclude(half, state, failure))

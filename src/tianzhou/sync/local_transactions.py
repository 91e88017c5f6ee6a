"""Local transactions in the thread of who sends: what no coroutine can do for a blocking producer."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable
from typing import Any

from tianzhou import client
from tianzhou.client.producer.transactions import LocalTransaction, as_state
from tianzhou.model import Message, TransactionSendResult, TransactionState
from tianzhou.remoting.callbacks import failure_of
from tianzhou.sync.producer import Producer

_log = logging.getLogger(__name__)


async def _awaited(outcome: Awaitable[Any]) -> Any:
    return await outcome


class LocalTransactions(Producer):
    """A producer that runs local transactions in the calling thread."""

    _async: client.TransactionProducer

    def send_in_transaction(
        self, message: Message, execute: LocalTransaction, arg: Any = None
    ) -> TransactionSendResult:
        """Store a message, run a local transaction, and have the message delivered if that commits.

        When the local transaction raises, returns None, or this process dies, the broker asks `check` later.

        Args:
            message: the message; it is not changed. A delay level does not apply and is dropped.
            execute: the local transaction; it runs in this thread. It does not run when the broker could not promise
                that the message is safe; the message is rolled back then.
            arg: handed to it.

        Raises:
            ClientError: the message cannot be sent; nothing was sent.
            BrokerError: a broker refused it.
            RemotingError: no broker answered in time; the local transaction did not run.
        """
        half = self._run(self._async.prepare(message))
        state: TransactionState = TransactionState.ROLLBACK
        failure: Exception | None = None
        if half.is_safe:
            try:
                outcome: Any = execute(half.message, arg)
                if inspect.isawaitable(outcome):
                    outcome = self._run(_awaited(outcome))
                state = as_state(outcome, execute)
            except BaseException as error:  # noqa: BLE001 - after any error of the user's code the broker asks later
                failure = failure_of(error)
                _log.warning(
                    "the local transaction %s failed; its state is unknown", half.result.msg_id, exc_info=failure
                )
                state = TransactionState.UNKNOWN
        return self._run(self._async.conclude(half, state, failure))

# Written by scripts/facade; change what it is written from, then run it again.
"""The blocking producer of messages that are bound to local transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Unpack

from tianzhou import client
from tianzhou.client.hooks import EndTransactionHook
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import ProducerKeywords
from tianzhou.client.producer.transactions import Check
from tianzhou.sync.background import Blocking
from tianzhou.sync.local_transactions import LocalTransactions


class TransactionProducer(LocalTransactions):
    """A producer whose messages can be bound to local transactions.

        def state(message):                      # called when the answer was lost
            return TransactionState.COMMIT if paid(message.transaction_id) else TransactionState.ROLLBACK

        with TransactionProducer("orders", "localhost:9876", check=state) as producer:
            producer.send_in_transaction(Message("paid", b"…"), pay, order)

    A local transaction runs in the thread that calls `send_in_transaction`; checks run in threads of their own.

    Args:
        group: the producer group. Brokers send checks to any of its members, so all of them have to be able to answer.
        namesrv_addr: name servers, see `ClientInstance`.
        check: returns the state of a transaction, see `Check`; sync functions run in threads.
        check_concurrency: maximum number of checks that run at the same time.
        check_request_hold_max: maximum number of waiting checks; the broker repeats checks that are dropped.
        end_transaction_hooks: called before and after each END_TRANSACTION, see `tianzhou.client.hooks`.
        instance: an instance to share; by default the producer owns one.
        keywords: as in `Producer`.
    """

    _async: client.TransactionProducer

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Sequence[str] | None = None,
        *,
        check: Check,
        check_concurrency: int = 1,
        check_request_hold_max: int = 2_000,
        end_transaction_hooks: Iterable[EndTransactionHook] = (),
        instance: ClientInstance | None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None:
        Blocking.__init__(
            self,
            client.TransactionProducer(
                group,
                namesrv_addr,
                check=check,
                check_concurrency=check_concurrency,
                check_request_hold_max=check_request_hold_max,
                end_transaction_hooks=end_transaction_hooks,
                instance=instance,
                **keywords,
            ),
        )

    def start(self) -> None:
        """Start the producer, and the answers to checks; see `Producer.start`."""
        self._run(self._async.start())

    def stop(self) -> None:
        """Cancel the tasks that answer checks, and stop as a `Producer`."""
        self._run(self._async.stop())

"""Messages that are delivered only if a local transaction commits (client.md §7.3, wire.md §7.7)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, Unpack

from tianzhou.client.cluster import rpc
from tianzhou.client.cluster.member import StateQuestion
from tianzhou.client.hooks import EndTransactionContext, EndTransactionHook, begin, end
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import ProducerKeywords
from tianzhou.client.producer.producer import Producer
from tianzhou.client.producer.send_request import SendRequest
from tianzhou.client.validation import check_is_message
from tianzhou.errors import ConfigError, TianzhouError
from tianzhou.model import (
    Message,
    MessageExt,
    SendResult,
    SendStatus,
    TransactionSendResult,
    TransactionState,
    names,
)
from tianzhou.remoting.callbacks import call_in_thread, failure_of
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.ids import parse_offset_msg_id

_log = logging.getLogger(__name__)

LocalTransaction: TypeAlias = Callable[[Message, Any], "TransactionState | Awaitable[TransactionState | None] | None"]
"""Function that runs the local transaction of a message; a check later gets the same `message.transaction_id`."""

Check: TypeAlias = Callable[[MessageExt], "TransactionState | Awaitable[TransactionState | None] | None"]
"""Function that returns the state of the local transaction `message.transaction_id`."""


def _log_refusal(context: EndTransactionContext, answer: Command) -> None:
    """Log that a broker rejected the end of a transaction, so that the message is not delivered."""
    if answer.code != ResponseCode.SUCCESS:
        _log.error(
            "broker %s refuses to end transaction %s of group %s as %s: [%d] %s; the message to %s is not delivered",
            context.address,
            context.msg_id,
            context.group,
            context.state.name,
            answer.code,
            answer.remark,
            context.message.topic,
        )


class StoredHalf(NamedTuple):
    """A half message: it is stored, but not delivered yet.

    Attributes:
        message: the message for the local transaction.
        result: the result of storing it.
    """

    message: Message
    result: SendResult

    @property
    def is_safe(self) -> bool:
        """Whether the local transaction may run; it may not when flush or replicas were not confirmed."""
        return self.result.status is SendStatus.SEND_OK


class TransactionProducer(Producer):
    """A producer whose messages can be bound to local transactions.

        async def state(message):                      # called when the answer was lost
            return TransactionState.COMMIT if await paid(message.transaction_id) else TransactionState.ROLLBACK

        async with TransactionProducer("orders", "localhost:9876", check=state) as producer:
            await producer.send_in_transaction(Message("paid", b"…"), pay, order)

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
        if check_concurrency < 1 or check_request_hold_max < 1:
            raise ConfigError(
                f"check_concurrency is {check_concurrency} and check_request_hold_max {check_request_hold_max}; "
                "both have to be at least 1"
            )
        super().__init__(group, namesrv_addr, instance=instance, **keywords)
        self._check = check
        self._check_concurrency = check_concurrency
        self._hold_max = check_request_hold_max
        self._hooks.end_transaction += end_transaction_hooks
        self._state_check = self._note_question
        self._questions: asyncio.Queue[StateQuestion] = asyncio.Queue(check_request_hold_max)
        self._workers: list[asyncio.Task[None]] = []
        self._executor: ThreadPoolExecutor | None = None

    async def start(self) -> None:
        """Start the producer, and the answers to checks; see `Producer.start`."""
        await super().start()
        if not self._workers:
            self._workers = [
                self._instance.keep("answering about transactions", self._answer_questions)
                for _ in range(self._check_concurrency)
            ]

    async def stop(self) -> None:
        """Cancel the tasks that answer checks, and stop as a `Producer`."""
        for worker in self._workers:
            worker.cancel()
        self._workers = []
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None
        await super().stop()

    # --- sending ---------------------------------------------------------------------------------------------

    async def send_in_transaction(
        self, message: Message, execute: LocalTransaction, arg: Any = None
    ) -> TransactionSendResult:
        """Store a message, run a local transaction, and deliver the message if the transaction commits.

        When the local transaction raises, returns None, or this process dies, the broker calls `check` later.

        Args:
            message: the message; it is not changed. A delay level does not apply and is dropped.
            execute: the local transaction, see `LocalTransaction`; a sync function runs in a thread. It does not run
                when the broker could not confirm that the message is safe; the message is rolled back then.
            arg: argument of `execute`.

        Raises:
            ClientError: the message cannot be sent; nothing was sent.
            BrokerError: a broker rejected the message.
            RemotingError: no broker answered in time; the local transaction did not run.
        """
        half = await self.prepare(message)
        state, failure = TransactionState.ROLLBACK, None
        if half.is_safe:
            try:
                state = await self._call(execute, half.message, arg)
            except Exception as error:  # noqa: BLE001 - after any error of the user's code the broker checks later
                _log.warning("the local transaction %s failed; its state is unknown", half.result.msg_id, exc_info=True)
                state, failure = TransactionState.UNKNOWN, error
        return await self.conclude(half, state, failure)

    async def prepare(self, message: Message) -> StoredHalf:
        """Store a half message: the first part of `send_in_transaction`."""
        check_is_message(message)
        half = replace(message, delay_level=0, properties={**message.properties})
        half.properties.pop(names.DELAY, None)
        prepared = self._builder.single(half, {names.TRAN_MSG: "true", names.PGROUP: self._wire_group})
        result = await self._stack.send_without_outbox(SendRequest(prepared, self._timeout_ms))
        known = {names.UNIQ_KEY: result.msg_id}
        if result.transaction_id is not None:
            known[names.TRANSACTION_ID] = result.transaction_id
        half.properties = {**half.properties, **known}
        return StoredHalf(half, result)

    async def conclude(
        self, half: StoredHalf, state: TransactionState, failure: BaseException | None = None
    ) -> TransactionSendResult:
        """Send the state of a local transaction to the broker: the second part of `send_in_transaction`."""
        result = half.result
        remark = None if failure is None else f"executeLocalTransactionBranch exception: {_described(failure)}"
        broker_name = result.queue.broker_name
        topic = self._plans.wire_topic(half.message.topic)
        try:
            address = await self._instance.master(broker_name, topic)
            context = EndTransactionContext(
                self._group, half.message, address, result.msg_id, result.transaction_id, state, from_check=False
            )
            commitlog_offset = parse_offset_msg_id(result.offset_msg_id or result.msg_id)[2]
            request = self._end_request(context, result.queue_offset, commitlog_offset, broker_name, remark)
            afters = begin(self._hooks.end_transaction, context)
            await self._remoting.invoke_oneway(address, request, partial(_log_refusal, context))
            end(afters, context)
        except TianzhouError as error:
            _log.warning("the end of transaction %s was not sent, the broker will ask: %s", result.msg_id, error)
        return TransactionSendResult(result, state)

    # --- checks ----------------------------------------------------------------------------------------------

    def _note_question(self, question: StateQuestion) -> None:
        try:
            self._questions.put_nowait(question)
        except asyncio.QueueFull:
            _log.warning(
                "%d checks of group %s wait already (check_request_hold_max); %s will be checked again",
                self._hold_max,
                self._group,
                question.message.msg_id,
            )

    async def _answer_questions(self) -> None:
        while True:
            question = await self._questions.get()
            try:
                await self._answer_question(question)
            except Exception:  # noqa: BLE001 - one bad check must not end the answers to others
                _log.warning("transaction %s cannot be answered", question.message.msg_id, exc_info=True)

    async def _answer_question(self, question: StateQuestion) -> None:
        message = question.message
        remark = None
        try:
            state = await self._call(self._check, message)
        except Exception as error:  # noqa: BLE001 - after any error of the user's code the broker checks again
            _log.warning("the check of transaction %s failed", message.transaction_id, exc_info=True)
            state = TransactionState.UNKNOWN
            remark = f"checkLocalTransactionState Exception: {_described(error)}"
        context = EndTransactionContext(
            self._group, message, question.address, message.msg_id, question.transaction_id, state, from_check=True
        )
        request = self._end_request(
            context, question.half_queue_offset, question.commitlog_offset, question.broker_name or None, remark
        )
        afters = begin(self._hooks.end_transaction, context)
        try:
            prepared = self._remoting.prepare(question.address, request)
            question.connection.invoke_oneway(prepared, partial(_log_refusal, context))
        except TianzhouError as error:
            _log.warning("the state of transaction %s was not sent: %s", message.msg_id, error)
        end(afters, context)

    def _end_request(
        self,
        context: EndTransactionContext,
        half_queue_offset: int,
        commitlog_offset: int,
        broker_name: str | None,
        remark: str | None,
    ) -> Command:
        request = rpc.request(
            RequestCode.END_TRANSACTION,
            # A check names the half topic. Apache's broker checks the permissions of the real one.
            topic=self._plans.wire_topic(context.message.topic),
            producer_group=self._wire_group,
            tran_state_table_offset=half_queue_offset,
            commit_log_offset=commitlog_offset,
            commit_or_rollback=context.state.value,
            from_transaction_check=context.from_check,
            msg_id=context.msg_id,
            transaction_id=context.transaction_id,
            bname=broker_name,
        )
        request.remark = remark
        return request

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> TransactionState:
        outcome: Any
        task = asyncio.current_task()
        try:
            if inspect.iscoroutinefunction(function):
                outcome = await function(*arguments)
            else:
                if self._executor is None:
                    self._executor = ThreadPoolExecutor(thread_name_prefix=f"transactions-{self._group}")
                outcome = await call_in_thread(self._executor, function, *arguments)
                if inspect.isawaitable(outcome):
                    outcome = await outcome
        except Exception:
            raise
        except BaseException as error:
            raise failure_of(error, task) from error
        return as_state(outcome, function)


def as_state(outcome: object, function: object) -> TransactionState:
    """Return the state that user code returned; UNKNOWN for None.

    Raises:
        TypeError: the value is no state.
    """
    if outcome is None:
        return TransactionState.UNKNOWN
    if isinstance(outcome, TransactionState):
        return outcome
    raise TypeError(
        f"{function!r} returned {outcome!r}; return TransactionState.COMMIT, ROLLBACK or UNKNOWN (None for UNKNOWN)"
    )


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"

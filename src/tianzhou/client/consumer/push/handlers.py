"""Handlers of topics: their arguments and their possible results (client.md §13.2, §14)."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from tianzhou.client.consumer.push.consume_rates import ConsumeRates
from tianzhou.client.consumer.push.process_pool import ProcessPool
from tianzhou.client.consumer.push.processor_time import Spent, measured, timed
from tianzhou.client.consumer.push.retry_policy import NextStep, RetryPolicy, check_policy, next_step
from tianzhou.client.consumer.push.typed_bodies import AT_ONCE, NotCalled, TypedBody, Undecodable, typed_body
from tianzhou.client.hooks import ConsumeHook, ConsumeOutcome, HandlerCall, begin, end
from tianzhou.errors import ClientError, ConfigError
from tianzhou.model import ConsumeResult, MessageExt, MessageQueue
from tianzhou.remoting.callbacks import call_in_thread, failure_of
from tianzhou.wire.bodies.handler_times import RunsIn

Handler: TypeAlias = Callable[..., "ConsumeResult | Awaitable[ConsumeResult | None] | None"]
"""Function that consumes a message, or a list of messages when `consume_message_batch_max_size` is above 1.

The handler gets a `ConsumeContext` if it has a second argument or an argument named `context`. With `body=` it gets the
body's value as its first argument, and the arguments named `message` and `context`. The message is consumed when the
handler returns None or SUCCESS; any other value logs a warning and counts as SUCCESS. When the handler raises any
exception, even `SystemExit`, the broker delivers the message again, later and after others. An orderly consumer retries
it after a pause, before the next message of the queue. Only Ctrl-C in the main thread is no failure of the handler and
ends the program. `ConsumeResult` has the other results.
"""

H = TypeVar("H", bound=Handler)

_log = logging.getLogger(__name__)

UNORDERED = frozenset({ConsumeResult.SUCCESS, ConsumeResult.RECONSUME_LATER})
ORDERLY = frozenset(ConsumeResult) - {ConsumeResult.RECONSUME_LATER}


@dataclass(slots=True)
class ConsumeContext:
    """The second argument of a handler; the handler sets attributes to refine its result.

    Attributes:
        queue: the queue of the messages.
        delay_level: delay level of messages that are not consumed; 0 lets the broker choose, -1 makes them dead
            letters.
        ack_index: for a list, the index of the last consumed message, -1 for none; later messages are delivered again.
            None for all.
        auto_commit: orderly consumers only: with False, SUCCESS commits nothing until a COMMIT.
        suspend_ms: orderly consumers only: ms that the queue pauses before the messages are delivered again; None for
            the consumer's `suspend_current_queue_time_ms`.
    """

    queue: MessageQueue
    delay_level: int = 0
    ack_index: int | None = None
    auto_commit: bool = True
    suspend_ms: int | None = None


class HandlerOptions(NamedTuple):
    """Options of one handler.

    Attributes:
        body: type of the values of bodies, see `tianzhou.client.decode_body`; with None it gets messages.
        undecodable: treatment of messages whose bodies cannot be decoded; None for the default.
        retry: retry policy for messages that it does not consume; None for the consumer's options.
    """

    body: Any = None
    undecodable: Undecodable | None = None
    retry: RetryPolicy | None = None


PLAIN = HandlerOptions()


class _Known(NamedTuple):
    handler: Handler
    is_async: bool
    wants_context: bool
    typed: TypedBody | None
    retry: RetryPolicy | None


class Handlers:
    """The handlers of a consumer, by topic.

    Args:
        group: the consumer group.
        orderly: whether the consumer consumes in order.
        batch_size: maximum messages of one call; above 1, handlers get lists.
        threads: maximum number of sync handlers that run at the same time.
        hooks: called before and after each call of a handler.
        is_broadcast: whether each member of the group gets all messages.
        rates: counters to which the times of handlers are added.
        cpu_s: returns the processor time of the event loop's thread, seconds.
        wall_s: returns the time of a monotonic clock, seconds.
    """

    def __init__(
        self,
        group: str,
        *,
        orderly: bool,
        batch_size: int,
        threads: int,
        hooks: Iterable[ConsumeHook] = (),
        is_broadcast: bool = False,
        rates: ConsumeRates | None = None,
        cpu_s: Callable[[], float] = time.thread_time,
        wall_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._rates = ConsumeRates(0.0) if rates is None else rates
        self.cpu_s, self._wall_s = cpu_s, wall_s
        self._orderly = orderly
        self._is_broadcast = is_broadcast
        self._answers = ORDERLY if orderly else UNORDERED
        self._known: dict[str, _Known] = {}
        self._warned: set[str] = set()
        self.plain: dict[str, Callable[..., Awaitable[Any]]] = {}
        """Coroutine functions by topic, for handlers that take only the message and have no hooks.

        A caller may call one of these instead of `call`, and has to pass its result to `answer`.
        """
        self.in_loop: set[str] = set()
        """Topics whose `plain` handlers run in the event loop, so their dispatcher measures their times."""
        self.runs_in: dict[str, RunsIn] = {}
        """Where the handler of each topic runs."""
        self.threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self.batch_size = batch_size
        self.hooks = list(hooks)

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, topic: str, handler: Handler, options: HandlerOptions = PLAIN) -> None:
        """Set the handler of a topic.

        Raises:
            ClientError: the function cannot be called as a handler.
            ConfigError: the value of an option is not allowed.
        """
        typed = None
        if options.body is not None:
            _check_function(topic, handler)
            in_lists, resends = self.batch_size > 1, not self._is_broadcast
            typed = typed_body(topic, handler, options.body, options.undecodable, in_lists=in_lists, resends=resends)
        elif options.undecodable is not None:
            raise ConfigError(
                f"undecodable={options.undecodable!r} of topic {topic} needs body=, else nothing is decoded"
            )
        else:
            _check_handler(topic, handler)
        if options.retry is not None:
            check_policy(options.retry, topic, orderly=self._orderly, is_broadcast=self._is_broadcast)
        self._warned.discard(topic)
        wants_context = typed is None and _wants_context(handler)
        known = self._known[topic] = _Known(handler, _is_async(handler), wants_context, typed, options.retry)
        self.plain.pop(topic, None)
        self.in_loop.discard(topic)
        self.runs_in[topic] = RunsIn.loop if known.is_async else RunsIn.threads
        if isinstance(handler, ProcessPool):
            self.runs_in[topic] = RunsIn.processes
        if known.is_async and not known.wants_context and not self.hooks and typed is None:
            if isinstance(handler, ProcessPool):
                self.plain[topic] = functools.partial(self._in_process, topic, handler)
            else:
                self.plain[topic] = cast("Callable[..., Awaitable[Any]]", handler)
                self.in_loop.add(topic)

    def next_step(
        self, message: MessageExt, failure: BaseException | None, max_times: int, wanted_level: int = 0
    ) -> NextStep | None:
        """Return the next step for a message that was not consumed, by its handler's options.

        Args:
            message: the message.
            failure: the error of the call; None when the handler requested a later delivery.
            max_times: maximum number of redeliveries, when the handler's policy has none.
            wanted_level: the delay level that the handler set.

        Returns:
            The step; None when the consumer's options apply.
        """
        known = self._known.get(message.topic)
        if known is None:
            return None
        if isinstance(failure, NotCalled) and known.typed is not None:
            at_once = AT_ONCE.get(known.typed.undecodable)
            if at_once is not None:
                return at_once
        if known.retry is None:
            return None
        return next_step(known.retry, message.reconsume_times, max_times, wanted_level)

    def retry_of(self, topic: str) -> RetryPolicy | None:
        """Return the retry policy of a topic's handler; None without one."""
        known = self._known.get(topic)
        return None if known is None else known.retry

    def resize(self, threads: int) -> None:
        """Change the number of sync handlers that run at the same time; running ones finish."""
        self.threads = threads
        self._drop_threads()

    def _drop_threads(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None

    def close(self) -> None:
        """Drop the threads and processes without waiting for handlers that still run in them."""
        self._drop_threads()
        for known in self._known.values():
            if isinstance(known.handler, ProcessPool):
                known.handler.close()

    async def call(self, topic: str, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        """Call the topic's handler, and the hooks before and after it; sync handlers run in a thread.

        Raises:
            Exception: raised by the handler.
            CallbackExit: the handler raised `SystemExit` or another exception that is no `Exception`.
            ClientError: the topic has no handler, or the handler returned a result that this consumer does not support.
            NotCalled: a body cannot be decoded to the handler's type.
        """
        spent = Spent() if self._rates.of(topic).is_due else None
        if not self.hooks:
            return await self._call(topic, messages, context, spent)
        around = HandlerCall(self._group, messages, context.queue)
        afters = begin(self.hooks, around)
        try:
            around.result = await self._call(topic, messages, context, spent)
            around.outcome = outcome_of(around.result)
        except Exception as error:
            around.outcome, around.error = ConsumeOutcome.EXCEPTION, error
            raise
        except asyncio.CancelledError:
            around.outcome = ConsumeOutcome.TIME_OUT
            raise
        finally:
            around.cpu_s = None if spent is None else spent.cpu_s
            end(afters, around)
        return around.result

    async def _call(
        self, topic: str, messages: list[MessageExt], context: ConsumeContext, spent: Spent | None
    ) -> ConsumeResult | None:
        try:
            handler, is_async, wants_context, typed, _ = self._known[topic]
        except KeyError:
            raise ClientError(
                f"group {self._group} got a message of topic {topic} but has no handler for it; subscribe with one, "
                "or use handlers for all topics or for none"
            ) from None
        named: dict[str, Any] = {}
        argument: Any
        if typed is not None:
            argument, named = typed.arguments(messages, context)
        else:
            argument = messages if self.batch_size > 1 else messages[0]
        arguments = (argument, context) if wants_context else (argument,)
        outcome: Any
        task = asyncio.current_task()
        began_s = self._wall_s()
        try:
            if isinstance(handler, ProcessPool) and spent is not None:
                outcome, times = await handler.timed(*arguments)
                spent.cpu_s, spent.wall_s = times.cpu_s, times.wall_s
            elif is_async:
                waiting = handler(*arguments, **named)
                outcome = await (waiting if spent is None else measured(waiting, spent, self.cpu_s))  # type: ignore[misc]
            else:
                if self._executor is None:
                    self._executor = ThreadPoolExecutor(self.threads, f"consume-{self._group}")
                # `call_in_thread` copies the context, because hooks may have set a trace's context for the handler.
                call = functools.partial(handler, *arguments, **named)
                if spent is None:
                    outcome = await call_in_thread(self._executor, call)
                else:
                    outcome = await call_in_thread(self._executor, timed, call, spent)
                if inspect.isawaitable(outcome):
                    if spent is not None:
                        outcome = measured(outcome, spent, self.cpu_s)
                        spent.wall_s = None  # the call in the thread only created the awaitable
                    outcome = await outcome
        except Exception:
            raise
        except BaseException as error:
            raise failure_of(error, task) from error
        finally:
            if spent is not None:
                if spent.wall_s is None and not isinstance(handler, ProcessPool):  # a failed process reports no times
                    spent.wall_s = self._wall_s() - began_s
                if spent.wall_s is not None:
                    self._rates.of(topic).time(len(messages), spent.cpu_s, spent.wall_s)
        return self.answer(topic, outcome)

    async def _in_process(self, topic: str, pool: ProcessPool, message: MessageExt) -> Any:
        outcome, spent = await pool.timed(message)
        self._rates.of(topic).time(1, spent.cpu_s, spent.wall_s or 0.0)
        return outcome

    def answer(self, topic: str, outcome: Any) -> ConsumeResult | None:
        """Return the result of a topic's handler. Any other value counts as consumed, and is logged once per topic.

        Raises:
            ClientError: the result is not supported by this consumer.
        """
        if outcome is None or (isinstance(outcome, ConsumeResult) and outcome in self._answers):
            return outcome
        allowed = ", ".join(sorted(f"ConsumeResult.{answer.name}" for answer in self._answers))
        if isinstance(outcome, ConsumeResult):
            raise ClientError(f"the handler of topic {topic} returned {outcome!r}; return None or one of {allowed}")
        if topic not in self._warned:
            self._warned.add(topic)
            again = "SUSPEND_CURRENT_QUEUE_A_MOMENT" if self._answers is ORDERLY else "RECONSUME_LATER"
            _log.warning(
                "the handler of topic %s in group %s returned a value of type %s, which is no answer: its messages"
                " count as consumed. Return nothing or one of %s; to have a message again, raise or return"
                " ConsumeResult.%s",
                topic,
                self._group,
                type(outcome).__name__,
                allowed,
                again,
            )
        return None


def _check_function(topic: str, handler: object) -> None:
    # Check now: without the check each message would be retried until it is a dead letter.
    if not callable(handler):
        raise ClientError(f"the handler of topic {topic} is {handler!r}; it has to be a function")
    name = getattr(handler, "__qualname__", repr(handler))
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise ClientError(f"the handler {name} of topic {topic} has a yield, so calling it would do nothing; remove it")


def _check_handler(topic: str, handler: Handler) -> None:
    _check_function(topic, handler)
    name = getattr(handler, "__qualname__", repr(handler))
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # some builtins have no signature
        return
    for arguments in ((None,), (None, None)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return
    raise ClientError(
        f"the handler {name}{signature} of topic {topic} cannot be called; it takes the message (or the list of them), "
        "and a ConsumeContext besides when it wants one"
    )


def _is_async(handler: Handler) -> bool:
    called = None if inspect.isclass(handler) else getattr(handler, "__call__", None)  # noqa: B004 - of an object
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)


def _wants_context(handler: Handler) -> bool:
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    places = [p for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    if any(p.name == "context" for p in places[1:2]):
        return True
    return len([p for p in places if p.default is p.empty]) == 2


def outcome_of(result: ConsumeResult | None) -> ConsumeOutcome:
    """Return the outcome of a result, for hooks and traces."""
    if result in {ConsumeResult.RECONSUME_LATER, ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT, ConsumeResult.ROLLBACK}:
        return ConsumeOutcome.FAILED
    return ConsumeOutcome.SUCCESS

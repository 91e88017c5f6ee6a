"""Proofs that visitors start: one at a time, bounded, and visible and cancellable on every page."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tianzhou.admin import Admin
from tianzhou.bench.proof.load import LoadOrder
from tianzhou.bench.proof.run import ProofOutcome, ProofPlan, prove
from tianzhou.errors import ClientError, ConfigError, TianzhouError
from tianzhou.supervision import start_awaited

TOPIC_PREFIX: Final = "tianzhou-proof-"
MOST_MESSAGES: Final = 20_000
MOST_BYTES: Final = 65_536
IN_FLIGHT: Final = 32
SEND_TIMEOUT_MS: Final = 15_000
WAIT_S: Final = 30.0
LIMIT_S: Final = 180.0
"""Maximum duration of a proof in seconds; then it is cancelled."""
QUEUES: Final = 4

Run = Callable[..., Awaitable[ProofOutcome]]


@dataclass(slots=True)
class ProofRun:
    """One run of a proof.

    Attributes:
        topic: topic of its messages.
        count: number of messages to send.
        own: whether the topic was created for the proof, and is deleted with it.
        acknowledged: number of acknowledged messages so far.
        said: its present step, in words.
        outcome: its outcome; None until it ends.
        error: why it has no outcome; empty otherwise.
    """

    topic: str
    count: int
    own: bool
    acknowledged: int = 0
    said: str = ""
    outcome: ProofOutcome | None = None
    error: str = ""

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.outcome is not None or bool(self.error)


class Proofs:
    """Executor of proofs.

    Args:
        admin: deletes topics that were created for a proof.
        namesrv: addresses of the cluster's name servers.
        tls: TLS setting of the console.
        run: the function `prove`.

    Attributes:
        last: the present or last run; None before the first one.
    """

    def __init__(self, admin: Admin, namesrv: str, tls: bool | None, run: Run = prove) -> None:
        self._admin = admin
        self._namesrv = namesrv
        self._tls = tls
        self._run = run
        self._task: asyncio.Future[ProofOutcome] | None = None
        self.last: ProofRun | None = None

    async def start(self, topic: str, count: int, size_bytes: int) -> ProofOutcome:
        """Run a proof to its end.

        Args:
            topic: an existing topic to send to; empty for a temporary topic.
            count: number of messages to send.
            size_bytes: size of each body in bytes.

        Raises:
            ConfigError: the proof is too large, the topic does not exist, or another proof runs.
            ClientError: the proof was cancelled, or took too long.
            TianzhouError: an error prevented an outcome.
        """
        if self._task is not None:
            raise ConfigError("another proof runs; wait for its end, or cancel it")
        if not 1 <= count <= MOST_MESSAGES:
            raise ConfigError(f"{count} messages: expected 1 to {MOST_MESSAGES}; `tianzhou prove` sends more")
        if not 1 <= size_bytes <= MOST_BYTES:
            raise ConfigError(f"bodies of {size_bytes} bytes: expected 1 to {MOST_BYTES}")
        run = self.last = ProofRun(topic or TOPIC_PREFIX + secrets.token_hex(4), count, own=not topic)
        self._task = start_awaited(self._prove(run, size_bytes))
        try:
            async with asyncio.timeout(LIMIT_S):
                run.outcome = await self._task
        except TimeoutError:
            run.error = f"no outcome within {LIMIT_S:.0f} s"
        except asyncio.CancelledError:
            run.error = "cancelled"
        except (TianzhouError, OSError) as error:
            run.error = str(error) or type(error).__name__
        finally:
            # Reset the state also after a defect of the console.
            run.error = run.error or ("" if run.outcome is not None else "it failed")
            self._task = None
            if run.own:
                await self._forget(run)
        if run.outcome is None:
            raise ClientError(run.error)
        return run.outcome

    def cancel(self) -> None:
        """Cancel the present run, if there is one."""
        if self._task is not None:
            self._task.cancel()

    async def _prove(self, run: ProofRun, size_bytes: int) -> ProofOutcome:
        if not run.own and not await self._admin.topics.exists(run.topic):
            raise ConfigError(f"topic {run.topic} does not exist; name one, or none for a topic of its own")

        def announce(text: str) -> None:
            run.said = text

        def progress(acknowledged: int) -> None:
            run.acknowledged = acknowledged

        load = LoadOrder(run.topic, run.count, None, 0, size_bytes, IN_FLIGHT, SEND_TIMEOUT_MS)
        proof = ProofPlan(topic=run.topic, load=load, queues=QUEUES, wait_s=WAIT_S)
        return await self._run(proof, self._namesrv, self._tls, announce=announce, progress=progress)

    async def _forget(self, run: ProofRun) -> None:
        try:
            await self._admin.topics.delete(run.topic)
        except (TianzhouError, OSError) as error:
            run.said = f"topic {run.topic} is left behind: {error}"

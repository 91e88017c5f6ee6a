"""Decisions about another attempt, and where (client.md §5.1, §12.3; wire.md §2). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tianzhou.errors import BrokerError, ClientError, RemotingError
from tianzhou.wire.codes import ResponseCode

RETRY_ON_OTHER_BROKER = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Answers after which another broker may well accept the message (wire.md §2, last line)."""

RETRY_CODES_4X = RETRY_ON_OTHER_BROKER - {ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY}
"""Answers after which RocketMQ's 4.x clients send again, for `Producer(retry_response_codes=…)`."""

PULL_ERROR_DELAY_MS = 1000
PULL_FLOW_CONTROL_DELAY_MS = 20
SEND_BACK_RETRY_MS = 5000
"""After this long a message is consumed once more when it could not be sent back (client.md §13.3)."""


@dataclass(slots=True, frozen=True)
class SendRetries:
    """Repetition of a send.

    Args:
        times: attempts beyond the first.
        codes: response codes that are worth another attempt.
        attempt_timeout_ms: limit of one attempt while another one remains; None for none.
    """

    times: int = 2
    codes: frozenset[int] = RETRY_ON_OTHER_BROKER
    attempt_timeout_ms: float | None = None

    def should_retry(self, error: Exception) -> bool:
        """Whether another broker may do better after `error`."""
        if isinstance(error, BrokerError):
            return error.code in self.codes
        return isinstance(error, (RemotingError, ClientError)) and error.retriable

    def timeout_of(self, attempt: int, elapsed_ms: float, total_ms: float) -> float:
        """Milliseconds the attempt may take; zero or less when the time for all is used up.

        Args:
            attempt: index of the attempt, from 0.
            elapsed_ms: how long the send has taken so far.
            total_ms: how long it may take with all attempts.
        """
        left = total_ms - elapsed_ms
        if self.attempt_timeout_ms is not None and attempt < self.times:
            return min(left, self.attempt_timeout_ms)
        return left


def pull_delay_ms(error: Exception) -> int:
    """Milliseconds a pull loop waits after an error."""
    if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
        return PULL_FLOW_CONTROL_DELAY_MS
    return PULL_ERROR_DELAY_MS


def needs_heartbeat(error: Exception) -> bool:
    """Whether the broker has forgotten this client, so that a heartbeat repairs the pull (wire.md §6.2)."""
    return isinstance(error, BrokerError) and error.code in {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }

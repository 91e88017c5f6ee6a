"""Decisions whether and where to retry (client.md §5.1, §12.3; wire.md §2). Pure."""

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
"""Response codes after which another broker may accept the message (wire.md §2, last line)."""

RETRY_CODES_4X = RETRY_ON_OTHER_BROKER - {ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY}
"""Response codes after which RocketMQ's 4.x clients retry, for `Producer(retry_response_codes=…)`."""

PULL_ERROR_DELAY_MS = 1000
PULL_FLOW_CONTROL_DELAY_MS = 20
SEND_BACK_RETRY_MS = 5000
"""Milliseconds after which a message that could not be sent back is consumed again (client.md §13.3)."""


@dataclass(slots=True, frozen=True)
class SendRetries:
    """Rules for the retries of a send.

    Args:
        times: maximum attempts after the first.
        codes: response codes after which the send is retried.
        attempt_timeout_ms: timeout of one attempt while another one remains; None for none.
    """

    times: int = 2
    codes: frozenset[int] = RETRY_ON_OTHER_BROKER
    attempt_timeout_ms: float | None = None

    def should_retry(self, error: Exception) -> bool:
        """Whether an attempt at another broker may succeed after `error`."""
        if isinstance(error, BrokerError):
            return error.code in self.codes
        return isinstance(error, (RemotingError, ClientError)) and error.retriable

    def timeout_of(self, attempt: int, elapsed_ms: float, total_ms: float) -> float:
        """Return the timeout of an attempt in ms; zero or less when no time is left.

        Args:
            attempt: index of the attempt, from 0.
            elapsed_ms: duration of the send so far.
            total_ms: timeout of all attempts together.
        """
        left = total_ms - elapsed_ms
        if self.attempt_timeout_ms is not None and attempt < self.times:
            return min(left, self.attempt_timeout_ms)
        return left


def pull_delay_ms(error: Exception) -> int:
    """Return the ms that a pull loop waits after an error."""
    if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
        return PULL_FLOW_CONTROL_DELAY_MS
    return PULL_ERROR_DELAY_MS


def needs_heartbeat(error: Exception) -> bool:
    """Whether a broker does not know this client or its subscription, so that it needs a heartbeat (wire.md §6.2)."""
    return isinstance(error, BrokerError) and error.code in {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }

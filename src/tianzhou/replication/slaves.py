"""What a master knows of its slaves, what it sends each next, and when a message counts as copied (broker.md §17)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tianzhou.errors import ProtocolError
from tianzhou.replication.rate import SecondRate
from tianzhou.store.results import PutStatus
from tianzhou.store.settings import StoreSettings

FIRST_REPORT_S: Final = 5.0
"""Seconds a connection may take to say how far its log reaches."""


_FAR_BEHIND: Final = 128 << 10
_LARGE_STRETCH: Final = 256 << 10
"""Who is more than `_FAR_BEHIND` bytes behind gets `_LARGE_STRETCH` at once: each stretch costs both sides some calls,
whatever its size, and RocketMQ's slaves have room for 4 MiB of one."""
MOST_AHEAD: Final = 1 << 40
"""Bytes that a slave's log may be longer than its master's: who reports more is no slave."""


_REPORT_SIZE: Final = 8
_FRAME_KINDS: Final = frozenset({0, 1})
"""How a request's header is written, JSON or RocketMQ's own way: the byte before the header's length (wire.md §1)."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """What there is of the master's log.

    Attributes:
        begin: start of the oldest segment; -1 without one.
        end: next offset.
        segment_size: bytes of a segment.
    """

    begin: int
    end: int
    segment_size: int


@dataclass(frozen=True, slots=True)
class SlaveSend:
    """What to send a slave now.

    Attributes:
        offset: where the bytes begin in the log.
        size: how many; 0 for a heartbeat.
    """

    offset: int
    size: int


def speaks_as_slave(hello: bytes, log: LogBounds) -> bool:
    """Whether the first bytes of a connection can be a slave's (broker.md §17.1).

    A slave sends one report, and until it is answered nothing but the same again. What clients send begins with the
    lengths of a frame and of its header: a request of 240 bytes would be a report of a log of a terabyte.

    Args:
        hello: what has come, a report at least.
        log: the master's.
    """
    report = hello[:_REPORT_SIZE]
    offset = int.from_bytes(report, signed=True)
    if not 0 <= offset <= log.end + MOST_AHEAD:
        return False
    if hello != (report * (len(hello) // _REPORT_SIZE + 1))[: len(hello)]:
        return False
    frame, header = offset >> 32, offset & 0xFFFFFF
    is_frame = (offset >> 24) & 0xFF in _FRAME_KINDS and 0 < header <= frame - 4
    return not is_frame or offset <= log.end


class Slave:
    """How far one slave is.

    Args:
        address: where it connects from.
        settings: of the store.
        now_s: monotonic time, seconds.

    Attributes:
        acked: up to where it says it has the log; -1 before its first report.
        sent: up to where it has been sent; -1 before its first report.
        address: the argument.
    """

    def __init__(self, address: str, settings: StoreSettings, now_s: float) -> None:
        self.address = address
        self.acked = -1
        self.sent = -1
        self._settings = settings
        self._heard_s = self._spoke_s = now_s
        self._rate = SecondRate(now_s)

    def answer(self, offset: int, log: LogBounds) -> int | None:
        """What a first report is answered with that asks for what this master does not have; None for any other.

        Where this log begins or ends, as the place of a heartbeat: RocketMQ's slaves end the connection for one that is
        not in their place, and ours look where the logs agree.

        Args:
            offset: where the slave says its log ends.
            log: the master's.
        """
        if self.sent >= 0 or offset < 0:
            return None
        if offset > log.end:
            return log.end if offset <= log.end + MOST_AHEAD else None
        return log.begin if 0 < offset < log.begin else None

    def reported(self, offset: int, log: LogBounds, now_s: float) -> None:
        """Take a report.

        Args:
            offset: where the slave says its log ends.
            log: the master's.
            now_s: monotonic time, seconds.

        Raises:
            ProtocolError: the slave cannot be what it says; to be disconnected.
        """
        if not 0 <= offset <= log.end:
            raise ProtocolError(
                f"slave {self.address} reports {offset}, this master's log ends at {log.end}: its log is another "
                "one's, or has messages that this master lost; see the slave's log before you empty its store folder, "
                "because it may have the only copies"
            )
        self._heard_s = now_s
        if self.sent < 0:
            self.sent = self._first(offset, log)
            self._spoke_s = now_s - self._settings.ha_send_heartbeat_interval / 1000
        if offset > self.sent:
            raise ProtocolError(f"slave {self.address} reports {offset}, it was sent the log up to {self.sent}")
        self.acked = max(self.acked, offset)

    def _first(self, offset: int, log: LogBounds) -> int:
        """Where to begin sending (broker.md §17.1)."""
        if offset == 0:
            if self._settings.sync_from_last_file:
                return max(log.end - log.end % log.segment_size, 0)
            return max(log.begin, 0)
        if offset < log.begin:
            raise ProtocolError(
                f"slave {self.address} reports {offset}, this master's log begins at {log.begin}: what is between is "
                "gone; empty the slave's store folder"
            )
        return offset

    def next(self, log: LogBounds, now_s: float) -> SlaveSend | float:
        """What to send next, or until when (monotonic seconds) there is nothing to send."""
        settings = self._settings
        heartbeat_s = self._spoke_s + settings.ha_send_heartbeat_interval / 1000
        if self.sent < 0:
            return now_s + FIRST_REPORT_S
        behind = log.end - self.sent
        size = min(behind, settings.ha_transfer_batch_size)
        if behind > _FAR_BEHIND:
            size = max(size, min(behind, _LARGE_STRETCH))
        # A stretch never goes over the end of a segment, as RocketMQ's slaves append it to one file.
        size = min(size, log.segment_size - self.sent % log.segment_size)
        if size > 0 and settings.ha_flow_control_enable:
            self._rate.turn(now_s)
            size = min(size, settings.max_ha_transfer_byte_in_second - self._rate.in_second)
            if size <= 0:
                return min(self._rate.began_s + 1, max(heartbeat_s, now_s))
        if size > 0:
            return SlaveSend(self.sent, size)
        return SlaveSend(self.sent, 0) if now_s >= heartbeat_s else heartbeat_s

    def was_sent(self, send: SlaveSend, now_s: float) -> None:
        """Take note that something was given to the connection."""
        self._spoke_s = now_s
        self._rate.add(send.size, now_s)
        self.sent += send.size

    def rate(self, now_s: float) -> int:
        """Bytes it was sent in the last whole second.

        Args:
            now_s: monotonic time, seconds.
        """
        return self._rate.last(now_s)

    @property
    def patience_s(self) -> float:
        """Seconds it may say nothing."""
        silence_s = self._settings.ha_housekeeping_interval / 1000
        return silence_s if self.acked >= 0 else min(silence_s, FIRST_REPORT_S)

    def is_silent(self, now_s: float) -> bool:
        """Whether it has not been heard of for so long that it counts as gone."""
        return now_s - self._heard_s > self.patience_s


@dataclass(slots=True)
class Slaves:
    """All slaves that are connected, and what a message needs of them (broker.md §17.2).

    A SYNC_MASTER with `inSyncReplicas=1`, the default, has the rule of RocketMQ 4.9: it waits for one slave. 5.x would
    acknowledge at once; who wants that says ASYNC_MASTER. A larger number counts the master, as in 5.x.

    Attributes:
        settings: of the store.
        connected: the slaves.
    """

    settings: StoreSettings
    connected: list[Slave] = field(default_factory=list)

    def needed(self, end: int) -> int:
        """How many slaves have to have a message before it is acknowledged.

        Args:
            end: where the log ends.
        """
        settings = self.settings
        if settings.broker_role != "SYNC_MASTER":
            return 0
        needed = max(settings.in_sync_replicas - 1, 1)
        if settings.enable_auto_in_sync_replicas:
            needed = max(min(needed, self.in_sync(end)), settings.min_in_sync_replicas - 1, 0)
        return needed

    def copied(self, end: int) -> int:
        """Up to where as many slaves as are needed have the log; -1 when there are not so many."""
        needed = self.needed(end)
        if not needed:
            return end
        acked = sorted((slave.acked for slave in self.connected), reverse=True)
        return acked[needed - 1] if needed <= len(acked) else -1

    def in_sync(self, end: int) -> int:
        """How many slaves are near the end of the log."""
        most = self.settings.ha_max_gap_not_in_sync
        return sum(slave.acked >= 0 and end - slave.acked < most for slave in self.connected)

    def refusal(self, end: int) -> str | None:
        """See `tianzhou.store.durability.Copies`."""
        replicas, least = 1 + self.in_sync(end), self.settings.min_in_sync_replicas
        if replicas >= least:
            return None
        return (
            f"{replicas} of this broker's group are in sync, the master among them, minInSyncReplicas={least} are "
            "wanted; start its slaves, and see `tianzhou status` when they run"
        )

    def verdict(self, end: int, record_end: int) -> PutStatus | None:
        """See `tianzhou.store.durability.Copies`."""
        needed = self.needed(end)
        if not needed or self.copied(end) >= record_end:
            return PutStatus.PUT_OK
        return None if self.in_sync(end) >= needed else PutStatus.SLAVE_NOT_AVAILABLE

"""The lines of JSON between the parent and its worker processes: job and start to them, reports back. Pure."""

from __future__ import annotations

import msgspec

from tianzhou.bench.jobs import Job
from tianzhou.bench.series import Slice


class WorkerReport(msgspec.Struct, omit_defaults=True):
    """What a worker has counted and used.

    Attributes:
        ready: connected, and waiting for the start.
        queues: of a receiver, how many queues each of its groups has there.
        slices: what was counted since the last report.
        last_s: when the last message was counted, seconds since the start.
        cpu_s: processor time since the start.
        waited_s: time since the start in which it could have run and had no processor.
        wall_s: time since the start.
        done: this is its last report.
        failed: why it could not go on.
    """

    ready: bool = False
    queues: dict[str, int] = {}
    slices: list[Slice] = []
    last_s: float = 0.0
    cpu_s: float = 0.0
    waited_s: float = 0.0
    wall_s: float = 0.0
    done: bool = False
    failed: str = ""


class Start(msgspec.Struct):
    """The start, when all are ready; the end of what the parent writes means stop.

    Attributes:
        epoch_s: when the run begins, on the monotonic clock.
    """

    epoch_s: float


encode = msgspec.json.Encoder().encode
decode_report = msgspec.json.Decoder(WorkerReport).decode
decode_start = msgspec.json.Decoder(Start).decode
decode_job = msgspec.json.Decoder(Job).decode

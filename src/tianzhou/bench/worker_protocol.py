"""Messages between the parent and its worker processes, one line of JSON each: job, start and reports. Pure."""

from __future__ import annotations

import msgspec

from tianzhou.bench.jobs import Job
from tianzhou.bench.series import Slice


class WorkerReport(msgspec.Struct, omit_defaults=True):
    """A report of a worker.

    Attributes:
        ready: whether it is connected and waits for the start.
        queues: for a receiver, the number of queues of each of its groups in this process.
        slices: the counts since the last report.
        last_s: time of the last message, in seconds since the start.
        cpu_s: processor time since the start, in seconds.
        waited_s: seconds since the start for which it was ready but had no processor.
        wall_s: seconds since the start.
        done: whether this is its last report.
        failed: the reason of its failure; empty without one.
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
    """The start of the load, after all workers are ready. The end of the worker's input means stop.

    Attributes:
        epoch_s: beginning of the run, in seconds of the monotonic clock.
    """

    epoch_s: float


encode = msgspec.json.Encoder().encode
decode_report = msgspec.json.Decoder(WorkerReport).decode
decode_start = msgspec.json.Decoder(Start).decode
decode_job = msgspec.json.Decoder(Job).decode

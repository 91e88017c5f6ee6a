"""Our trace records, compared with those of Apache's client.

A digest of Java's answers is recorded (`recorded.py`). `./test --slow` runs Java itself.
"""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest
import toolchain
from jvm import ask_java
from recorded import digest, is_as_recorded, recorded

from tianzhou.client.hooks import ConsumeOutcome, MessageKind
from tianzhou.client.tracing import trace_records
from tianzhou.client.tracing.trace_records import STATE_NAMES, Traced
from tianzhou.model import TransactionState

CASES = 300
TYPES = ("Pub", "SubBefore", "SubAfter", "EndTransaction")


def any_record(rng: random.Random, kind: str) -> tuple[str, str, Traced]:
    """Return the input that makes Java encode a record, ours of the same, and the message."""
    topic = rng.choice(["T", "天舟", "%RETRY%G"])
    msg_id = f"{rng.randrange(16**32):032X}"
    tags = rng.choice([None, "", "t", "标签"])
    keys = rng.choice([None, "k", "a b c", "é \U0001f600"])
    timestamp_ms, cost_ms, retries = rng.randrange(10**13), rng.randrange(5000), rng.randrange(17)
    region, group = rng.choice(["DefaultRegion", "cn-hangzhou"]), rng.choice(["G", "组"])
    host, size, offset_id = f"10.0.0.{rng.randrange(256)}:10911", rng.randrange(10**6), f"{rng.randrange(16**32):032X}"
    request_id, success = f"{rng.randrange(16**32):032X}", rng.random() < 0.5
    outcome, number = rng.choice(list(ConsumeOutcome)), rng.choice([0, 1, 3])
    channel, transaction_id = rng.choice(["LOCAL", "CLOUD"]), rng.choice([None, msg_id])
    state, from_check = rng.choice(list(TransactionState)), rng.random() < 0.5
    message = Traced(topic, msg_id, tags, keys)
    if kind == "EndTransaction":
        number = MessageKind.TRANSACTION_COMMIT.value
    parts = [
        kind, timestamp_ms, region, group, request_id, cost_ms, "true" if success else "false", outcome.value, channel,
        topic, msg_id, tags, keys, host, size, number, offset_id, retries, transaction_id, STATE_NAMES[state],
        "true" if from_check else "false",
    ]  # fmt: skip
    question = "\t".join("\\N" if part is None else str(part) for part in parts)
    match kind:
        case "Pub":
            ours = trace_records.pub(
                message, timestamp_ms=timestamp_ms, region=region, group=group, store_host=host, body_bytes=size,
                cost_ms=cost_ms, kind=MessageKind(number), offset_msg_id=offset_id, success=success,
            )  # fmt: skip
        case "SubBefore":
            ours = trace_records.sub_before(
                message, timestamp_ms=timestamp_ms, region=region, group=group, request_id=request_id,
                retry_times=retries,
            )  # fmt: skip
        case "SubAfter":
            ours = trace_records.sub_after(
                message, timestamp_ms=timestamp_ms, group=group, request_id=request_id, cost_ms=cost_ms,
                success=success, outcome=outcome, cloud=channel == "CLOUD",
            )  # fmt: skip
        case _:
            ours = trace_records.end_transaction(
                message, timestamp_ms=timestamp_ms, region=region, group=group, store_host=host,
                transaction_id=transaction_id, state=state, from_check=from_check,
            )  # fmt: skip
    return question, ours, message


Case = tuple[str, str, Traced]


def written(version: str) -> list[Case]:
    """Return random records that Java writes too."""
    rng = random.Random(version)
    return [any_record(rng, kind) for kind in TYPES for _ in range(CASES)]


def read(version: str) -> list[Case]:
    """Return random records that Java reads."""
    rng = random.Random("read " + version)
    return [any_record(rng, kind) for kind in TYPES for _ in range(20)]


def to_be_read(version: str) -> str:
    """Return the input that makes Java read our records."""
    whole = "".join(ours for _, ours, _ in read(version))
    return f"read\t{base64.b64encode(whole.encode()).decode()}"


def questions(version: str) -> list[str]:
    return [*(question for question, _, _ in written(version)), to_be_read(version)]


def as_java_writes(version: str, case: Case) -> str:
    """Return our answer to a question: the record, and, except for 4.9.7, the keys of its message."""
    question, ours, message = case
    if version == "4.9.7":
        if question.startswith("SubAfter") and "\tCLOUD\t" in question:
            # 4.9.7 omits the separator by mistake, so that readers treat the next record as a part of this one.
            return ours.removesuffix("\x02")
        return ours
    return f"{ours} {sorted(message.index_keys())}"


def written_by_java(version: str, answer: str) -> str:
    """Return an answer of Java in the form of `as_java_writes`."""
    data, _, keys = answer.partition(" ")
    text = base64.b64decode(data).decode()
    return text if version == "4.9.7" else f"{text} {sorted(keys.split(','))}"


def read_by_java(answer: str) -> list[list[str]]:
    """Return kind and message id of each record that Java has read."""
    return [part.split("/")[:2] for part in answer.split(" ") if part.count("/") >= 3]


@pytest.mark.parametrize("version", toolchain.JAVA_CLIENTS)
def test_records_are_the_bytes_java_writes(version: str) -> None:
    ours = [as_java_writes(version, case) for case in written(version)]
    assert digest(ours) == recorded(f"trace-{version}", questions(version))["written"], "./test --slow says which"


@pytest.mark.parametrize("version", toolchain.JAVA_CLIENTS)
def test_java_reads_what_we_write(version: str) -> None:
    assert recorded(f"trace-{version}", questions(version))["read"] == [
        [question.split("\t")[0], message.msg_id] for question, _, message in read(version)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("version", toolchain.JAVA_CLIENTS)
def test_java_writes_and_reads_records_as_recorded(version: str, tmp_path: Path) -> None:
    asked, cases = questions(version), written(version)
    *answers, last = ask_java("Traces", version, asked, tmp_path)
    theirs = [written_by_java(version, answer) for answer in answers]
    for case, one in zip(cases, theirs, strict=True):
        assert as_java_writes(version, case) == one, case[0]
    found = {"written": digest(theirs), "read": read_by_java(last)}
    is_as_recorded(f"trace-{version}", found, source=f"Java client {version}", questions=asked)

"""Recorded client requests, replayed: ours gives the same replies as Apache's broker where the recording determines
them.

The recordings leave out the surplus of frequent exchanges (see tests/golden/README.md), so the frames before a reply do
not determine all of its fields. `COMPARED` lists the determined fields. Two replies differ on purpose: a new group's
offset (code 14) follows 4.9.7, and the text for a wrong queue names the topic's queues in fewer words.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from broker_bench import OpenBench

from tianzhou._hot.headers import header_fields
from tianzhou.records.codec import decode_records
from tianzhou.wire.command import Command, decode

FOLDER = Path(__file__).parents[2] / "golden" / "wire"

SENDS = {10, 310, 320}
MANAGEMENT = {34, 35, 41, 42}
COMPARED = {
    "java-5.3.3-send": SENDS | MANAGEMENT,
    "java-5.3.3-lite": SENDS | MANAGEMENT | {31, 38},
    "java-5.3.3-pull": {310, 31, 32, 38} | MANAGEMENT,
    "java-5.3.3-push": {310, 38} | MANAGEMENT,
    "java-5.3.3-orderly": {310, 38} | MANAGEMENT,
    "java-5.3.3-retry": {310, 38} | MANAGEMENT,
    "java-5.3.3-acl": SENDS | MANAGEMENT | {31, 38},
    "java-5.3.3-binary": SENDS | MANAGEMENT | {31, 38},
    "go-2.1.2-send": SENDS | {34},
    "go-2.1.2-pull": SENDS | {34, 11, 38},
    "go-2.1.2-push": SENDS | {34, 38},
    "go-2.1.2-broadcast": SENDS | {34},
    "go-2.1.2-admin": {17, 201, 215},
    "cpp-send": SENDS | MANAGEMENT,
    "cpp-pull": SENDS | MANAGEMENT | {11},
    "cpp-push": SENDS | MANAGEMENT | {15, 38},
    "cpp-orderly": SENDS | MANAGEMENT | {15, 38},
    "cpp-acl": SENDS | MANAGEMENT,
    "mqadmin-5.3.3": {310, 17, 28, 35, 200, 201, 204, 207, 215, 300, 351},
    "java-4.9.7-send": SENDS,
    "java-4.9.7-pull": {310, 14, 38},
    "java-4.9.7-push": {310, 38},
    "java-4.9.7-orderly": {310, 14, 41, 42},
}
FROM_AN_EMPTY_LOG = {"java-5.3.3-send"}
"""Recordings whose physical offsets start in an empty store, so ours must write records of the same size."""
VOLATILE = {"timestamp", "version"}
NOT_IN_4_9 = {"transactionId", "IS_SUB_CHANGE", "IS_SUPPORT_HEART_BEAT_V2", "topicSysFlag", "groupSysFlag"}


def fields_of(command: Command) -> dict[str, str]:
    return command.fields or ({} if command.header is None else header_fields(command.header))


def comparable(name: str, code: int, sent: bytes, command: Command) -> dict[str, Any]:
    """Return the fields of a reply that earlier frames determine; the delay queue was not empty during the
    recording.
    """
    fields = {key: value for key, value in fields_of(command).items() if key not in VOLATILE}
    if "4.9" in name:
        fields = {key: value for key, value in fields.items() if key not in NOT_IN_4_9}
    if name not in FROM_AN_EMPTY_LOG:
        fields.pop("msgId", None)
        if b"DELAY" in sent:
            fields.pop("queueOffset", None)
    if "transactionId" in fields and fields["transactionId"].encode() not in sent:
        fields["transactionId"] = "made up by the broker"
    shown: dict[str, Any] = {"code": command.code, "fields": fields}
    if code in (11, 361):
        shown["remark"] = command.remark
        shown["messages"] = [(record.queue_offset, record.body) for record in decode_records(command.body)]
    if code in (38, 41):
        # Sets, in the iteration order of a Java map.
        shown["body"] = sorted(
            bytes(command.body).replace(b"]", b"[").split(b"[")[1].split(b"," if code == 38 else b",{")
        )
    if code == 351:
        shown["body"] = bytes(command.body)
    if command.code == 29 or (command.code == 1 and "queueId[" in (command.remark or "")):
        # 4.9 has no code of its own for an invalid parameter.
        shown["code"] = 29
    return shown


@pytest.mark.parametrize("name", sorted(COMPARED))
async def test_replies_are_those_of_apache(broker: OpenBench, name: str) -> None:
    lines = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").open(encoding="utf-8")]
    frames = [line for line in lines if line.get("link") == "client-broker"]

    async with broker(store={"mapped_file_size_commit_log": 1 << 24}, trace_topic_enable=True) as bench:
        bench.deliver_delayed()
        peers: dict[int, Any] = {}
        compared = 0
        sent = {}
        for frame in frames:
            if frame["conn"] not in peers:
                peers[frame["conn"]] = bench.peer()
            peer = peers[frame["conn"]]
            data = bytes.fromhex(frame["hex"])
            if frame["from"] == "client":
                peer.post_frame(data)
                sent[frame["conn"], frame["opaque"]] = data
                await asyncio.sleep(0)
            elif frame["dir"] == "resp" and frame["reqCode"] in COMPARED[name]:
                about = name, frame["reqCode"], sent[frame["conn"], frame["opaque"]]
                reply = await peer.reply(frame["opaque"])
                assert comparable(*about, reply) == comparable(*about, decode(memoryview(data)[4:])), about[:2]
                compared += 1
        assert compared >= 3

"""Settings changed by request (25): checked and stored as a whole, or refused without any change."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from store_probe import StoreProbe
from tianzhou.broker.changeable_settings import RULES
from tianzhou.setting_files import read_settings
from tianzhou.setting_updates import with_saved
from tianzhou.settings import MASK, dump, parse_properties
from tianzhou.wire.codes import AT_NEXT_START, RequestCode
from tianzhou.wire.command import Command, encode


async def update(peer: Peer, text: str | bytes) -> Command:
    body = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    reply: Command = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body)
    return reply


async def keep(peer: Peer, text: str) -> Command:
    """Request that settings be written for the next start."""
    fields = {AT_NEXT_START: "true"}
    opaque = peer.next_opaque()
    peer.post_frame(encode(Command(RequestCode.UPDATE_BROKER_CONFIG, opaque, fields=fields, body=text.encode())))
    reply: Command = await peer.reply(opaque)
    return reply


def state(bench: Bench) -> tuple[dict[str, str], bytes | None]:
    file = Path(bench.settings.broker_config_path)
    return dump(bench.settings, bench.store_settings), file.read_bytes() if file.exists() else None


BAD_VALUES = [
    ("cleanResourceInterval=-1", 1, "cleanResourceInterval=-1: must be at least 10"),
    ("flushConsumerOffsetInterval=0", 1, "must be at least 10"),
    ("fileReservedTime=-1", 1, "fileReservedTime=-1: must be at least 0"),
    ("maxMessageSize=99999999999", 1, "maxMessageSize=99999999999: must be at most 2147483647"),
    ("deleteWhen=25", 1, "deleteWhen=25: expected hours from 00 to 23"),
    ("brokerPermission=8", 1, "brokerPermission=8: must be at most 7"),
    ("defaultTopicQueueNums=0", 1, "must be at least 1"),
    ("logicalDiskSpaceCleanForciblyThreshold=nan", 1, "logicalDiskSpaceCleanForciblyThreshold=nan"),
    ("diskMaxUsedSpaceRatio=101", 1, "must be at most 100"),
    ("namesrvAddr=nowhere", 1, "is no host:port, as in 127.0.0.1:9876: it has no port"),
    ("traceOn=perhaps", 1, "traceOn=perhaps: expected true or false"),
    ("fileReservedTime=many", 1, "expected a whole number"),
    ("maxMessageSize=\nregionId=x", 1, "maxMessageSize=: expected a whole number"),
    ("storePathCommitLog=/tmp/elsewhere", 16, "a path is never taken from a request"),
    ("storePathRootDir=/tmp/elsewhere", 16, "start the broker again"),
    ("listenPort=1", 16, "is reached is settled at its start"),
    ("brokerName=other", 16, "may not be changed while the broker runs"),
    ("brokerRole=SLAVE", 16, "may not be changed"),
    ("flushDiskType=SYNC_FLUSH", 16, "it is read at the start only"),
    ("flushDiskType=NEVER", 1, "expected ASYNC_FLUSH or SYNC_FLUSH"),
    ("messageDelayLevel=1x", 1, "is not a number followed by s, m, h or d"),
    ("messageDelayLevel=1s", 16, "what is in the store already depends on it"),
    ("mappedFileSizeCommitLog=4096", 16, "what is in the store already depends on it"),
    ("enableRemoteAdmin=true", 16, "who is let in, and whom the broker trusts"),
    ("socksProxyConfig={}x", 16, f"socksProxyConfig={MASK}"),
    ("aclEnable=true", 16, "may not be changed"),
    ("configBlackList=x", 16, "Can not update config in black list: configBlackList"),
    ("regionId=a\\nstorePathRootDir=/etc", 1, "holds a control character"),
    ("regionId=a\x1b[2J", 1, "regionId=a\\x1b[2J: holds a control character"),
    ("regionId=a\u2028storePathRootDir=/etc", 1, "holds a control character"),
    ("regionId=\\ud800", 1, "half a character"),
    (b"regionId=\xff", 1, "cannot be read"),
]


@pytest.mark.parametrize(("text", "code", "words"), BAD_VALUES, ids=lambda value: repr(value)[:40])
async def test_what_a_start_would_refuse_is_refused_and_nothing_is_set(
    broker: OpenBench, tmp_path: Path, text: str | bytes, code: int, words: str
) -> None:
    async with broker(broker_config_path=str(tmp_path / "broker.conf")) as bench:
        peer, before = bench.peer(), state(bench)
        # A good value before the bad one is not applied either.
        reply = await update(
            peer, b"minInSyncReplicas=3\nmaxMsgsNumBatch=7\n" + (text if isinstance(text, bytes) else text.encode())
        )
        assert (reply.code, words in str(reply.remark)) == (code, True), reply.remark
        assert state(bench) == before
        assert (await update(peer, "maxMsgsNumBatch=7")).code == 0
        assert bench.store_settings.max_msgs_num_batch == 7


async def test_what_a_start_alone_reads_is_written_for_the_next_one(broker: OpenBench, tmp_path: Path) -> None:
    """The refusal names the way, and later changes of other settings preserve values that wait for the start."""
    file = tmp_path / "broker.conf"
    async with broker(broker_config_path=str(file)) as bench:
        peer = bench.peer()
        refused = await update(peer, "flushDiskType=SYNC_FLUSH")
        assert "tianzhou config set --at-next-start flushDiskType=SYNC_FLUSH" in str(refused.remark)
        kept = await keep(peer, "flushDiskType=SYNC_FLUSH\nfileReservedTime=5\n")
        assert (kept.code, kept.fields) == (0, {AT_NEXT_START: "true"})
        assert bench.store_settings.flush_disk_type == "ASYNC_FLUSH"
        assert bench.store_settings.file_reserved_time == 72
        assert (await update(peer, "maxMsgsNumBatch=7")).code == 0
        saved = read_settings(file)
        assert saved.changed == frozenset({"flushDiskType", "fileReservedTime", "maxMsgsNumBatch"})
        assert [saved.values[key] for key in ("flushDiskType", "fileReservedTime", "maxMsgsNumBatch")] == [
            "SYNC_FLUSH", "5", "7",
        ]  # fmt: skip
        present = bench.settings, bench.store_settings
        (_, store_settings), left_out = with_saved(RULES, {key: saved.values[key] for key in saved.changed}, present)
        assert (store_settings.flush_disk_type, left_out) == ("SYNC_FLUSH", [])


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("storePathRootDir=/tmp/elsewhere", 16, "set it in the configuration file"),
        ("enableRemoteAdmin=true", 16, "set it in the configuration file"),
        ("brokerConfigPath=/tmp/elsewhere", 16, "Can not update config in black list"),
        ("flushDiskType=NEVER", 1, "expected ASYNC_FLUSH or SYNC_FLUSH"),
        ("fileReservedTime=-1", 1, "must be at least 0"),
    ],
)
async def test_what_no_request_may_set_is_not_written_for_the_next_start_either(
    broker: OpenBench, tmp_path: Path, text: str, code: int, words: str
) -> None:
    file = tmp_path / "broker.conf"
    async with broker(broker_config_path=str(file)) as bench:
        reply = await keep(bench.peer(), text)
        assert (reply.code, words in str(reply.remark)) == (code, True), reply.remark
        assert not file.exists()


async def test_no_key_that_needs_a_start_is_changed(broker: OpenBench, tmp_path: Path) -> None:
    async with broker(broker_config_path=str(tmp_path / "broker.conf")) as bench:
        peer, before = bench.peer(), state(bench)
        for one in (bench.settings, bench.store_settings):
            for field in dataclasses.fields(one):
                key, value = next(iter(dump(only(field, one)).items()))
                if key in RULES.changeable:
                    continue
                other = {"true": "false", "false": "true"}.get(
                    value, f"{value}1" if value.lstrip("-").isdigit() else "x"
                )
                assert (await update(peer, f"{key}={other}")).code in (1, 16), key
        assert state(bench) == before


def only(field: Any, one: Any) -> Any:
    made = dataclasses.make_dataclass(
        "Only", [(field.name, Any, dataclasses.field(default=None, metadata=field.metadata))]
    )
    return made(getattr(one, field.name))


async def test_who_sends_back_what_was_shown_changes_nothing_but_what_differs(
    broker: OpenBench, tmp_path: Path
) -> None:
    async with broker(
        broker_config_path=str(tmp_path / "broker.conf"), socks_proxy_config='{"x": {"password": "secret"}}'
    ) as bench:
        peer = bench.peer()
        shown = parse_properties(bytes((await peer.ask(RequestCode.GET_BROKER_CONFIG)).body).decode())
        assert shown["socksProxyConfig"] == MASK
        for key in ("configBlackList", "brokerConfigPath"):
            del shown[key]
        shown["regionId"] = "east"
        reply = await update(peer, "".join(f"{key}={value}\n" for key, value in shown.items()))
        assert (reply.code, reply.remark) == (0, None)
        assert bench.settings.region_id == "east"
        assert "secret" in bench.settings.socks_proxy_config
        written = parse_properties((tmp_path / "broker.conf").read_text())
        assert "secret" in written["socksProxyConfig"]  # the file belongs to the server
        assert "secret" not in repr(bench.settings)


async def test_a_file_that_cannot_be_written_refuses_the_update(broker: OpenBench, tmp_path: Path) -> None:
    folder = tmp_path / "conf"
    folder.write_text("in the way")

    async with broker(broker_config_path=str(folder / "broker.conf")) as bench:
        peer = bench.peer()
        reply = await update(peer, "regionId=east")
        assert reply.code == 1
        assert "nothing was changed" in str(reply.remark)
        assert bench.settings.region_id == "DefaultRegion"
        folder.unlink()
        assert (await update(peer, "regionId=west")).code == 0
        assert parse_properties((folder / "broker.conf").read_text())["regionId"] == "west"


async def test_updates_at_once_are_all_kept(broker: OpenBench, tmp_path: Path) -> None:
    async with broker(broker_config_path=str(tmp_path / "broker.conf")) as bench:
        texts = ["regionId=east", "maxMsgsNumBatch=7", "fileReservedTime=9", "traceOn=false"]
        replies = await asyncio.gather(*(update(bench.peer(), text) for text in texts))
        assert [reply.code for reply in replies] == [0] * 4
        written = (tmp_path / "broker.conf").read_text()
        assert all(f"{text}\n" in written for text in texts)


async def test_who_goes_while_the_file_is_written_leaves_file_and_memory_alike(
    broker: OpenBench, tmp_path: Path
) -> None:
    async with broker(broker_config_path=str(tmp_path / "broker.conf")) as bench:
        gone = bench.peer()
        gone.post(RequestCode.UPDATE_BROKER_CONFIG, b"regionId=east")
        await asyncio.sleep(0)  # it is at it
        await asyncio.sleep(0)
        gone.transport.lose()
        assert (await update(bench.peer(), "traceOn=false")).code == 0
        assert (
            parse_properties((tmp_path / "broker.conf").read_text())["regionId"] == bench.settings.region_id == "east"
        )


@pytest.mark.over_limit("configUpdateBytes")
@pytest.mark.over_limit("configUpdateKeys")
@pytest.mark.over_limit("configValueLength")
async def test_an_update_is_bounded(broker: OpenBench, tmp_path: Path) -> None:
    async with broker(broker_config_path=str(tmp_path / "broker.conf")) as bench:
        peer, before = bench.peer(), state(bench)
        for text, words in (
            ("#" * 65_537, "65537 bytes, at most 65536 are allowed"),
            ("x=1\n" * 1_000, "1001 lines, at most 1000 are allowed"),
            ("regionId=" + "x" * 4_097, "regionId: 4097 characters, at most 4096 are allowed"),
        ):
            reply = await update(peer, text)
            assert (reply.code, words in str(reply.remark)) == (29, True), reply.remark
        assert state(bench) == before


async def test_unknown_keys_are_passed_over_without_holding_the_loop(
    broker: OpenBench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker(broker_config_path=str(tmp_path / "broker.conf")) as bench:
        text = "".join(f"maxMessageSise{number}=1\n" for number in range(900)) + "regionId=east\n"
        assert (await update(bench.peer(), text)).code == 0
        assert bench.settings.region_id == "east"
        said = [record.getMessage() for record in caplog.records if "unknown" in record.getMessage()]
        assert said[0] == "configuration update: unknown key maxMessageSise0 ignored; meant maxMessageSize?"
        assert said[-1] == "configuration update: 892 more unknown keys ignored"
        assert len(said) == 9


async def test_no_interval_makes_a_broker_spin(broker: OpenBench) -> None:
    async with broker(
        store={
            "clean_resource_interval": -1,
            "flush_interval_consume_queue": -1,
            "flush_interval_commit_log": -1,
            "delete_commit_log_files_interval": -1,
        },
        flush_consumer_offset_interval=-1,
        transaction_check_interval=-1,
        transaction_op_batch_interval=-1,
    ) as bench:
        checks, check = [0], StoreProbe(bench.store).cleaner.check_space

        async def counted() -> None:
            checks[0] += 1
            await check()

        StoreProbe(bench.store).cleaner.check_space = counted
        # Virtual time passes only when no task is ready.
        await asyncio.sleep(1)
        assert 0 < checks[0] <= 120
        assert (await bench.peer().send("T")).code == 0

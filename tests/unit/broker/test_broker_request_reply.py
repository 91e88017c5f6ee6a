"""Replies: 324 and 325 pushed to the requester by 326 (broker.md §7.6)."""

import asyncio

import pytest

from tianzhou.wire.codes import RequestCode
from tianzhou.wire.fields import read_header, read_reply
from tianzhou.wire.properties import decode_properties

TOPIC = "DefaultCluster_REPLY_TOPIC"
V1, V2 = RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
REPLY = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "asker", "TTL": "3000", "UNIQ_KEY": "U"}


@pytest.mark.parametrize("code", [V1, V2])
async def test_a_reply_is_pushed_to_the_requester_and_stored(bench, code) -> None:
    asker, replier = bench.peer(), bench.peer()
    await asker.heartbeat("asker", producer="P")
    opaque = replier.post_send(TOPIC, b"yes", code=code, properties=REPLY, flag=7, sys_flag=0)
    push = await asker.question(PUSH)
    header = read_header(push)
    assert push.body == b"yes"
    assert (header.topic, header.producer_group, header.flag, header.queue_id) == (TOPIC, "P", 7, 0)
    assert header.born_host == replier.connection.remote_address
    assert header.store_host == "127.0.0.1:31011"
    properties = decode_properties(header.properties.encode())
    assert properties.pop("PUSH_REPLY_TIME") == str(header.store_timestamp)
    assert properties == REPLY
    assert replier.peek(opaque) is None
    asker.answer(push)
    reply = await replier.reply(opaque)
    sent = read_reply(code, reply)
    assert (reply.code, sent.queue_offset, sent.msg_region) == (0, 0, "DefaultRegion")
    assert len(sent.msg_id) == 32
    (stored,) = bench.records(TOPIC)
    assert (stored.body, decode_properties(stored.properties)) == (b"yes", REPLY)


async def test_without_storing_the_answer_has_no_place(broker) -> None:
    async with broker(store_reply_message_enable=False) as bench:
        asker, replier = bench.peer(), bench.peer()
        await asker.heartbeat("asker", producer="P")
        opaque = replier.post_send(TOPIC, b"yes", code=V2, properties=REPLY)
        asker.answer(await asker.question(PUSH))
        sent = read_reply(V2, await replier.reply(opaque))
        assert (sent.msg_id, sent.queue_offset) == ("0", 0)
        assert bench.records(TOPIC) == []


async def test_a_reply_waits_for_the_first_heartbeat_of_the_requester(bench) -> None:
    """Go's client sends the request immediately and its first heartbeat a second later."""
    asker, replier = bench.peer(), bench.peer()
    opaque = replier.post_send(TOPIC, b"yes", code=V2, properties=REPLY)
    await asyncio.sleep(1)
    assert replier.peek(opaque) is None
    await asker.heartbeat("asker", producer="P")
    asker.answer(await asker.question(PUSH))
    assert (await replier.reply(opaque)).code == 0


async def test_a_requester_that_is_gone(bench) -> None:
    asker, replier = bench.peer(), bench.peer()
    refused = await replier.send(TOPIC, b"yes", code=V2, properties=REPLY)
    assert refused.code == 1
    assert refused.remark == "push reply message fail, channel of <asker> not found."
    assert len(bench.records(TOPIC)) == 1  # stored all the same

    nobody = {name: value for name, value in REPLY.items() if name != "REPLY_TO_CLIENT"}
    refused = await replier.send(TOPIC, b"yes", code=V2, properties=nobody)
    assert (refused.code, refused.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")

    await asker.heartbeat("asker", producer="P")
    opaque = replier.post_send(TOPIC, b"yes", code=V2, properties=REPLY)
    asker.answer(await asker.question(PUSH), code=1)
    assert (await replier.reply(opaque)).remark == "push reply message to asker fail."

    opaque = replier.post_send(TOPIC, b"yes", code=V2, properties=REPLY)
    await asyncio.sleep(11)
    refused = await replier.reply(opaque)
    assert refused.code == 1
    assert "push reply message to asker fail" in refused.remark

    asker.connection.abort()
    await asyncio.sleep(0.01)
    refused = await replier.send(TOPIC, b"yes", code=V2, properties=REPLY)
    assert "channel of <asker> not found" in refused.remark


async def test_the_latest_connection_of_a_client_gets_the_request(bench) -> None:
    old, new, replier = bench.peer(), bench.peer(), bench.peer()
    await old.heartbeat("asker", producer="P")
    await new.heartbeat("asker", producer="P")
    await old.ask(RequestCode.UNREGISTER_CLIENT, client_id="asker", producer_group="P")
    opaque = replier.post_send(TOPIC, b"yes", code=V2, properties=REPLY)
    new.answer(await new.question(PUSH))
    assert (await replier.reply(opaque)).code == 0
    await new.ask(RequestCode.UNREGISTER_CLIENT, client_id="asker", producer_group="P")
    assert (await replier.send(TOPIC, b"yes", code=V2, properties=REPLY)).code == 1


async def test_topic_checks_are_those_of_sends(bench) -> None:
    replier = bench.peer()
    assert (await replier.send("SCHEDULE_TOPIC_XXXX", code=V2, properties=REPLY)).code == 16
    assert (await replier.send("no such?", code=V2, properties=REPLY)).code == 29
    refused = await replier.send(TOPIC, code=V2, properties=REPLY, queue_id=5)
    assert refused.code == 29
    assert refused.fields["MSG_REGION"] == "DefaultRegion"

"""Messages of producers whose clocks are wrong."""

from __future__ import annotations

from tianzhou.model.route import BrokerData
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header

ODD_TIMES_MS = (253_402_300_800_000, 1_700_000_000_123_456, 2**62, 2**63 - 1, -(2**63))
"""A time in the year 10000, a time in microseconds, and a time that microseconds cannot represent."""


async def send_born(
    namesrv: str,
    topic: str,
    born_timestamp_ms: int,
    body: bytes = b"odd",
    *,
    queue_id: int = 0,
    properties: str = "",
    sys_flag: int = 0,
) -> None:
    """Send a message with a producer's time of any value.

    Args:
        namesrv: address of the name server.
        topic: a topic that exists.
        born_timestamp_ms: the producer's time.
        body: the body.
        queue_id: the queue.
        properties: the property string.
        sys_flag: the flags, as of a compressed body.
    """
    async with RemotingClient() as client:
        route = Command(105, fields=write_header(105, topic=topic))
        broker: BrokerData = ROUTE.loads((await client.invoke(namesrv, route, 10_000)).body).broker_datas[0]
        header = write_header(
            RequestCode.SEND_MESSAGE_V2, producer_group="P", topic=topic, default_topic="TBW102",
            default_topic_queue_nums=1, queue_id=queue_id, sys_flag=sys_flag, born_timestamp=born_timestamp_ms, flag=0,
            properties=properties,
        )  # fmt: skip
        request = Command(RequestCode.SEND_MESSAGE_V2, fields=header, body=body)
        reply = await client.invoke(broker.broker_addrs[0], request, 10_000)
        assert reply.code == ResponseCode.SUCCESS, reply.remark

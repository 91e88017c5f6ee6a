"""Two masters of one name: the second one does not replace the route of the first, and all servers report the pair."""

from __future__ import annotations

from pathlib import Path

import frames
from group_load import QUEUES, TOPIC, stored
from own import OwnBroker, asked, name_server

from tianzhou import sync
from tianzhou.model import Message, SendStatus
from waiting import until

COUNT = 200
PERIOD_MS = 10_000
"""The shortest period of registrations in ms; a reply to a registration names the other master."""


def send(namesrv: str, prefix: str) -> list[bytes]:
    """Send messages, and return the bodies of the acknowledged ones."""
    with sync.Producer("p", namesrv) as producer:
        bodies = [f"{prefix}{number}".encode() for number in range(COUNT)]
        return [body for body in bodies if producer.send(Message(TOPIC, body)).status is SendStatus.SEND_OK]


def masters(namesrv: str) -> set[str]:
    """Return the addresses of masters in the route of the topic."""
    route = frames.call(namesrv, 105, {"topic": TOPIC}).json()
    return {broker["brokerAddrs"]["0"] for broker in route["brokerDatas"]}


def test_a_second_master_does_not_take_the_route_and_the_doctor_names_both(tmp_path: Path) -> None:
    conf = {"registerNameServerPeriod": PERIOD_MS}
    with name_server(tmp_path) as namesrv:
        first = OwnBroker(namesrv, tmp_path / "s1", tmp_path / "h1", conf)
        second = OwnBroker(namesrv, tmp_path / "s2", tmp_path / "h2", conf)
        with first:
            try:
                frames.create_topic(namesrv, first.address, TOPIC, QUEUES)
                sent = send(namesrv, "before-")
                second.launch()
                until(lambda: first.address in second.console(), "the second master is refused", within_s=60)
                sent += send(namesrv, "after-")
                until(lambda: second.address in first.console(), "the first master names the other", within_s=30)
                assert masters(namesrv) == {first.address}
                for one in (first, second):
                    (line,) = [text for text in one.console().splitlines() if "two masters of broker broker-a" in text]
                    assert first.address in line
                    assert second.address in line
                code, report = asked(namesrv, "doctor", "broker")
                found = [one for one in report["findings"] if one["name"] == "two-masters"]
                assert code == 1
                assert first.address in found[0]["message"]
                assert second.address in found[0]["message"]
                code, status = asked(namesrv, "status")
                assert (code, [one["kind"] for one in status["faults"]]) == (1, ["two-masters"])
                assert sorted(stored(first.address)) == sorted(sent)
                assert len(sent) == 2 * COUNT
            finally:
                second.kill()
            # After a clean stop of the first one, the name is free for another broker.
            until(lambda: asked(namesrv, "status")[0] == 0, "one master again", within_s=40, every_s=0.5)
            first.kill()
            third = OwnBroker(namesrv, tmp_path / "s3", tmp_path / "h3", conf)
            with third:
                # Its registration is free as soon as the process has ended, however it ends.
                until(
                    lambda: frames.masters(namesrv, "TBW102") == [third.address],
                    "the next one has the place",
                    within_s=30,
                )
                assert "is refused" not in third.console()

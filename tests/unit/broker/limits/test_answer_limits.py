"""Figures, cold-read limits and replies above their limits."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from broker_probe import BrokerProbe
from tianzhou.broker.stats.stats import BrokerStats
from tianzhou.limits import FIGURES, Bounds
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command

REFUSED = ResponseCode.INVALID_PARAMETER


@pytest.mark.over_limit("maxFigures")
def test_figures_by_what_peers_write_come_to_an_end_and_totals_go_on() -> None:
    stats = BrokerStats(0)
    stats.bounds = Bounds()
    stats.bounds.settings = type("Settings", (), {"max_figures": 3})
    for n in range(5):
        stats.got("T", f"G{n}").add(0, 2, 100)
        stats.count("SNDBCK_PUT_NUMS", f"T{n}@G")
    assert stats.get_count == 10
    assert (
        sum(name == "GROUP_GET_NUMS" for name, *_ in stats.items())
        + sum(name == "SNDBCK_PUT_NUMS" for name, *_ in stats.items())
        == 3
    )
    assert stats.bounds.refusals.counts == {FIGURES.name: 7}
    stats.got("T", "G0").add(0, 1, 100)
    assert stats.gets["T", "G0"].count == 3


@pytest.mark.over_limit("maxColdReadLimits")
async def test_limits_of_cold_reads_come_to_an_end(broker: OpenBench) -> None:
    async with broker(max_cold_read_limits=2) as bench:
        peer, code = bench.peer(), RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
        assert (await peer.ask(code, b"A=1\nB=2\n")).code == 0
        assert (await peer.ask(code, b"B=3\nC=4\n")).code == REFUSED
        assert (await peer.ask(code, b"B=3\nC=" + b"9" * 4_000)).code == 0


@pytest.mark.over_limit("maxReplyBytes")
async def test_a_reply_no_frame_can_carry_is_refused_and_the_connection_stays(
    bench: Bench, peer: Peer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:

    def huge(_connection: Any, command: Command) -> Command:
        return command.reply(0, body=b"x" * (16 << 20))

    BrokerProbe(bench.parts).answer_with(RequestCode.GET_ALL_TOPIC_CONFIG, huge)
    with caplog.at_level(logging.WARNING):
        replies = [await peer.ask(RequestCode.GET_ALL_TOPIC_CONFIG) for _ in range(2)]
    assert [reply.code for reply in replies] == [REFUSED, REFUSED]
    assert replies[0].remark.startswith("the reply to request 21: 16777")
    assert caplog.text.count("refused: the reply to request 21") == 1, "once a minute"
    assert await peer.refused() == {"maxReplyBytes": "2"}

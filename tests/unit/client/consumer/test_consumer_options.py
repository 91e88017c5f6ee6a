"""Options of consumers: the time at which a group begins, in either form."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tianzhou.client.consumer.options import ConsumerOptions
from tianzhou.errors import ConfigError


@pytest.fixture(params=["UTC", "Asia/Shanghai"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The local time zone of the machine."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def test_the_text_of_rocketmq_is_local_time(zone: str) -> None:
    options = ConsumerOptions(consume_timestamp="20210701080000")
    hours = {"UTC": 8, "Asia/Shanghai": 0}[zone]
    assert options.begin_ms(0) == (1_625_097_600 + hours * 3600) * 1000
    assert replace(options, pull_batch_size=1).begin_ms(0) == options.begin_ms(0)


@pytest.mark.parametrize("text", ["", "2021070108000", "20211301080000", "2021-07-01 08:00", "2021070108000a", 7])
def test_other_texts_are_refused_with_the_form(text: object) -> None:
    with pytest.raises(ConfigError, match=r"consume_timestamp=.*give year to second, such as '20210701080000'"):
        ConsumerOptions(consume_timestamp=text)  # type: ignore[arg-type]


def test_one_form_is_enough() -> None:
    with pytest.raises(ConfigError, match="is given, and so is consume_timestamp_ms=5; leave one of them out"):
        ConsumerOptions(consume_timestamp="20210701080000", consume_timestamp_ms=5)

"""The options page agrees with the source."""

import re
from pathlib import Path

import pytest

from tianzhou.errors import ConfigError
from tianzhou.spark.option_values import BATCH, STREAM, rules_of
from tianzhou.spark.source.read_options import ReadOptions, parse_read

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "spark-source.md"
ROWS = {
    name: (default.strip(), example.strip().strip("`").replace("\\|", "|"))
    for name, _, default, example in re.findall(
        r"^\| `(\w+)` \| (.+?) \| (.*?) ?\| (`.+`) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
}
NEEDED = {"namesrvAddr": "127.0.0.1:9876", "subscribe": "orders"}
STREAMS_ONLY = {"includeSlowestTimestamp", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"}
KEYS = {"accessKey": "other", "secretKey": "other"}
WITH = {
    "maxTriggerDelay": {"minOffsetsPerTrigger": "1"},
    "tlsConfigFile": {"tls": "true"},
    "startingOffsetsByTimestampStrategy": {"startingTimestamp": "5"},
    "includeHeaders": {"columns": "kafka"},
    **dict.fromkeys(("accessKey", "secretKey", "securityToken"), KEYS),
}


def given(name, value):
    ways = {"subscribe", "subscribePattern", "assign"}
    base = {key: text for key, text in NEEDED.items() if not (name in ways and key in ways)}
    return {**base, **WITH.get(name, {}), name: value}


def test_every_option_has_its_row():
    assert ROWS.keys() == rules_of(ReadOptions).keys()


@pytest.mark.parametrize("name", rules_of(ReadOptions))
def test_examples_are_taken_and_defaults_are_those_of_the_source(name):
    mode = STREAM if name in STREAMS_ONLY else BATCH
    default, example = ROWS[name]
    changed = parse_read(given(name, example), mode)
    if default == "needed":
        with pytest.raises(ConfigError, match=f"option {name} is missing"):
            parse_read({key: text for key, text in given(name, example).items() if key != name}, mode)
        return
    without = parse_read({**NEEDED, **WITH.get(name, {})}, mode)
    assert changed != without or name == "subscribe"
    if re.fullmatch(r"`[^`]+`", default) and name != "consumerGroup":
        assert parse_read(given(name, default.strip("`")), mode) == without
    elif name == "consumerGroup":
        assert without.consumer_group == default.strip("`")

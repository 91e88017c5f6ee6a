"""Options of the source: defaults, every accepted spelling, and errors that name option and value."""

import json

import pytest

from tianzhou.errors import ConfigError
from tianzhou.spark.option_values import BATCH, STREAM, rules_of, with_credentials
from tianzhou.spark.sink.options import parse_write
from tianzhou.spark.source.offsets import EARLIEST, LATEST
from tianzhou.spark.source.read_options import ReadOptions, parse_read

NEEDED = {"namesrvAddr": "127.0.0.1:9876", "subscribe": "orders"}


def test_defaults_of_a_batch_are_those_of_sparks_kafka_source():
    options = parse_read(NEEDED, BATCH)
    assert (options.starting.mark, options.ending.mark) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss
    assert not options.include_properties
    assert not options.include_metadata
    assert options.tags == "*"
    assert options.wanted_tags == frozenset()
    assert not options.publish_progress


def test_a_stream_starts_at_the_latest_offset():
    assert parse_read(NEEDED, STREAM).starting.mark == LATEST


def test_names_are_read_whatever_their_case():
    options = parse_read({"NAMESRVADDR": "a:1;b:2", "Subscribe": "x, y ,x", "TAGS": "A || B"}, STREAM)
    assert options.namesrv_addr == "a:1;b:2"
    assert options.selection.topics == ("x", "y")
    assert options.wanted_tags == {"A", "B"}


def test_a_given_group_publishes_its_progress():
    assert parse_read({**NEEDED, "consumerGroup": "g"}, STREAM).publish_progress


def test_positions_by_time_and_by_offset():
    options = parse_read(
        {**NEEDED, "startingTimestamp": "1700000000000", "endingOffsets": '{"orders": {"b": {"0": -1}}}'}, BATCH
    )
    assert options.starting.timestamp_ms == 1_700_000_000_000
    assert options.ending.offsets == {"orders": {"b": {0: -1}}}


def test_what_spark_adds_itself_is_no_mistake():
    parse_read({**NEEDED, "path": "x", "checkpointLocation": "/c"}, STREAM)


def test_tls_is_left_to_the_environment_by_default():
    assert parse_read(NEEDED, BATCH).tls is None
    assert parse_read({**NEEDED, "tls": "False"}, BATCH).tls is False
    options = parse_write({"namesrvAddr": "a:1", "topic": "t", "tls": "true", "tlsConfigFile": "x.tls"}, False)
    assert (options.tls, options.tls_config_file) == (True, "x.tls")


@pytest.mark.parametrize(
    ("mode", "option", "value", "expected"),
    [
        (
            BATCH,
            "namesrvAddr",
            "localhost",
            r"'localhost' is no address: it has no port; expected name servers as host:port",
        ),
        (BATCH, "namesrvAddr", "localhost:0", "expected name servers as host:port"),
        (BATCH, "namesrvAddr", "a:1 b:2", "expected name servers as host:port"),
        (BATCH, "namesrvAddr", "", "option namesrvAddr is missing; expected name servers"),
        (BATCH, "subscribe", " ", "option subscribe is missing; expected topics"),
        (BATCH, "subscribe", "a,,b", "expected topics joined by commas"),
        (BATCH, "subscribe", "über", "expected topics joined by commas"),
        (BATCH, "subscribe", "t" * 128, "at most 127"),
        (BATCH, "startingOffsets", "newest", "expected earliest, latest"),
        (BATCH, "startingOffsets", "{", "startingOffsets={"),
        (BATCH, "startingOffsets", "latest", "reads nothing; expected earliest"),
        (BATCH, "startingOffsets", '{"orders": {"b": {"0": -1}}}', "reads nothing"),
        (BATCH, "endingOffsets", "earliest", "endingOffsets=earliest: expected latest"),
        (BATCH, "endingOffsets", '{"orders": {"b": {"0": -2}}}', "expected latest"),
        (BATCH, "startingTimestamp", "yesterday", "expected milliseconds since the epoch"),
        (BATCH, "startingTimestamp", "-1", "expected milliseconds since the epoch"),
        (BATCH, "maxOffsetsPerTrigger", "10", "streams only"),
        (STREAM, "maxOffsetsPerTrigger", "0", "expected a whole number from 1"),
        (STREAM, "maxOffsetsPerTrigger", "many", "expected a whole number from 1"),
        (STREAM, "endingOffsets", "latest", "a stream has no end"),
        (STREAM, "endingTimestamp", "5", "a stream has no end"),
        (BATCH, "minOffsetsPerTrigger", "10", "streams only"),
        (BATCH, "maxTriggerDelay", "10s", "streams only"),
        (STREAM, "minOffsetsPerTrigger", "-1", "expected a whole number from 1"),
        (STREAM, "maxTriggerDelay", "soon", "expected a time like 500ms, 30s, 15m or 1h"),
        (STREAM, "maxTriggerDelay", "30s", "bounds how long minOffsetsPerTrigger waits; give that too"),
        (STREAM, "filterPushdown", "true", "Spark pushes no conditions down into streams"),
        (STREAM, "filterPushdown", "yes", "expected true or false"),
        (BATCH, "sql", "", "expected an SQL92 expression over properties"),
        (BATCH, "sql", "price >", "the expression ends at position 7; expected an SQL92 expression"),
        (BATCH, "sql", "a = 1 b = 2", "which RocketMQ ignores"),
        (BATCH, "startingTimestamp", '{"orders": "soon"}', "cannot be; expected milliseconds"),
        (BATCH, "startingTimestamp", "2026-02-30", "expected milliseconds since the epoch, or a time like"),
        (BATCH, "startingTimestamp", "1960-01-01", "expected milliseconds since the epoch"),
        (STREAM, "minPartitions", "1.5", "expected a whole number from 1"),
        (STREAM, "maxRecordsPerPartition", "²", "expected a whole number from 1"),
        (STREAM, "failOnDataLoss", "no", "expected true or false"),
        (STREAM, "includeProperties", "1", "expected true or false"),
        (STREAM, "includeMetadata", "all", "expected true or false"),
        (STREAM, "tags", "||", "expected tags joined by ||"),
        (STREAM, "pollTimeoutMs", "0", "expected milliseconds"),
        (STREAM, "consumerGroup", "my group", "expected a group name"),
        (STREAM, "maxOffsetPerTrigger", "5", r"did you mean maxOffsetsPerTrigger\?"),
        (STREAM, "kafka.bootstrap.servers", "x", "there is no option kafka.bootstrap.servers=x"),
    ],
)
def test_a_bad_option_is_named_with_its_value_and_what_is_allowed(mode, option, value, expected):
    with pytest.raises(ConfigError, match=expected.replace("{", r"\{").replace("||", r"\|\|")) as caught:
        parse_read({**NEEDED, option: value}, mode)
    assert option in str(caught.value)
    assert (json.loads(value).popitem()[1] if value.startswith('{"orders": "') else value.strip()) in str(caught.value)


def test_a_missing_option_is_named():
    with pytest.raises(ConfigError, match="the option subscribe is missing"):
        parse_read({"namesrvAddr": "a:1"}, BATCH)


@pytest.mark.parametrize(
    ("together", "expected"),
    [
        ({"tags": "A", "sql": "n > 1"}, "tags=A and sql=n > 1 are both given"),
        ({"assign": '{"orders": [0]}'}, r'subscribe=orders and assign=\{"orders": \[0\]\} are given; give one of'),
        ({"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "9"}, "is more than maxOffsetsPerTrigger=9"),
    ],
)
def test_what_does_not_go_together(together, expected):
    with pytest.raises(ConfigError, match=expected):
        parse_read({**NEEDED, **together}, STREAM)


def test_all_tags_go_with_sql():
    options = parse_read({**NEEDED, "tags": "*", "sql": "n > 1"}, BATCH)
    assert options.filtered
    assert not parse_read(NEEDED, BATCH).filtered


def test_least_and_most_of_a_trigger_and_its_wait():
    options = parse_read({**NEEDED, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "5"}, STREAM)
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_ms) == (5, 900_000)
    for text, expected in (("250", 250), ("5 ms", 5), ("30s", 30_000), ("2m", 120_000), ("1h", 3_600_000), ("0s", 0)):
        given = {**NEEDED, "minOffsetsPerTrigger": "5", "maxTriggerDelay": text}
        assert parse_read(given, STREAM).max_trigger_delay_ms == expected


def test_times_are_numbers_or_text_in_utc():
    for text in ("1769846400000", "2026-01-31T08:00:00Z", "2026-01-31T08:00:00", "2026-01-31T09:00:00+01:00"):
        assert parse_read({**NEEDED, "startingTimestamp": text}, BATCH).starting.timestamp_ms == 1_769_846_400_000
    by_queue = '{"orders": {"b": {"0": 5, "1": "1970-01-01T00:00:01Z"}}}'
    options = parse_read({**NEEDED, "startingTimestamp": by_queue}, BATCH)
    assert options.starting.timestamps_ms == {"orders": {"b": {0: 5, 1: 1000}}}


def test_two_starts_are_one_too_many():
    with pytest.raises(ConfigError, match="both given"):
        parse_read({**NEEDED, "startingOffsets": "earliest", "startingTimestamp": "1"}, BATCH)


def test_what_depends_on_the_mode_waits_for_it():
    parse_read({**NEEDED, "maxOffsetsPerTrigger": "5", "startingOffsets": "latest"})
    with pytest.raises(ConfigError, match="no option"):
        parse_read({**NEEDED, "nope": "5"})


def test_every_option_says_what_is_expected():
    assert all(rules_of(ReadOptions).values())


def test_the_sink_needs_a_topic_from_somewhere():
    addresses = {"namesrvAddr": "127.0.0.1:9876"}
    assert parse_write(addresses, has_topic_column=True).topic is None
    assert parse_write({**addresses, "topic": "orders"}, has_topic_column=False).topic == "orders"
    with pytest.raises(ConfigError, match="the option topic is missing"):
        parse_write(addresses, has_topic_column=False)


def test_the_sink_refuses_options_of_the_source():
    with pytest.raises(ConfigError, match="there is no option subscribe=orders"):
        parse_write(NEEDED, has_topic_column=True)


SECRET = "s3cr3t"
SIGNED = {**NEEDED, "accessKey": "job", "secretKey": SECRET}


def test_keys_that_sign_requests_are_read_and_not_shown():
    options = parse_read({**SIGNED, "securityToken": "t0ken", "namespace": "tenant"}, STREAM)
    assert (options.access_key, options.secret_key, options.security_token) == ("job", SECRET, "t0ken")
    assert options.namespace == "tenant"
    assert SECRET not in repr(options)
    assert "t0ken" not in repr(options)
    assert parse_write({"namesrvAddr": "a:1", "topic": "t", "namespaceV2": "n"}, False).namespace_v2 == "n"


def test_the_environment_signs_where_no_option_does():
    environment = {"TIANZHOU_ACCESS_KEY": "all", "TIANZHOU_SECRET_KEY": SECRET}
    assert parse_read(with_credentials(NEEDED, environment)).access_key == "all"
    assert parse_read(with_credentials(SIGNED, environment)).access_key == "job"
    assert parse_read(with_credentials(NEEDED, {})).access_key is None
    # One half from each place would make a pair that the user has not chosen.
    with pytest.raises(ConfigError, match="accessKey is given without secretKey"):
        parse_read(with_credentials({**NEEDED, "ACCESSKEY": "job"}, environment))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"secretKey": SECRET}, "secretKey is given without accessKey"),
        ({"securityToken": SECRET}, "securityToken is given without accessKey and secretKey"),
        ({"secretKeys": SECRET}, r"there is no option secretKeys=\*+\(redacted\) \(did you mean secretKey"),
        ({"password": SECRET}, r"there is no option password=\*+\(redacted\)"),
        ({"accessKey": "", "secretKey": SECRET}, "accessKey=: expected the name of an account"),
        ({"namespace": "a", "namespaceV2": "b"}, "namespace=a and namespaceV2=b are both given"),
        ({"startingOffsetsByTimestampStrategy": "error"}, "Strategy=error: counts with startingTimestamp only"),
        (
            {"startingOffsetsByTimestampStrategy": "earliest", "startingTimestamp": "5"},
            "Strategy=earliest: expected error or latest",
        ),
        ({"columns": "avro"}, "columns=avro: expected rocketmq or kafka"),
        ({"includeHeaders": "true"}, "includeHeaders=true: counts with columns=kafka only"),
        ({"columns": "kafka", "includeProperties": "false"}, "includeProperties=false: counts with columns=rocketmq"),
        ({"columns": "kafka", "includeMetadata": "true"}, "includeMetadata=true: counts with columns=rocketmq only"),
        ({"namespace": "a b"}, "namespace=a b: expected a namespace"),
    ],
)
def test_errors_about_keys_namespaces_and_columns_show_no_secrets(wrong, says):
    with pytest.raises(ConfigError, match=says) as caught:
        parse_read({**NEEDED, **wrong}, BATCH)
    assert SECRET not in str(caught.value)

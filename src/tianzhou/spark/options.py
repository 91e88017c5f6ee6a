"""The options of the sink, read and checked. Pure.

The source's are in `read_options`; how values are read, in `given`. Every mistake is a `ConfigError` that names
the option, its value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tianzhou.spark import given as values
from tianzhou.spark.given import Given


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of the sink.

    Attributes:
        namesrv_addr: name servers, `host:port` joined by `;`.
        tls: whether to speak TLS; None leaves it to each process's environment.
        tls_config_file: where RocketMQ's `tls.*` keys are, on every machine; None leaves that to the environment.
        topic: the topic of rows without a `topic` column or with null in it; None when every row has one.
        producer_group: the group to send as.
        send_timeout_ms: how long one send may take, retries included.
    """

    namesrv_addr: str
    tls: bool | None
    tls_config_file: str | None
    topic: str | None
    producer_group: str
    send_timeout_ms: int


WRITE_KNOWN: Final[Mapping[str, str]] = {
    "namesrvAddr": values.NAMESRV_RULE,
    "tls": "true or false",
    "tlsConfigFile": values.TLS_FILE_RULE,
    "topic": f"a topic: {values.NAME_RULE}",
    "producerGroup": f"a group name: {values.NAME_RULE}",
    "sendTimeoutMs": "milliseconds, a whole number from 1",
}


def parse_write(options: Mapping[str, str], has_topic_column: bool) -> WriteOptions:
    """Read the options of the sink.

    Args:
        options: as given; names in any case.
        has_topic_column: whether the rows name their topic, so that the option is not needed.

    Raises:
        ConfigError: an option is missing, unknown or malformed.
    """
    given = Given(options, WRITE_KNOWN)
    given.need("namesrvAddr")
    if not has_topic_column:
        given.need("topic")
    tls, tls_file = values.tls(given)
    return WriteOptions(
        namesrv_addr=given.read("namesrvAddr", "", values.addresses),
        tls=tls,
        tls_config_file=tls_file,
        topic=given.read("topic", None, values.name),
        producer_group=given.read("producerGroup", "tianzhou-spark", values.name),
        send_timeout_ms=given.read("sendTimeoutMs", 10_000, values.number(1)),
    )

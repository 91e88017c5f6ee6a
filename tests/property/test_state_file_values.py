"""A broker starts with any JSON in a state file, or reports which file is wrong."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tianzhou.broker.server import make_tables
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.state_files import StateFiles
from tianzhou.errors import ConfigError, StoreUnreadable
from tianzhou.namesrv.kv import KvConfig
from tianzhou.store.queues.queues import batch_topics_in
from tianzhou.store.settings import StoreSettings

NAMES = (
    "topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "consumerFilter.json",
    "lmqConsumerOffset.json", "transactionMetrics",
)  # fmt: skip
MEMBERS = st.sampled_from(
    [
        "dataVersion", "topicConfigTable", "subscriptionGroupTable", "forbiddenTable", "offsetTable", "lmqOffsetTable",
        "filterDataByTopic", "groupFilterData", "transactionCount", "configTable", "attributes", "topicName",
        "readQueueNums", "groupName", "counter", "timestamp", "stateVersion", "T@G", "0", "count", "timeStamp",
        "expression", "bloomFilterData", "consumerGroup", "queue.type", "perm", "1",
    ]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | MEMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS | st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(name=st.sampled_from(NAMES), value=JSON)
def test_a_broker_starts_or_names_the_file(name: str, value: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config")
        config.mkdir()
        (config / name).write_text(json.dumps(value))
        batch_topics_in(Path(folder))
        files = StateFiles(make_tables(BrokerSettings(), StoreSettings(), 0), config)
        refused = ""
        try:
            files.load()
        except StoreUnreadable as error:
            refused = str(error)
        else:
            files.close()
        assert files.unwritten == []
        assert not refused or (name in refused and "\n" not in refused)


@given(value=JSON)
def test_a_name_server_starts_or_names_the_file(value: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kvConfig.json")
        file.write_text(json.dumps(value))
        refused = "kvConfig.json"
        try:
            KvConfig(file).load()
        except ConfigError as error:
            refused = str(error)
        assert "kvConfig.json" in refused

"""Our broker, or Apache's, at Apache's name server, for tests that send both the same requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import frames
import pytest
from apache import ApacheBroker, ApacheNamesrv
from frames import call
from own import OwnBroker
from toolchain import SERVERS, ToolchainMissingError

LEVELS = " ".join(["1s"] * 18)
"""`messageDelayLevel`: every level is a second."""


@contextmanager
def broker_of(
    kind: str, folder: Path, conf: Mapping[str, object] | None = None, namesrv: ApacheNamesrv | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the addresses of Apache's name server, and of a broker of ours or Apache's.

    Args:
        kind: `tianzhou`, `apache`, or a version of Apache's.
        folder: Folder for all files.
        conf: Entries of the broker's configuration; delays of a second at every level when None.
        namesrv: A running name server without another broker; when None, one that ends with the broker.
    """
    entries = dict({"messageDelayLevel": LEVELS} if conf is None else conf)
    try:
        with ExitStack() as stack:
            if namesrv is None:
                namesrv = stack.enter_context(ApacheNamesrv(home=folder / "namesrv"))
            broker: OwnBroker | ApacheBroker
            if kind == "tianzhou":
                broker = OwnBroker(namesrv.address, folder / "store", folder / "broker", entries)
            else:
                broker = ApacheBroker(
                    namesrv.address,
                    store_dir=folder / "store",
                    home=folder / "broker",
                    conf=entries,
                    version=SERVERS[0] if kind == "apache" else kind,
                )
            stack.callback(broker.kill)  # its store is not needed any more
            broker.start()
            yield namesrv.address, broker.address
    except ToolchainMissingError as error:
        pytest.skip(str(error))


def make_topic(broker: str, topic: str, perm: int, read: int = 1, write: int = 1) -> None:
    fields: dict[str, object] = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": read, "writeQueueNums": write, "perm": perm,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    assert call(broker, frames.UPDATE_AND_CREATE_TOPIC, fields).code == 0


def make_group(broker: str, name: str, **fields: object) -> None:
    config = {
        "groupName": name, "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True,
        "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True, **fields,
    }  # fmt: skip
    assert call(broker, 200, body=json.dumps(config).encode()).code == 0

"""RocketMQ's own integration tests, as published for 4.9.7, against two brokers of ours.

The classes come from Maven. They extend a base class that starts Apache's servers; `java/integration` has a class of
the same name that uses ours. The brokers have the settings of these tests.
"""

from __future__ import annotations

import subprocess
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import toolchain
from own import OwnBroker, name_server

pytestmark = pytest.mark.slow

PACKAGE: Final = "org.apache.rocketmq.test."
LIMIT_S: Final = 1500
SETTINGS: Final = {
    "enablePropertyFilter": "true",
    "enableCalcFilterBitMap": "true",
    "enableConsumeQueueExt": "true",
    "mappedFileSizeCommitLog": 100 << 20,
    "maxIndexNum": 1000,
    "maxHashSlotNum": 4000,
    "maxTransferCountOnMessageInMemory": 1024,
    "maxTransferCountOnMessageInDisk": 1024,
}
CLASSES: Final = {
    "client.consumer.balance.NormalMsgDynamicBalanceIT": 2,
    "client.consumer.balance.NormalMsgStaticBalanceIT": 2,
    "client.consumer.broadcast.normal.BroadCastNormalMsgNotRecvIT": 1,
    "client.consumer.broadcast.normal.BroadCastNormalMsgRecvCrashIT": 1,
    "client.consumer.broadcast.normal.BroadCastNormalMsgRecvFailIT": 1,
    "client.consumer.broadcast.normal.BroadCastNormalMsgRecvStartLaterIT": 1,
    "client.consumer.broadcast.normal.BroadCastNormalMsgTwoDiffGroupRecvIT": 1,
    "client.consumer.broadcast.normal.NormalMsgTwoSameGroupConsumerIT": 1,
    "client.consumer.broadcast.tag.BroadCastTwoConsumerFilterIT": 1,
    "client.consumer.broadcast.tag.BroadCastTwoConsumerSubDiffTagIT": 1,
    "client.consumer.broadcast.tag.BroadCastTwoConsumerSubTagIT": 1,
    "client.consumer.cluster.DynamicAddAndCrashIT": 2,
    "client.consumer.cluster.DynamicAddConsumerIT": 2,
    "client.consumer.cluster.DynamicCrashConsumerIT": 2,
    "client.consumer.filter.SqlFilterIT": 2,
    "client.consumer.tag.MulTagSubIT": 5,
    "client.consumer.tag.TagMessageWith1ConsumerIT": 8,
    "client.consumer.tag.TagMessageWithMulConsumerIT": 4,
    "client.consumer.tag.TagMessageWithSameGroupConsumerIT": 3,
    "client.consumer.topic.MulConsumerMulTopicIT": 3,
    "client.consumer.topic.OneConsumerMulTopicIT": 3,
    "client.producer.async.AsyncSendExceptionIT": 6,
    "client.producer.async.AsyncSendWithMessageQueueIT": 1,
    "client.producer.async.AsyncSendWithMessageQueueSelectorIT": 1,
    "client.producer.async.AsyncSendWithOnlySendCallBackIT": 1,
    "client.producer.batch.BatchSendIT": 2,
    "client.producer.exception.msg.ChinaPropIT": 2,
    "client.producer.exception.msg.MessageExceptionIT": 10,
    "client.producer.exception.msg.MessageUserPropIT": 2,
    "client.producer.exception.producer.ProducerGroupAndInstanceNameValidityIT": 2,
    "client.producer.oneway.OneWaySendExceptionIT": 3,
    "client.producer.oneway.OneWaySendIT": 1,
    "client.producer.oneway.OneWaySendWithMQIT": 1,
    "client.producer.oneway.OneWaySendWithSelectorIT": 1,
    "client.producer.order.OrderMsgDynamicRebalanceIT": 2,
    "client.producer.order.OrderMsgIT": 3,
    "client.producer.order.OrderMsgRebalanceIT": 2,
    "client.producer.order.OrderMsgWithTagIT": 5,
    "client.producer.querymsg.QueryMsgByIdExceptionIT": 2,
    "client.producer.querymsg.QueryMsgByIdIT": 1,
    "client.producer.querymsg.QueryMsgByKeyIT": 4,
    "client.producer.transaction.TransactionalMsgIT": 1,
    "delay.NormalMsgDelayIT": 4,
    "smoke.NormalMessageSendAndRecvIT": 1,
    "tls.TLS_IT": 1,
    "tls.TLS_Mix2_IT": 1,
    "tls.TLS_Mix_IT": 1,
}
"""Number of tests by class."""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    """Return the reports of each class' tests: result, class, test, error."""
    try:
        classpath = toolchain.integration_tests()
        java = toolchain.tool("java")
    except toolchain.ToolchainMissingError as error:
        pytest.skip(str(error))
    home = tmp_path_factory.mktemp("integration")
    with ExitStack() as stack:
        namesrv = stack.enter_context(name_server(home))
        brokers = ["broker-a", "broker-b"]
        for name in brokers:
            settings = {"brokerName": name, **SETTINGS}
            stack.enter_context(OwnBroker(namesrv, home / name / "store", home / name, settings))
        servers = ",".join([namesrv, "DefaultCluster", *brokers])
        command = [java, "-Xmx512m", f"-Duser.home={home}", f"-Dservers={servers}", "-cp", classpath, "Integration"]
        with (home / "tests.log").open("wb") as log:
            result = subprocess.run(
                [*command, *(PACKAGE + name for name in CLASSES)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                timeout=LIMIT_S,
                check=True,
                cwd=home,
                env=toolchain.environment(),
            )
    told: dict[str, list[list[str]]] = {}
    for line in result.stdout.decode().splitlines():
        parts = line.split("\t")
        told.setdefault(parts[1].removeprefix(PACKAGE), []).append(parts)
    return told


@pytest.mark.parametrize("name", CLASSES)
def test_apaches_own_test_passes(outcome: dict[str, list[list[str]]], name: str) -> None:
    told = outcome.get(name, [])
    assert [parts for parts in told if parts[0] != "ok"] == []
    assert len(told) == CLASSES[name]


def test_no_class_of_theirs_is_forgotten() -> None:
    try:
        folder = Path(toolchain.integration_tests().rpartition(":")[2]).parent
    except toolchain.ToolchainMissingError as error:
        pytest.skip(str(error))
    with zipfile.ZipFile(folder / "rocketmq-test-4.9.7-tests.jar") as jar:
        entries = [entry for entry in jar.namelist() if entry.endswith("IT.class")]
    found = {entry.removesuffix(".class").replace("/", ".").removeprefix(PACKAGE) for entry in entries}
    without_servers_of_ours = {
        "base.dledger.DLedgerProduceAndConsumeIT",
        "client.consumer.broadcast.BaseBroadCastIT",
        "client.consumer.broadcast.order.OrderMsgBroadCastIT",  # ignored by its own authors
    }
    assert found - without_servers_of_ours == set(CLASSES)

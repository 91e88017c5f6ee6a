"""Attributes of groups: RocketMQ has none, so that a broker refuses each change of one (200, 225)."""

from __future__ import annotations

import json

import pytest
from broker_bench import Bench

from tianzhou.model import SubscriptionGroupConfig
from tianzhou.wire.codes import RequestCode


@pytest.mark.parametrize("name", ["+color", "-color", "color"])
@pytest.mark.parametrize("is_there", [True, False])
async def test_an_unknown_attribute_is_refused_and_changes_nothing(bench: Bench, name: str, is_there: bool) -> None:
    peer, groups = bench.peer(), bench.tables.groups
    if is_there:
        assert (await peer.create_group("G", retryMaxTimes=3)).code == 0
    before = groups.get("G")
    refused = await peer.create_group("G", retryMaxTimes=5, attributes={name: "red"})
    assert (refused.code, f"unsupported key: {name}" in str(refused.remark)) == (1, True)
    body = json.dumps({"groupConfigList": [{"groupName": "more"}, {"groupName": "G", "attributes": {name: "red"}}]})
    assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body.encode())).code == 1
    assert groups.get("G") == before
    assert "more" not in groups


async def test_attributes_that_a_group_has_from_before_stay(bench: Bench) -> None:
    """Earlier versions stored any text; a change of another field preserves it."""
    groups = bench.tables.groups
    groups.put(SubscriptionGroupConfig("G", attributes={"color": "red"}), 0)
    assert (await bench.peer().create_group("G", retryMaxTimes=3)).code == 0
    found = groups.get("G")
    assert found is not None
    assert (found.attributes, found.retry_max_times) == ({"color": "red"}, 3)

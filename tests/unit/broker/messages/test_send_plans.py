"""Plans of sends: kept for like sends, and dropped by each change that they depend on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from broker_bench import Bench

from tianzhou.broker.messages.send_plans import SendPlan, SendPlans
from tianzhou.model import TopicConfig
from tianzhou.model.send_limit import LimitScope, limit_of

ORDERS = TopicConfig("orders", 2, 3)


def planned(plans: SendPlans, *configs: TopicConfig) -> list[SendPlan]:
    """Admit sends to topics."""
    made = [plans.make(config.topic_name, config) for config in configs]
    for config, plan in zip(configs, made, strict=True):
        plans.add(config.topic_name, plan)
    return made


async def test_like_sends_share_a_plan(bench: Bench) -> None:
    plans = SendPlans(bench.services)
    (plan,) = planned(plans, ORDERS)
    assert plan.limit == 3
    assert plans.find("orders") is plans.make("orders", ORDERS) is plans.by_topic["orders"] is plan
    assert plans.find("others") is None


async def test_a_changed_topic_drops_its_plan_alone(bench: Bench) -> None:
    others = replace(ORDERS, topic_name="others")
    for config in (ORDERS, others):
        bench.tables.topics.put(config, 1)
    plans = SendPlans(bench.services)
    planned(plans, ORDERS, others)
    version, executors_table = plans.version, plans.by_topic
    bench.tables.topics.put(replace(ORDERS, write_queue_nums=9), 2)
    assert (plans.find("orders"), list(plans.by_topic), plans.version > version) == (None, ["others"], True)
    bench.tables.topics.delete(["others"], 3)
    assert plans.by_topic == {}
    assert plans.by_topic is executors_table, "executors got this table once"


@pytest.mark.parametrize("limited", ["orders", "others"])
async def test_a_limit_drops_all_plans_and_keeps_its_topic_from_the_executors(bench: Bench, limited: str) -> None:
    plans = SendPlans(bench.services)
    planned(plans, ORDERS)
    bench.tables.send_limits.put([limit_of(LimitScope.TOPIC, limited, 10, 20)])
    assert plans.find("orders") is None
    (plan,) = planned(plans, ORDERS)
    assert plans.find("orders") is plan
    assert ("orders" in plans.by_topic) is (limited != "orders")
    bench.tables.send_limits.delete(list(bench.tables.send_limits.all()))
    assert (plans.find("orders"), plans.limits) == (None, None)

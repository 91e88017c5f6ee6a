"""The lag that a query reports is the number of available messages that it has not read."""

import json

from tianzhou.model import MessageQueue
from tianzhou.spark import description, lag, metrics
from tianzhou.spark.source.offsets import to_json

A, B = (MessageQueue("orders", "broker-a", number) for number in (0, 1))


def source(done, there):
    return {"endOffset": json.dumps(to_json(done, done)), "latestOffset": json.dumps(to_json(there, there))}


def test_the_lag_is_what_was_there_and_not_read():
    assert lag({"sources": [source({A: 5, B: 2}, {A: 9, B: 2})]}) == {A: 4, B: 0}


def test_a_queue_that_was_new_and_one_that_was_away():
    assert lag({"sources": [source({A: 5}, {B: 3})]}) == {B: 3}


def test_other_sources_have_no_lag():
    foreign = {"endOffset": '{"orders":{"0":5}}', "latestOffset": "7"}
    assert lag({"sources": [foreign, {"endOffset": None, "latestOffset": None}, source({A: 1}, {A: 1})]}) == {A: 0}


def test_the_figures_of_sparks_kafka_source_have_its_names():
    assert metrics({"sources": [source({A: 5, B: 2}, {A: 9, B: 3})]}) == {
        "minOffsetsBehindLatest": "1",
        "maxOffsetsBehindLatest": "4",
        "avgOffsetsBehindLatest": "2.5",
    }
    assert metrics({"sources": [{"endOffset": None, "latestOffset": None}]}) == {}


def test_what_a_query_reads_is_described_by_its_topics():
    bills = MessageQueue("bills", "broker-b", 0)
    sources = [source({A: 5, B: 2, bills: 0}, {}), {"endOffset": "7", "latestOffset": "7"}]
    assert description({"sources": sources}) == "bills (broker-b: 1 queue), orders (broker-a: 2 queues)"
    assert description({"sources": []}) == ""

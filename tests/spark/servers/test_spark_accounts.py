"""Source, sink and pipelines at servers with access control and in namespaces; no secret is displayed."""

from __future__ import annotations

import json
import logging
import sys

import pytest
from quick_start import QUERY_LIMIT_S

from tianzhou.cli import main as entry
from tianzhou.pipelines.topics import Topics, started

SECRET = "s3cr3t-of-the-job"
KEYS = {"accessKey": "spark-job", "secretKey": SECRET}
ACCOUNTS = f"""accounts:
- {{accessKey: administrator, secretKey: admin-secret, admin: true}}
- accessKey: spark-job
  secretKey: {SECRET}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  groupPerms: [TIANZHOU_STAGING=DENY]
- accessKey: first-writer
  secretKey: first-secret
  topicPerms: [signed=PUB]
  groupPerms: ["batch:b=SUB", TIANZHOU_STAGING=SUB]
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, module_server):
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "plain_acl.yml").write_text(ACCOUNTS)
    admin = {"access_key": "administrator", "secret_key": "admin-secret"}
    return module_server(folder, values={"aclEnable": "true"}, **admin)


def copied(spark, source, sink, checkpoint):
    """Run a stream from one topic to another to its end; return its progress reports."""
    query = (
        spark.readStream.format("tianzhou")
        .options(startingOffsets="earliest", **source)
        .load()
        .select("body")
        .writeStream.format("tianzhou")
        .options(**sink, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_LIMIT_S)
    return query.lastProgress


def test_rows_go_and_come_signed_and_nothing_shows_the_secret(spark, guarded, tmp_path, capfd, caplog):
    caplog.set_level(logging.DEBUG, "tianzhou")
    topic, again = guarded.create("signed"), guarded.create("signed-again")
    servers = {"namesrvAddr": guarded.address, **KEYS}
    frame = spark.range(50).selectExpr("cast(id as string) as body")
    frame.write.format("tianzhou").options(**servers, topic=topic).mode("append").save()
    once = {"topic": topic, "delivery": "exactly-once", "batchKey": "b"}
    with pytest.raises(Exception, match=r"no name server keeps which broker decides.*for group:TIANZHOU_STAGING"):
        frame.write.format("tianzhou").options(**servers, **once).mode("append").save()
    first = {"accessKey": "first-writer", "secretKey": "first-secret"}
    frame.write.format("tianzhou").options(**{**servers, **first}, **once).mode("append").save()
    rows = spark.read.format("tianzhou").options(**servers, subscribe=topic).load()
    assert sorted(int(bytes(row.body)) for row in rows.collect()) == sorted([*range(50)] * 2)
    progress = copied(spark, {**servers, "subscribe": topic}, {**servers, "topic": again}, tmp_path / "c")
    assert len(guarded.messages(again)) == 100
    with pytest.raises(Exception, match=r"accessKey|secretKey") as misspelled:
        spark.read.format("tianzhou").options(**servers, secretKeys=SECRET, subscribe=topic).load()
    rows.explain("extended")
    rows.explain("formatted")
    written = "".join(map(str, tmp_path.rglob("*"))) + "".join(
        file.read_text(errors="replace") for file in (tmp_path / "c").rglob("*") if file.is_file()
    )
    said = capfd.readouterr()
    for text in (progress.json, str(misspelled.value), said.out, said.err, caplog.text, written):
        assert SECRET not in text


def test_who_does_not_sign_or_signs_wrongly_is_told(spark, guarded):
    topic = guarded.create("refused")
    for keys in ({}, {"accessKey": "spark-job", "secretKey": "wrong-secret"}):
        with pytest.raises(Exception, match=r"(?i)acl|sign|permission|credential") as caught:
            spark.read.format("tianzhou").options(
                namesrvAddr=guarded.address, subscribe=topic, pollTimeoutMs=1000, **keys
            ).load().collect()
        assert "wrong-secret" not in str(caught.value)


def test_topics_of_a_namespace_go_by_their_own_names(spark, server, tmp_path):
    for name in ("tenant%orders", "tenant%orders-copy", "orders-of-others"):
        server.create(name)
    given = {"namesrvAddr": server.address, "namespace": "tenant"}
    cluster = Topics(spark, server.address, namespace="tenant")
    cluster.send(spark.range(20).selectExpr("cast(id as string) as body"), "orders")
    assert len(server.messages("tenant%orders")) == 20
    rows = cluster.table("orders").select("topic").distinct().collect()
    assert [row.topic for row in rows] == ["orders"]
    by_pattern = spark.read.format("tianzhou").options(**given, subscribePattern="orders.*").load()
    assert {row.topic for row in by_pattern.select("topic").collect()} == {"orders"}
    query = started(
        cluster.stream("orders", startingOffsets="earliest")
        .select("body")
        .writeStream.format("tianzhou")
        .options(**given, topic="orders-copy"),
        str(tmp_path / "c"),
    )
    assert query.awaitTermination(QUERY_LIMIT_S)
    assert len(server.messages("tenant%orders-copy")) == 20


@pytest.fixture
def run(spark, guarded, monkeypatch, capsys):
    """Run `tianzhou pipeline ARGS… --namespace tenant` at the guarded server; return exit code, stdout, stderr."""
    for name in ("TIANZHOU_ACCESS_KEY", "TIANZHOU_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)

    def runner(*args):
        capsys.readouterr()
        monkeypatch.setattr(
            sys, "argv", ["tianzhou", "pipeline", *args, "--namespace", "tenant", "-n", guarded.address]
        )
        with pytest.raises(SystemExit) as ended:
            entry.main()
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err
        return int(ended.value.code or 0), said.out, said.err

    return runner


@pytest.fixture
def signed(tmp_path):
    """Return options that sign, with the secret in a file."""
    file = tmp_path / "job.secret"
    file.write_text(f"{SECRET}\n")
    return "--access-key", "spark-job", "--secret-key-file", str(file)


def test_a_replay_is_signed_and_goes_by_the_names_of_a_namespace(guarded, run, signed, tmp_path):
    for name, count in (("tenant%bills", 5), ("bills", 3), ("tenant%again", 0)):
        guarded.create(name)
        guarded.send(name, range(count))
    replay = ("replay", "bills", "--to", "again", "--checkpoint", str(tmp_path / "c"))
    code, _, err = run(*replay)
    assert (code, "accessKey" in err or "sign" in err.lower()) == (1, True), err
    code, out, err = run(*replay, *signed, "-o", "json")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1]) == {"sent": 5, "from": "bills", "to": "again"}
    assert sorted(m.body for m in guarded.messages("tenant%again")) == [b"%d" % number for number in range(5)]


def test_dead_letters_of_a_namespace_are_counted_and_sent_again(guarded, run, signed):
    letters = guarded.create("%DLQ%tenant%billing")
    guarded.send(letters, range(4), properties={"reason": "Timeout"})
    guarded.create("tenant%paid")
    code, out, err = run("dlq", "billing", *signed, "-o", "json")
    assert code == 0, err
    assert [(one["reason"], one["letters"]) for one in json.loads(out)["causes"]] == [("Timeout", 4)]
    code, _, err = run("dlq", "billing", "--all", "--to-topic", "paid", "--apply", *signed)
    assert (code, len(guarded.messages("tenant%paid"))) == (0, 4), err

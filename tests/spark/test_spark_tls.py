"""Source and sink over TLS, against a server that accepts only TLS."""

from __future__ import annotations

from dataclasses import replace

import pytest
from authority import Authority, certified
from quick_start import QUERY_LIMIT_S


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def secure(tls_server, authority):
    return tls_server(replace(certified(authority), server_mode="enforcing"))


def test_rows_go_and_come_by_certificates_that_are_verified(spark, secure, authority, tmp_path):
    file = tmp_path / "client.tls"
    file.write_text(f"tls.client.authServer=true\ntls.client.trustCertPath={authority.path}\n")
    topic = secure.create("secret")
    given = {"namesrvAddr": secure.address, "tls": "true", "tlsConfigFile": str(file)}
    frame = spark.range(200).selectExpr("cast(id as string) as body").repartition(2)
    frame.write.format("tianzhou").options(**given, topic=topic).mode("append").save()
    rows = spark.read.format("tianzhou").schema("body STRING").options(**given, subscribe=topic).load()
    assert sorted(int(row.body) for row in rows.collect()) == list(range(200))
    query = (
        spark.readStream.format("tianzhou")
        .options(**given, subscribe=topic, startingOffsets="earliest")
        .load()
        .select("body")
        .writeStream.format("tianzhou")
        .options(**given, topic=secure.create("copy"), checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_LIMIT_S)
    assert sorted(int(message.body) for message in secure.messages("copy")) == list(range(200))


def test_whoever_is_not_trusted_is_not_read_and_tls_is_never_left_out(spark, secure, tmp_path):
    other = Authority(tmp_path, "other")
    file = tmp_path / "other.tls"
    file.write_text(f"tls.client.authServer=true\ntls.client.trustCertPath={other.path}\n")
    given = {"namesrvAddr": secure.address, "subscribe": secure.create("secret"), "pollTimeoutMs": "1000"}
    for options, says in (({"tls": "true", "tlsConfigFile": str(file)}, "is not trusted"), ({}, "was lost")):
        with pytest.raises(Exception, match=says):
            spark.read.format("tianzhou").options(**given, **options).load().collect()
    assert spark.read.format("tianzhou").options(**given, tls="true").load().count() == 0

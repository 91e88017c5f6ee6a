"""The Spark rows of `bad_input_rows`: each mistake ends the query with its own text, and the server serves on."""

from __future__ import annotations

import bad_input_rows as rows
import pytest


@pytest.mark.parametrize("row", rows.SPARK, ids=lambda row: f"{row.what} {dict(row.options)}")
def test_a_wrong_option_ends_the_query_with_the_fix(row, spark, server, topic, tmp_path) -> None:
    server.send(topic, ["kept"], queue=0)
    chosen = {"subscribePattern", "assign"} & row.options.keys()
    given = {"namesrvAddr": server.address, **row.options}
    if row.what != "write" and not chosen:
        given = {"subscribe": topic, **given}

    def query() -> None:
        if row.what == "write":
            frame = spark.createDataFrame([(b"x",)], "body binary")
            frame.write.format("tianzhou").options(**given).mode("append").save()
        elif row.what == "read":
            spark.read.format("tianzhou").options(**given).load().collect()
        else:
            stream = spark.readStream.format("tianzhou").options(**given).load()
            stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(
                availableNow=True
            ).start().awaitTermination()

    with pytest.raises(Exception, match=row.pattern):
        query()
    assert [message.body for message in server.messages(topic)] == [b"kept"]
    server.send(topic, ["more"], queue=0)
    assert len(server.messages(topic)) == 2


@pytest.mark.parametrize("name", ["tianzhou", "tianzhou_store"])
def test_a_stream_that_is_refused_ends_in_our_words(name, spark, server, topic, tmp_path) -> None:
    where = {"namesrvAddr": server.address} if name == "tianzhou" else {"storePath": str(server.folder)}
    stream = spark.readStream.format(name).options(**where, subscribe=topic, endingOffsets="latest").load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match="endingOffsets=latest: a stream has no end") as caught:
        writer.trigger(availableNow=True).start().awaitTermination()
    errors = [line for line in str(caught.value).splitlines() if "Error: " in line]
    assert errors[-1].startswith("tianzhou.errors.ConfigError: endingOffsets=latest: a stream has no end")

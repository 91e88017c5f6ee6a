"""The merged table without a database: only the parts are written anew that hold what changed."""

import json

import pytest

from tianzhou.errors import ConfigError
from tianzhou.pipelines.merged_table import CURRENT, PARTS, merge, merged
from tianzhou.pipelines.topics import Topics

SCHEMA = "id INT, name STRING"


def change(key: int, position: int, name: str | None) -> str:
    row = None if name is None else json.dumps({"id": key, "name": name})
    op = "delete" if name is None else "update"
    return json.dumps({"op": op, "table": "shop.items", "key": str(key), "row": row, "position": f"{position:09d}"})


@pytest.mark.slow
def test_a_batch_writes_the_parts_that_hold_its_keys(spark, server, topic, tmp_path):
    to = tmp_path / "merged"

    def table(*changes: str) -> dict[int, str]:
        server.send(topic, list(changes))
        merge(Topics(spark, server.address), topic, str(to), table="shop.items", schema=SCHEMA).awaitTermination(120)
        return {row["id"]: row["name"] for row in merged(spark, str(to)).collect()}

    with pytest.raises(ConfigError, match="holds no merged table yet"):
        merged(spark, str(to))
    wanted = {key: f"item {key}" for key in range(200)}
    assert table(*(change(key, key, name) for key, name in wanted.items())) == wanted
    first = len(list(to.glob("version=0/_part=*")))
    assert first > PARTS // 2
    wanted[7] = "tea"
    del wanted[8]
    assert table(change(7, 500, "tea"), change(7, 100, "older"), change(7, 500, "tea"), change(8, 501, None)) == wanted
    assert len(list(to.glob("version=1/_part=*"))) == 2
    # A repeated older change does not bring a deleted row back.
    assert table(change(8, 8, "item 8")) == wanted
    assert len(list(to.glob("version=2/_part=*"))) == 1
    # What was the table before stays, for who has begun to read it; what was before that is gone.
    assert len(json.loads((to / CURRENT).read_text())["parts"]) == first
    assert len(list(to.glob("version=0/_part=*"))) == first - 2
    assert len(list(to.glob("version=1/_part=*"))) == 2

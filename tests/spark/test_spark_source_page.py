"""The examples of docs/howto/spark-source.md, run as printed against a server with a topic `orders`."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "spark-source.md"


def test_the_examples_of_the_page(spark, own_server, tmp_path, capsys):
    own_server.create("orders")
    own_server.send("orders", range(30), tags=lambda n: ["paid", "sent"][n % 2], properties=lambda n: {"price": str(n)})
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        text = block.replace("127.0.0.1:9876", own_server.address).replace('"/data', f'"{tmp_path}')
        exec(compile(text, str(PAGE), "exec"), names)
    assert names["last_hour"].count() == names["orders"].where("queueId = 0").count() > 0
    assert sorted(int(row.body) for row in names["bodies"].collect()) == list(range(30))
    assert spark.read.parquet(f"{tmp_path}/orders").count() == 30
    assert names["paid"].count() == 9
    shown = capsys.readouterr().out
    assert "0 messages behind" in shown
    assert shown.count("|paid|   15|") == 1

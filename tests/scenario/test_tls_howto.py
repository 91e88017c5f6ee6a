"""The commands of docs/howto/tls.md for a pair, typed as printed; only ports are the test's."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from processes import Tianzhou, environment

from tianzhou.broker.server import free_port_pair

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "tls.md").read_text(encoding="utf-8")


def commands(section: str) -> str:
    """The first block of a section."""
    found = re.search(rf"^## {section}\n.*?^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_a_pair_whose_ports_all_ask_for_certificates(tmp_path: Path) -> None:
    namesrv, main, second = (str(free_port_pair("127.0.0.1")) for _ in range(3))
    of_test = {"namesrv": f"kvConfigPath={tmp_path}/kv.json\n", "master": f"listenPort={main}\n", "slave": ""}
    text = commands("Between servers").replace("9876", namesrv).replace("10921", second)
    *files, status = text.splitlines()
    starts = [line.removeprefix("tianzhou ").removesuffix(" &").split() for line in files if line.endswith(" &")]
    typed = commands("Certificates of your own") + "\n".join(line for line in files if not line.endswith(" &")) + "\n"
    typed = typed.replace("tianzhou tls make", f"{sys.executable} -m tianzhou tls make")
    subprocess.run(["bash", "-e", "-c", typed], cwd=tmp_path, env=environment(), check=True, capture_output=True)
    with ExitStack() as stack:
        for words, more in zip(starts, of_test.items(), strict=True):
            name, values = more
            with (tmp_path / f"{name}.conf").open("a") as file:
                file.write(f"{values}bindAddress=127.0.0.1\n")
            port = ["--port", namesrv] if name == "namesrv" else []
            stack.enter_context(Tianzhou(tmp_path, *words, *port, "-o", "json")).ready()
        variables = environment(NAMESRV_ADDR=f"127.0.0.1:{namesrv}")
        typed = status.replace("tianzhou status", f"{sys.executable} -m tianzhou status")
        shown = subprocess.run(
            ["bash", "-c", typed], cwd=tmp_path, env=variables, check=True, capture_output=True, text=True
        ).stdout
    rows = [line for line in shown.splitlines() if line.startswith("broker-a")]
    assert ["  master  " in row for row in rows] == [True, False], shown
    assert f"slave of 127.0.0.1:{int(main) + 1} " in rows[1], shown

"""`tianzhou bench` against Apache's name server and broker: every command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache import serving
from processes import Tianzhou

from tianzhou import sync

pytestmark = [pytest.mark.interop, pytest.mark.slow]
RUN_LIMIT_S = 120


@pytest.fixture(scope="module", params=["5.3.3", "4.9.7"])
def apache(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the address of Apache's name server of the wanted version, with a broker."""
    with serving(request.param) as address:
        yield address


@pytest.mark.parametrize(
    ("args", "roles"),
    [
        (("produce", "b1", "--count", 2000, "--warm-up", 0, "--processes", 2, "--batch", 4), {"send": 2000}),
        (("consume", "b2", "--fill", 2000, "--consumers", 2), {"receive": 2000}),
        (("consume", "b3", "--fill", 2000, "--pull", "--groups", 2), {"receive": 4000}),
        (("latency", "b4", "--rate", 200, "--seconds", 1, "--warm-up", 0), {"send": 200, "receive": 200}),
        (("mixed", "b5", "--count", 1000, "--in-flight", 16, "--warm-up", 0), {"send": 1000, "receive": 1000}),
        # Once more on the same topic: the leftovers of the previous run must not matter.
        (("mixed", "b5", "--count", 500, "--in-flight", 16, "--warm-up", 0), {"send": 500, "receive": 500}),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_every_command(args: tuple[object, ...], roles: dict[str, int], apache: str, tmp_path: Path) -> None:
    with Tianzhou(tmp_path, "bench", *args, "-o", "json", namesrv=apache) as process:
        assert process.wait(RUN_LIMIT_S) == 0, process.err
        found: dict[str, Any] = json.loads(process.out)
    # Refused messages of a busy broker count as failed; all acknowledged ones are consumed.
    for role, count in roles.items():
        assert 0 < found[role]["messages"] <= count
    if "send" in roles:
        assert found["send"]["messages"] + found["send"]["errors"] == roles["send"]
        assert found.get("receive", found["send"])["messages"] >= found["send"]["messages"]
    else:
        assert found["receive"]["messages"] == roles["receive"]
    assert found["notes"] == []
    # Also the groups that the broker created again for held pulls: the command has waited for their end.
    with sync.Admin(apache) as admin:
        assert [name for name in admin.groups.names(system=True) if name.startswith("bench-")] == []

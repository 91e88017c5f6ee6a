"""Apache's 4.9.7: its mqadmin at our servers, and ours at its servers, sub-command by sub-command."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from mqadmin import OURS
from mqadmin_commands import COMMANDS, KEYS, SETTINGS, Asked
from mqadmin_conversation import conversation
from mqadmin_directions import APACHE_497, NOT_IN_497, OURS_TO_497, differs
from toolchain import ToolchainMissingError

pytestmark = pytest.mark.slow
Said = dict[str, list[str]]
PAIRS = (("apache-4.9.7", OURS), ("apache-4.9.7", "5.3.3"), ("tianzhou", "4.9.7"), ("apache", "4.9.7"))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Said]:
    """Return the output of tools at clusters, by cluster and tool."""
    with ThreadPoolExecutor(2) as pool:
        running = {
            pair: pool.submit(conversation, *pair, tmp_path_factory.mktemp("-".join(pair)) / "data") for pair in PAIRS
        }
        try:
            return {pair: one.result() for pair, one in running.items()}
        except ToolchainMissingError as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("asked", COMMANDS, ids=lambda asked: asked.name)
def test_our_tool_prints_what_apaches_prints(said: dict[tuple[str, str], Said], asked: Asked) -> None:
    ours, apaches = (said["apache-4.9.7", tool][asked.name] for tool in (OURS, "5.3.3"))
    assert (ours != apaches) == differs(OURS_TO_497, asked.name), (ours, apaches)


@pytest.mark.parametrize("asked", COMMANDS, ids=lambda asked: asked.name)
def test_apaches_tool_prints_of_ours_what_it_prints_of_apaches(said: dict[tuple[str, str], Said], asked: Asked) -> None:
    ours, apaches = (said[cluster, "4.9.7"][asked.name] for cluster in ("tianzhou", "apache"))
    if asked.line.split()[0] in NOT_IN_497:
        assert ours[0] in ("failed", "no code")
    elif asked.only in (SETTINGS, KEYS):
        assert set(apaches) <= set(ours)
    else:
        assert (ours != apaches) == differs(APACHE_497, asked.name), (ours, apaches)

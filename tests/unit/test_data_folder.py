"""The folder of `serve --data`: names of brokers, their stores, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.data_folder import (
    LAYOUT,
    LAYOUT_OF_SEVERAL,
    broker_index,
    broker_name,
    brokers_in,
    claim,
    count_in,
    home_of,
    save_ports,
    saved_ports,
    stores_in,
)
from tianzhou.errors import ConfigError


def store(data: Path, name: str) -> Path:
    folder = home_of(data, name) / "store"
    folder.mkdir(parents=True)
    return folder


def layout(data: Path) -> int:
    return int(json.loads((data / "tianzhou.json").read_text())["layout"])


@pytest.mark.parametrize(
    ("index", "name"), [(0, "broker-a"), (1, "broker-b"), (25, "broker-z"), (26, "broker-aa"), (63, "broker-bl")]
)
def test_brokers_are_named_by_letters(index: int, name: str) -> None:
    assert broker_name(index) == name
    assert broker_index(name) == index


@given(st.integers(0, 10_000))
def test_every_name_leads_back_to_its_place(index: int) -> None:
    assert broker_index(broker_name(index)) == index


@pytest.mark.parametrize("name", ["broker-", "broker", "broker-A", "broker-1", "broker-é", "store", "broker-abcd", ""])
def test_other_names_are_none_of_ours(name: str) -> None:
    assert broker_index(name) is None


def test_the_first_brokers_store_is_where_a_single_ones_is(tmp_path: Path) -> None:
    assert home_of(tmp_path, "broker-a") == tmp_path
    assert home_of(tmp_path, "broker-b") == tmp_path / "broker-b"


def test_a_folder_needs_as_many_brokers_as_it_has_stores(tmp_path: Path) -> None:
    assert (brokers_in(tmp_path / "none"), count_in(tmp_path / "none")) == ([], 1)
    store(tmp_path, "broker-a")
    assert (brokers_in(tmp_path), count_in(tmp_path)) == (["broker-a"], 1)
    store(tmp_path, "broker-c")
    (tmp_path / "broker-d").mkdir()  # has no store
    (tmp_path / "broker-c.bak" / "store").mkdir(parents=True)
    assert (brokers_in(tmp_path), count_in(tmp_path)) == (["broker-a", "broker-c"], 3)


def test_a_folder_grows_and_does_not_shrink(tmp_path: Path) -> None:
    claim(tmp_path)
    store(tmp_path, "broker-a")
    assert layout(tmp_path) == LAYOUT
    claim(tmp_path, 3)
    assert layout(tmp_path) == LAYOUT_OF_SEVERAL
    store(tmp_path, "broker-b")
    store(tmp_path, "broker-c")
    claim(tmp_path, 4)
    for count, left in ((1, "broker-b and broker-c"), (2, "broker-c")):
        with pytest.raises(ConfigError) as refused:
            claim(tmp_path, count)
        text = str(refused.value)
        assert text.startswith(f"--brokers {count}: --data {tmp_path} also holds messages of {left}, which nobody")
        assert "give --brokers 3" in text
        assert str(tmp_path / "broker-c") in text
    (tmp_path / "broker-c" / "store").rmdir()
    claim(tmp_path, 2)


def test_ports_are_kept_beside_the_layout(tmp_path: Path) -> None:
    claim(tmp_path, 2)
    assert saved_ports(tmp_path) == {}
    save_ports(tmp_path, {"broker-a": 10_911, "broker-b": 10_915})
    assert saved_ports(tmp_path) == {"broker-a": 10_911, "broker-b": 10_915}
    claim(tmp_path, 3)
    assert saved_ports(tmp_path)["broker-b"] == 10_915
    assert layout(tmp_path) == LAYOUT_OF_SEVERAL
    (tmp_path / "tianzhou.json").write_text('{"layout": 2, "ports": {"broker-a": "x", "broker-b": 7}}')
    assert saved_ports(tmp_path) == {"broker-b": 7}
    (tmp_path / "tianzhou.json").write_text('{"layout": 2, "ports": []}')
    assert saved_ports(tmp_path) == {}


def test_a_damaged_mark_is_mended_as_the_stores_are(tmp_path: Path) -> None:
    store(tmp_path, "broker-a")
    (tmp_path / "tianzhou.json").write_text("{")
    with pytest.raises(ConfigError, match=r'write \{"layout": 1\} into it'):
        claim(tmp_path)
    store(tmp_path, "broker-b")
    with pytest.raises(ConfigError, match=r'write \{"layout": 2\} into it'):
        claim(tmp_path, 2)


def test_readers_find_the_stores_of_a_folder(tmp_path: Path) -> None:
    assert stores_in(tmp_path) == [tmp_path]  # a storePathRootDir
    claim(tmp_path)
    assert stores_in(tmp_path) == [tmp_path / "store"]
    both = [store(tmp_path, "broker-a"), store(tmp_path, "broker-b")]
    assert stores_in(tmp_path) == both

"""The table of a record's fields, and the code generated from it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from struct import calcsize

import numpy as np
import pytest

from tianzhou.records import layout

SPEC = Path(__file__).parents[2] / "docs" / "spec" / "store.md"


def test_the_table_is_that_of_the_specification() -> None:
    section = SPEC.read_text().split("### 3.2 Layout")[1].split("### 3.3")[0]
    rows = re.findall(r"^\| (\d+) \| (\w+)[^|]*\| (i32|i64|ip)[^|]*\| (\d+) \|", section, re.MULTILINE)
    stated = {int(number): (name, form, int(offset)) for number, name, form, offset in rows}
    assert sorted(stated) == list(range(1, 16))
    first = {}
    for field in layout.FIELDS:
        first.setdefault(field.number, field)
    names = {3: "body_crc", 1: "size", 15: "body_size"}
    for number, (name, form, offset) in stated.items():
        snake = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()
        assert (first[number].name, first[number].offset) == (names.get(number, snake), offset)
        assert first[number].form == {"i32": "i", "i64": "q", "ip": "4s"}[form]
    assert f"**{layout.OVERHEAD} bytes**" in section


def test_the_header_file_of_the_compiled_code_is_printed_from_the_table() -> None:
    assert Path(layout.__file__).with_name("layout.h").read_text() == layout.c_header()


def test_structs_of_some_fields_read_these() -> None:
    values = range(1, len(layout.FIELDS) + 1)
    numbers = [
        bytes([value] * 4) if field.form == "4s" else value for field, value in zip(layout.FIELDS, values, strict=True)
    ]
    head = layout.HEADS[0].pack(*numbers)
    by_name = dict(zip(layout.AT, numbers, strict=True))
    for names in (["size", "magic"], ["queue_offset", "store_port"], ["body_size"], list(layout.AT)):
        assert layout.fields_at(*names).unpack_from(head) == tuple(by_name[name] for name in names)
    for name, offset in layout.AT.items():
        assert layout.fields_at(name).unpack_from(head) == (by_name[name],)
        assert layout.fields_at(name).format.startswith(f">{offset}x") or (calcsize(">i") and not offset)
    shape = layout.numpy_type("reconsume_times", "body_size")
    (row,) = np.frombuffer(head, shape, 1, layout.AT["reconsume_times"])
    assert {name: int(row[name]) for name in shape.names or ()} == {name: by_name[name] for name in shape.names or ()}


@pytest.mark.parametrize(("bits", "shift"), [(0, 0), (0x10, 12), (0x20, 12), (0x30, 24)])
def test_hosts_of_sixteen_bytes_shift_what_follows(bits: int, shift: int) -> None:
    assert layout.body_size_at(bits) == 84 + shift
    assert layout.store_time_at(bits) == 56 + (12 if bits & 0x10 else 0)


def test_the_table_needs_no_numpy() -> None:
    code = "import sys, tianzhou.records.walk; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

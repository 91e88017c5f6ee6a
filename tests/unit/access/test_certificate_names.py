"""Which names of a certificate can be an account's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.access.certificate_accounts import MOST_CHARACTERS, account_of
from tianzhou.errors import ProtocolError


def subject(*names: str) -> dict[str, Any]:
    return {"subject": ((("organizationName", "Ours"),), *((("commonName", name),) for name in names))}


@given(st.text(max_size=300))
def test_a_name_is_taken_as_it_is_or_refused(name: str) -> None:
    try:
        taken = account_of(subject(name), "CN")
    except ProtocolError:
        assert not name or len(name) > MOST_CHARACTERS or name.strip() != name or not name.isprintable()
    else:
        assert taken == name


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", " a", "a" * 256, "a\u202eb"])
def test_names_that_mislead_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match="cannot be an account's"):
        account_of(subject(name), "CN")


def test_an_ambiguous_subject_is_refused() -> None:
    with pytest.raises(ProtocolError, match="2 common names"):
        account_of(subject("orders", "admin"), "CN")


@pytest.mark.parametrize(("source", "says"), [("CN", "no common name"), ("SAN", "no URI, DNS name")])
def test_a_certificate_without_such_a_name_says_so(source: str, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        account_of({"subjectAltName": (("IP Address", "10.0.0.1"),)}, source)

"""The code tables agree with the text of the protocol sheet."""

import re
from pathlib import Path

import pytest

from tianzhou._hot import headers
from tianzhou.wire import codes
from tianzhou.wire.codes import LanguageCode, RequestCode, ResponseCode

SHEET = (Path(__file__).parents[3] / "docs/spec/wire.md").read_text()


def section(start: str, end: str) -> str:
    return SHEET[SHEET.index(f"\n## {start}") : SHEET.index(f"\n## {end}")]


def numbers(cell: str) -> list[int]:
    cell = cell.replace("\N{MINUS SIGN}", "-")
    span = re.fullmatch("([0-9]+)\N{EN DASH}([0-9]+)", cell.strip())
    if span:
        return list(range(int(span[1]), int(span[2]) + 1))
    return [int(text) for text in re.findall(r"-?\d+", cell)]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if re.match("\\| [\N{MINUS SIGN}0-9]", line)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_request_code_of_the_sheet_is_known() -> None:
    text = section("3. Request code tables", "4. Sending messages")
    unserved = text[text.index("### 3.7") :]
    wanted = {code for row in rows(text) for code in numbers(row[0])}
    wanted |= {int(code) for code in re.findall(r"\b(\d+),? [A-Z_]{8,}", unserved)}
    raft_internal = set(range(1014, 1019))
    assert wanted - {int(code) for code in RequestCode} == raft_internal
    assert len(wanted) > 150


def test_request_names_are_those_of_the_sheet() -> None:
    ours = {int(code): code.name for code in RequestCode}
    checked = 0
    for row in rows(section("3. Request code tables", "4. Sending messages")):
        found = numbers(row[0])
        if len(found) == 1 and re.fullmatch(r"[A-Z0-9_]+", row[1]) and found[0] in ours:
            assert ours[found[0]] in (row[1], f"CONTROLLER_{row[1]}"), row
            checked += 1
    assert checked > 110


def test_every_response_code_of_the_sheet_is_known() -> None:
    text = section("2. Response codes", "3. Request code tables")
    wanted = {code for row in rows(text) for code in numbers(row[0])}
    assert wanted == {int(code) for code in ResponseCode}
    assert ResponseCode(-1006).name == "RPC_TIME_OUT"
    assert ResponseCode(2007).name == "CONTROLLER_NOT_LEADER"
    assert ResponseCode(2016).name == "CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS"


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (0, "V3_0_0_SNAPSHOT"), (37, "V3_0_11"), (121, "V3_4_9"), (232, "V4_1_0_SNAPSHOT"), (273, "V4_3_0"),
        (317, "V4_5_2"), (333, "V4_6_0"), (355, "V4_7_1"), (399, "V4_9_3"), (401, "V4_9_4"), (409, "V4_9_8"),
        (411, "V4_9_9"), (413, "V5_0_0"), (453, "V5_2_0"), (477, "V5_3_2"), (codes.VERSION, "V5_3_3"),
        (612, "HIGHER_VERSION"), (9999, "HIGHER_VERSION"),
    ],
)  # fmt: skip
def test_version_ordinals_have_release_names(version: int, name: str) -> None:
    assert codes.version_name(version) == name


def test_languages_are_one_table() -> None:
    assert tuple(language.name for language in LanguageCode) == headers.LANGUAGES
    assert [int(language) for language in LanguageCode] == list(range(14))
    assert headers.LANGUAGE_CODES["GO"] == LanguageCode.GO
    assert codes.language_name(12) == "RUST"
    assert codes.language_name(200) == "OTHER"


def test_unknown_codes_have_a_name_for_people() -> None:
    assert codes.request_name(310) == "SEND_MESSAGE_V2"
    assert codes.request_name(4711) == "request 4711"

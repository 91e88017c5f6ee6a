"""Character sets of MySQL and MariaDB as Python codecs. Pure."""

from __future__ import annotations

import codecs
from typing import Final

CODECS: Final = {
    "ascii": "ascii",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "euckr": "cp949",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "hp8": "hp_roman8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "sjis": "shift_jis",
    "tis620": "tis_620",
    "ucs2": "utf_16_be",
    "ujis": "euc_jp",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "utf8": "utf_8",
    "utf8mb3": "utf_8",
    "utf8mb4": "utf_8",
}
"""Python's codec of each supported character set except latin1. A column of another one is rejected."""
OTHERWISE: Final = {
    "cp866": {"№": "ⁿ", "¤": "²"},
    "greek": {"‘": "ʽ", "’": "ʼ"},  # noqa: RUF001
    "hebrew": {"¯": "‾"},
    "koi8u": {"∙": "•"},
    "sjis": {"＼": "\\"},  # noqa: RUF001
    "ujis": {"＼": "\\"},  # noqa: RUF001
}
"""Characters that the servers decode otherwise than Python, by what Python makes of them."""
LATIN1: Final = "latin1"
_LATIN1_TABLE: Final = "".join(
    bytes([code]).decode("cp1252") if code not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else chr(code) for code in range(256)
)
"""Characters of latin1: Windows-1252, whose five free codes are control characters here."""
_TRANSLATIONS: Final = {charset: str.maketrans(found) for charset, found in OTHERWISE.items()}


def is_known(charset: str) -> bool:
    """Whether text of a character set can be decoded."""
    return charset == LATIN1 or charset in CODECS


def text_of(raw: bytes, charset: str) -> str:
    """Return bytes of a character set as text.

    Raises:
        ValueError: the bytes are no text of the character set; names both.
    """
    try:
        if charset == LATIN1:
            return codecs.charmap_decode(raw, "strict", _LATIN1_TABLE)[0]
        text = raw.decode(CODECS[charset])
    except UnicodeDecodeError as error:
        broken = raw[error.start : error.start + 8]
        raise ValueError(f"the bytes {broken.hex()} at byte {error.start} are no text of {charset}") from error
    return text.translate(_TRANSLATIONS[charset]) if charset in _TRANSLATIONS else text

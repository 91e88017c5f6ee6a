"""Reasons of failures in Chinese: texts of errors, and the doctor's requests."""

from __future__ import annotations

import ast
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

import tianzhou
from tianzhou.admin import Admin
from tianzhou.doctor import Report
from tianzhou.doctor.chinese import report_in_chinese
from tianzhou.doctor.chinese.failures import (
    ORIGINAL,
    QUESTIONS,
    SENTENCES,
    failure_in_chinese,
    question_in_chinese,
)
from tianzhou.doctor.findings import Unanswered
from tianzhou.errors import BrokerError, ConnectFailed
from tianzhou.process.free_ports import free_port
from tianzhou.wire.codes import ResponseCode

CHINESE = re.compile(r"[\u4e00-\u9fff]")
SOURCE = Path(tianzhou.__path__[0])
OF_THE_SYSTEM = {"Name or service not known", "Temporary failure in name resolution"} | {
    os.strerror(one)
    for one in (errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
}


def blanks(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def literals(text: str) -> list[str]:
    return [text for text, _, _, _ in Formatter().parse(text) if text]


def template(node: ast.AST) -> str:
    """Return a text in the source, without its values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(template(one) if isinstance(one, ast.Constant) else "\0" for one in node.values)
    return template(node.left) + template(node.right) if isinstance(node, ast.BinOp) else ""


def templates(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        if "chinese" not in path.parts:
            yield from filter(None, map(template, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))


@pytest.mark.parametrize(("english", "chinese"), SENTENCES + QUESTIONS)
def test_both_languages_have_the_same_blanks(english: str, chinese: str) -> None:
    assert blanks(chinese) <= blanks(english)
    assert blanks(english) - blanks(chinese) <= {"hint"}
    assert CHINESE.search(chinese)


def test_sentences_are_those_that_the_source_has() -> None:
    found = "\n".join(templates(SOURCE))
    every = [part for english, _ in SENTENCES if english not in OF_THE_SYSTEM for part in literals(english)]
    # Errors are joined with these characters.
    parts = {part.strip() for one in every for part in re.split(r"[;:,()?]", one)}
    assert [part for part in sorted(parts) if part not in found] == []


def test_every_question_of_the_doctor_has_chinese_words() -> None:
    asked = set()
    for path in (SOURCE / "doctor").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) and len(node.args) >= 3 else None
            if isinstance(called, ast.Attribute) and called.attr in ("ask", "once", "note"):
                asked.add(template(node.args[1]).replace("\0", "7"))
    asked -= {"", "7 more 7"}
    assert len(asked) > 10
    assert {one for one in asked if question_in_chinese(one) == one} == set()
    assert [question_in_chinese(f"3 more {what}") for what in ("topics", "groups")] == [
        "另外 3 个主题",
        "另外 3 个消费组",
    ]


async def test_a_server_that_does_not_answer() -> None:
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    async with Admin(address, timeout_ms=2_000) as admin:
        with pytest.raises(ConnectFailed) as caught:
            await admin.topics.names()
    assert failure_in_chinese(str(caught.value)) == f"没有 NameServer 应答：无法连接 {address}：连接被拒绝"


@pytest.mark.parametrize(
    ("text", "chinese"),
    [
        ("topic a b does not exist; create it first", "主题 a b 不存在；请先创建"),
        ("no name server answers: cannot connect to a:1: Connection refused; connection to b:1 was lost",
         "没有 NameServer 应答：无法连接 a:1：连接被拒绝；与 b:1 的连接已断开"),
        ("no reply from 10.0.0.5:10911 within 3000 ms; whether the request was carried out is unknown",
         "10.0.0.5:10911 在 3000 毫秒内没有应答，请求是否已执行未知"),
        (str(BrokerError(ResponseCode.NO_PERMISSION, "No permission.", address="10.0.0.5:10911")),
         "10.0.0.5:10911 返回错误码 16：没有权限，请检查 Broker、主题和消费组的权限及凭证（原文：No permission.）"),
        (str(BrokerError(7777, "who knows")), f"返回错误码 7777（{ORIGINAL}who knows）"),
        ("the moon is full", f"{ORIGINAL}the moon is full"),
        ("", ""),
        ("已经是中文", "已经是中文"),
    ],
)  # fmt: skip
def test_sentences_in_chinese(text: str, chinese: str) -> None:
    assert failure_in_chinese(text) == chinese


def test_questions_without_an_answer_are_chinese_in_a_chinese_report() -> None:
    one = Unanswered("cluster", "12 more groups", "only the first 500 are looked at")
    assert report_in_chinese(Report("cluster", unanswered=[one])).unanswered == [
        Unanswered("cluster", "另外 12 个消费组", "只检查前 500 个")
    ]

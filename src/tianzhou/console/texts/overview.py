"""Texts of the dashboard and of the audit log."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "page.dashboard": ("Dashboard", "总览"),
    "messages.in": ("Messages in / s", "写入 / 秒"),
    "messages.out": ("Messages out / s", "读取 / 秒"),
    "backlog": ("Not consumed", "堆积"),
    "disk": ("Disk", "磁盘"),
    "page.audit": ("Audit log", "操作记录"),
    "who": ("Who", "用户"),
    "from": ("From", "来源"),
    "action": ("Action", "操作"),
    "subject": ("Subject", "对象"),
    "outcome": ("Outcome", "结果"),
}

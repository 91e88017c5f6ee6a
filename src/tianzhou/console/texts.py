"""The console's words in English and Chinese: a key a text, both languages side by side."""

from __future__ import annotations

from typing import Final

LANGUAGES: Final = ("en", "zh")
COOKIE: Final = "tianzhou_language"

TEXTS: Final[dict[str, tuple[str, str]]] = {
    "title": ("Tianzhou console", "天舟控制台"),
    # Pages
    "page.dashboard": ("Dashboard", "总览"),
    "page.topics": ("Topics", "主题"),
    "page.audit": ("Audit log", "操作记录"),
    # Log-in
    "login": ("Log in", "登录"),
    "logout": ("Log out", "退出"),
    "login.name": ("Name", "用户名"),
    "login.password": ("Password", "密码"),
    "login.wrong": ("The name or the password is wrong.", "用户名或密码错误。"),
    "login.wait": (
        "Too many wrong passwords; try again in {seconds} s.",
        "密码错误次数过多，请在 {seconds} 秒后重试。",
    ),
    "login.none": (
        "There is no account yet. On this machine: tianzhou console-user add NAME --role admin",
        "还没有账号。请在本机执行：tianzhou console-user add NAME --role admin",
    ),
    # Words
    "filter": ("Filter", "筛选"),
    "create": ("Create", "新建"),
    "delete": ("Delete", "删除"),
    "cancel": ("Cancel", "取消"),
    "done": ("Done", "完成"),
    "viewer": ("You may look, and change nothing.", "您只有查看权限。"),
    "confirm": ("Type the name to confirm: {name}", "请输入名称确认：{name}"),
    "not.yet": ("The cluster has not been seen yet.", "尚未获取到集群信息。"),
    "unseen": ("The cluster cannot be looked at: {why}", "无法获取集群信息：{why}"),
    "seen.at": ("as of {time}", "截至 {time}"),
    # Dashboard
    "messages.in": ("Messages in / s", "写入 / 秒"),
    "messages.out": ("Messages out / s", "读取 / 秒"),
    "backlog": ("Not consumed", "堆积"),
    "brokers": ("Brokers", "Broker"),
    "broker": ("Broker", "Broker"),
    "address": ("Address", "地址"),
    "role": ("Role", "角色"),
    "version": ("Version", "版本"),
    "disk": ("Disk", "磁盘"),
    "groups": ("Consumer groups", "消费组"),
    "topics": ("Topics", "主题"),
    # Topics
    "topic": ("Topic", "主题"),
    "queues": ("Queues", "队列数"),
    "system": ("with those of the system", "包含系统主题"),
    "topic.created": ("Topic {name} is there.", "主题 {name} 已创建。"),
    # Audit log
    "time": ("Time", "时间"),
    "who": ("Who", "用户"),
    "from": ("From", "来源"),
    "action": ("Action", "操作"),
    "subject": ("Subject", "对象"),
    "outcome": ("Outcome", "结果"),
}


def text(language: str, key: str, **values: object) -> str:
    """A text in a language, with its blanks filled in.

    Args:
        language: one of `LANGUAGES`; any other is taken for English.
        key: of `TEXTS`.
        values: of the blanks.

    Raises:
        KeyError: there is no such text, or a blank has no value.
    """
    english, chinese = TEXTS[key]
    found = chinese if language == "zh" else english
    return found.format(**values) if values else found


def choose(cookie: str | None, accepted: str) -> str:
    """The language of a visitor: what they chose, else what their browser prefers.

    Args:
        cookie: value of `COOKIE`.
        accepted: the header Accept-Language.
    """
    if cookie in LANGUAGES:
        return str(cookie)
    first = accepted.split(",", 1)[0].strip().lower()
    return "zh" if first.startswith("zh") else "en"

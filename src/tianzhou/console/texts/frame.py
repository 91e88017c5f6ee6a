"""Texts of the frame, the log-in and of several pages."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "title": ("Tianzhou console", "天舟控制台"),
    # Log-in
    "login": ("Log in", "登录"),
    "logout": ("Log out", "退出"),
    "login.name": ("Name", "用户名"),
    "login.password": ("Password", "密码"),
    "login.wrong": ("The name or the password is wrong.", "用户名或密码错误。"),
    "login.ended": ("The session has ended; log in again.", "会话已结束，请重新登录。"),
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
    "unseen": ("The state of the cluster cannot be read: {why}", "无法获取集群信息：{why}"),
    "seen.at": ("as of {time}", "截至 {time}"),
    "old": ("The figures are those of {time}, {age} s ago.", "以下数据截至 {time}，即 {age} 秒前。"),
    "silent": ("Broker {broker} does not answer: {why}", "Broker {broker} 未响应：{why}"),
    "read.at": (
        "Read at {time}. Parts that renew themselves show a time of their own.",
        "读取时间：{time}。自动刷新的部分各有时间。",
    ),
    "read.again": ("Read again", "重新读取"),
    "part.old": ("as of {time}; since then: {why}", "截至 {time}；此后：{why}"),
    "part.silent": ("no answer within {seconds} s", "{seconds} 秒内没有响应"),
    "broker": ("Broker", "Broker"),
    "brokers": ("Brokers", "Broker"),
    "topic": ("Topic", "主题"),
    "topics": ("Topics", "主题"),
    "group": ("Consumer group", "消费组"),
    "groups": ("Consumer groups", "消费组"),
    "address": ("Address", "地址"),
    "role": ("Role", "角色"),
    "version": ("Version", "版本"),
    "time": ("Time", "时间"),
    "queue": ("Queue", "队列"),
    "menu": ("Menu", "菜单"),
    "progress": ("Progress", "进度"),
    "show": ("Show", "查看"),
    "save": ("Save", "保存"),
    "failed": ("This cannot be shown: {why}", "无法显示：{why}"),
    "loading": ("Asking the servers…", "正在查询服务器…"),
    "too.slow": ("the servers have not answered within {seconds} s", "服务器在 {seconds} 秒内没有应答"),
    "broker.missing": (
        "{broker} has not answered: {why}. The figures below are without this broker.",
        "{broker} 没有应答：{why}。以下数据不含该 Broker。",
    ),
    "page.missing": ("No such page", "页面不存在"),
    "missing": (
        "The console has no page with this address. The menu lists all pages.",
        "控制台没有该地址的页面。请从菜单中选择。",
    ),
    "none": ("There is nothing here.", "暂无数据。"),
    "close": ("Close", "关闭"),
    # Time zone
    "page.zone": ("Time zone", "时区"),
    "zone": ("Zone", "时区"),
    "zone.link": ("Times: {zone}", "时区：{zone}"),
    "zone.words": (
        "All times on all pages, and all times that you type, are times of {name} ({offset}). It is {now} there.",
        "所有页面显示和输入的时间均为 {name}（{offset}）的时间。当地现在是 {now}。",
    ),
    "zone.use": ("Use this zone", "使用该时区"),
    "zone.browser": ("Use the browser's zone", "使用浏览器的时区"),
    # Ages
    "age.s": ("{count} s ago", "{count} 秒前"),
    "age.min": ("{count} min ago", "{count} 分钟前"),
    "age.h": ("{count} h ago", "{count} 小时前"),
    "age.d": ("{count} d ago", "{count} 天前"),
}

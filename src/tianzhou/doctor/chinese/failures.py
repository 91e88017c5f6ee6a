"""Failures in Chinese: translations of this project's error texts and of the operating system's messages. Pure.

A text without a translation, such as a remark of another server, is shown in the original.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import Formatter
from typing import Final

from tianzhou.wire.codes import ResponseCode

ORIGINAL: Final = "原文："
"""Prefix of an untranslated text."""
SENTENCES: Final[tuple[tuple[str, str], ...]] = (
    # Connections
    ("cannot connect to {place} within {ms} ms; is the address right and reachable?",
     "{ms} 毫秒内无法连接 {place}，请检查地址是否正确、网络是否可达"),
    ("cannot connect to {place} within {ms} ms", "{ms} 毫秒内无法连接 {place}"),
    ("cannot connect to {place}: {why}", "无法连接 {place}：{why}"),
    ("cannot find {place}: {why}", "找不到 {place}：{why}"),
    (("connecting to {place} took {took} ms and the request was given {ms}, so it was not sent; is this machine or the "
      "server too busy?"),
     "连接 {place} 用了 {took} 毫秒，超过请求的 {ms} 毫秒，请求没有发出；本机或服务器可能过于繁忙"),
    ("connection to {place} was lost: {why}", "与 {place} 的连接已断开：{why}"),
    (("connection to {place} was lost, which was new; the server sent nothing for {ms} ms before; see whether its "
      "process hangs or was stopped"),
     "与 {place} 的新连接在 {ms} 毫秒没有收到任何数据后断开；请检查其进程是否卡住或被停止"),
    ("connection to {place} was lost, which was new; {hint}", "与 {place} 的新连接立即断开，原因请看对端日志；{hint}"),
    ("connection to {place} was lost", "与 {place} 的连接已断开"),
    ("connection to {place} is closed", "与 {place} 的连接已关闭"),
    (("no reply from {place} within {ms} ms; whether the request was carried out is unknown; of the {whole} ms given, "
      "connecting to {to} took the first {took}"),
     "{place} 在 {ms} 毫秒内没有应答，请求是否已执行未知；总时限 {whole} 毫秒，其中连接 {to} 用了 {took} 毫秒"),
    ("no reply from {place} within {ms} ms; whether the request was carried out is unknown",
     "{place} 在 {ms} 毫秒内没有应答，请求是否已执行未知"),
    ("no name server answers: {each}", "没有 NameServer 应答：{each}"),
    ("its certificate is not trusted ({why}){hint}", "对方的证书不受信任（{why}）{hint}"),
    ("{why}; does the server speak TLS?", "{why}；服务器是否使用 TLS？"),
    # Messages of the operating system
    ("Connection refused", "连接被拒绝"),
    ("Connection reset by peer", "连接被对端重置"),
    ("Connection timed out", "连接超时"),
    ("No route to host", "无法到达该主机"),
    ("Network is unreachable", "网络不可达"),
    ("Name or service not known", "无法解析主机名"),
    ("Temporary failure in name resolution", "暂时无法解析主机名"),
    # Missing topics, groups and brokers
    ("topic {topic} does not exist; create it or check its name", "主题 {topic} 不存在；请创建，或检查名称"),
    ("topic {topic} does not exist; create it first", "主题 {topic} 不存在；请先创建"),
    ("topic {topic} does not exist; name one, or none for a topic of its own",
     "主题 {topic} 不存在；请输入已有的主题，或不填以使用临时主题"),
    ("none of the brokers of topic {topic} has a master now; is it running?",
     "主题 {topic} 所在的 Broker 目前没有主节点，是否在运行？"),
    ("none of the brokers {names} has a master now; is it running?", "Broker {names} 目前没有主节点，是否在运行？"),
    ("no broker is registered at the name server; start one, or check its namesrvAddr",
     "NameServer 上没有注册任何 Broker；请启动 Broker，或检查其 namesrvAddr"),
    ("no broker has a master now, so no topic can be created; start one",
     "目前没有主节点，无法创建主题；请启动 Broker"),
    ("topic {topic} exists already; change it with update, or choose another name",
     "主题 {topic} 已存在；请修改该主题，或换一个名称"),
    ("group {group} exists already; change it with update, or choose another name",
     "消费组 {group} 已存在；请修改该消费组，或换一个名称"),
    ("topic {topic} is not on broker {names}; it is on {others}",
     "Broker {names} 上没有主题 {topic}；有该主题的是 {others}"),
    ("no broker has group {group}; create it first", "没有 Broker 认识消费组 {group}；请先创建"),
    ("no broker knows member {member} of group {group}", "没有 Broker 认识消费组 {group} 的成员 {member}"),
    ("no broker {broker}; name servers know {known}", "没有 Broker {broker}；NameServer 认识的有：{known}"),
    ("{queues}: no such queue, or its broker has no master now", "{queues}：没有该队列，或其 Broker 目前没有主节点"),
    (("topic {topic} has no message with id {id}: no unique key of that name, and as an offset id it leads nowhere "
      "({why})"),
     "主题 {topic} 中没有 ID 为 {id} 的消息：没有该唯一键，按位点 ID 也找不到（{why}）"),
    ("id {id} names broker {place}, which the name server does not know",
     "ID {id} 指向的 Broker {place} 不在 NameServer 中"),
    (("group {group} has connected members ({members}), which brokers before 5.0 can only reset by time, to the "
      "earliest or to the latest, and in all queues; stop them first, or choose one of these"),
     ("消费组 {group} 有在线成员（{members}），5.0 之前的 Broker 只能对其按时间、到最早或最新重置，且须为全部队列；"
      "请先停止成员，或选择其中一种方式")),
    (("group {group} has connected members ({members}), which brokers with useServerSideResetOffset=false can only "
      "reset by time, to the earliest or to the latest, and in all queues; stop them first, or choose one of these"),
     ("消费组 {group} 有在线成员（{members}），useServerSideResetOffset=false 的 Broker 只能对其按时间、到最早或"
      "最新重置，且须为全部队列；请先停止成员，或选择其中一种方式")),
    # Pages of the console
    ("{text} is no time; write it as 2026-01-31T12:00", "{text} 不是时间，格式如 2026-01-31T12:00"),
    ("the offsets were changed again meanwhile; look at the audit log", "位点在此期间又被变更；请查看操作记录"),
    ("{option} {value}: expected a number above 0; delete the limit to have none",
     "{option} {value}：应为大于 0 的数；不需要限额时请删除"),
    ("limit of {limit}: a burst needs a rate; give the rate of {what} as well",
     "{limit} 的限额：突发值需要速率，请同时填写 {what} 的速率"),
    ("limit of {limit}: names neither messages nor bytes a second; delete it to have no limit",
     "{limit} 的限额：没有每秒消息数，也没有每秒字节数；不需要限额时请删除"),
    ("limit of {limit}: retries and dead letters of consumers are not limited; name the topic that they came from",
     "{limit} 的限额：消费者的重试与死信不受限额，请填写其原主题"),
    ("limit of {limit}: expected an IP address or the name of an account",
     "{limit} 的限额：应为 IP 地址或账号名称"),
    ("limit of {limit}: {value}: expected {least} to {most}", "{limit} 的限额：{value}：应为 {least} 到 {most}"),
    ("no broker has a limit of {limit}; list them with `tianzhou limit list`",
     "没有 Broker 有 {limit} 的限额；用 `tianzhou limit list` 列出"),
    ("viewers may not change anything; ask for the role admin", "您只有查看权限；如需变更，请申请 admin 角色"),
    ("the session has ended; log in again", "会话已结束，请重新登录"),
    ("this is a defect of the console; its log has the details", "这是控制台的缺陷，详情见其日志"),
    ("nothing is changed without its line in the audit log, which cannot be written: {why}",
     "无法写入操作记录，因此没有执行变更：{why}"),
    ("another proof runs; wait for its end, or cancel it", "另一个对账正在运行；请等待其结束，或取消"),
    ("{count} messages: expected 1 to {most}; `tianzhou prove` sends more",
     "消息数 {count}：应为 1 到 {most}；更多请用 `tianzhou prove`"),
    ("bodies of {size} bytes: expected 1 to {most}", "消息体 {size} 字节：应为 1 到 {most}"),
    ("no outcome within {s} s", "{s} 秒内没有结果"),
    ("cancelled", "已取消"),
    ("it failed", "失败"),
    ("{sent} sent, {failed} not: {why}", "已发送 {sent} 条，失败 {failed} 条：{why}"),
    ("the query has {count} characters; at most {most} are allowed", "查询有 {count} 个字符，最多允许 {most} 个"),
    ("{count} messages of each queue; give 1 to {most}", "每个队列 {count} 条消息：应为 1 到 {most}"),
    ("the query names {count} topics; at most {most} are allowed", "查询涉及 {count} 个主题，最多允许 {most} 个"),
    ("the query took longer than {s} s and was stopped; select less", "查询超过 {s} 秒，已停止；请缩小范围"),
    ("the query ended its process, most likely because it needed more memory than it may have; select less",
     "查询进程意外结束，多半是所需内存超过上限；请缩小范围"),
    ("the answer is larger than it may be; select less", "结果超过大小上限；请缩小范围"),
    ("{count} statements; give one SELECT", "共 {count} 条语句；请只写一条 SELECT"),
    ("{kind} is not allowed; only SELECT is", "不允许 {kind}；只能使用 SELECT"),
    # Messages of a proof
    ("topic {topic} made, {count} queues", "已创建主题 {topic}，{count} 个队列"),
    ("{count} messages acknowledged in {s} s", "{count} 条消息已确认，用时 {s} 秒"),
    ("waiting: {each}", "等待：{each}"),
    ("{count} of {all} on a majority", "{count} / {all} 条已存储于多数副本"),
    ("{count} consumed", "已消费 {count} 条"),
    ("not readable now: {places}", "目前不可读：{places}"),
    ("{count} queues of replicas behind", "{count} 个副本队列落后"),
    ("topic {topic} is left behind: {why}", "主题 {topic} 未能删除：{why}"),
    ("group {group} is left behind: {why}", "消费组 {group} 未能删除：{why}"),
    ("nothing was acknowledged, so there is nothing to prove: {why}", "没有消息得到确认，无法对账：{why}"),
    ("topic {topic} has no queue that can be read; check its permission", "主题 {topic} 没有可读的队列，请检查其权限"),
    ("{broker}: flushDiskType=ASYNC_FLUSH acknowledges before the disk has a message",
     "{broker}：flushDiskType=ASYNC_FLUSH 在消息落盘之前就确认"),
    ("{broker}: brokerRole=ASYNC_MASTER acknowledges before a slave has a message",
     "{broker}：brokerRole=ASYNC_MASTER 在从节点收到消息之前就确认"),
    ("{broker}: inSyncReplicas=1 at RocketMQ 5 waits for no slave, though the role is SYNC_MASTER",
     "{broker}：RocketMQ 5 的 inSyncReplicas=1 不等待从节点，尽管角色是 SYNC_MASTER"),
    ("{broker}: cleanFileForciblyEnable=true deletes messages before their time when the disk is full",
     "{broker}：cleanFileForciblyEnable=true 在磁盘满时会提前删除消息"),
    # The doctor
    ("only {most} are asked", "只询问其中 {most} 个"),
    ("only the first {most} are looked at", "只检查前 {most} 个"),
)  # fmt: skip
"""Sentences with placeholders, in English and Chinese. When two match, the first one applies."""
QUESTIONS: Final[tuple[tuple[str, str], ...]] = (
    ("brokers", "Broker 列表"),
    ("configuration", "配置"),
    ("topics", "主题列表"),
    ("system topics", "系统主题列表"),
    ("groups", "消费组列表"),
    ("half messages", "半消息"),
    ("route of {topic}", "主题 {topic} 的路由"),
    ("offsets of {topic}", "主题 {topic} 的位点"),
    ("messages of {queue}", "队列 {queue} 的消息"),
    ("message {offset} of {queue}", "队列 {queue} 位点 {offset} 的消息"),
    ("members of {group}", "消费组 {group} 的成员"),
    ("running info of {count} members", "{count} 个成员的运行信息"),
    ("running info of {member}", "成员 {member} 的运行信息"),
    ("progress of {group} in {topic}", "消费组 {group} 在主题 {topic} 上的进度"),
    ("progress of {group}", "消费组 {group} 的进度"),
    ("times of {group} in {topic}", "消费组 {group} 在主题 {topic} 上的时间"),
    ("{count} more topics", "另外 {count} 个主题"),
    ("{count} more groups", "另外 {count} 个消费组"),
)
"""The doctor's requests to servers, in English and Chinese."""
_ANSWERS: Final = {
    ResponseCode.SYSTEM_ERROR: "服务器内部错误", ResponseCode.SYSTEM_BUSY: "服务器繁忙，请稍后重试",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "服务器不支持该请求，版本可能较旧",
    ResponseCode.MESSAGE_ILLEGAL: "消息不合法", ResponseCode.SERVICE_NOT_AVAILABLE: "服务器目前不接受写入",
    ResponseCode.NO_PERMISSION: "没有权限，请检查 Broker、主题和消费组的权限及凭证",
    ResponseCode.TOPIC_NOT_EXIST: "主题不存在", ResponseCode.QUERY_NOT_FOUND: "没有查到",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "过滤表达式有误",
    ResponseCode.SUBSCRIPTION_NOT_EXIST: "尚未收到该消费组对该主题的订阅",
    ResponseCode.SUBSCRIPTION_NOT_LATEST: "订阅关系不是最新",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "消费组不存在",
    ResponseCode.INVALID_PARAMETER: "参数不合法", ResponseCode.CONSUMER_NOT_ONLINE: "消费组没有在线成员",
    ResponseCode.CONSUME_MSG_TIMEOUT: "客户端未在十秒内应答", ResponseCode.GO_AWAY: "服务器正在停止",
}  # fmt: skip
"""Meanings of response codes (wire.md §2)."""
_REFUSED: Final = re.compile(r"code (?P<code>\d+)(?: from (?P<place>\S+))?: (?P<remark>.*)", re.DOTALL)
_CHINESE: Final = re.compile(r"[\u4e00-\u9fff]")
_INNER: Final = frozenset({"why", "each"})
"""Placeholders that contain another failure, or several."""


def _pattern(english: str) -> re.Pattern[str]:
    parts = (
        re.escape(text) + (f"(?P<{name}>.*{'' if name in _INNER else '?'})" if name else "")
        for text, name, _, _ in Formatter().parse(english)
    )
    return re.compile("".join(parts), re.DOTALL)


_SENTENCES: Final = [(_pattern(english), chinese) for english, chinese in SENTENCES]
_QUESTIONS: Final = [(_pattern(english), chinese) for english, chinese in QUESTIONS]


def _found(text: str, table: Iterable[tuple[re.Pattern[str], str]]) -> str:
    """Return the translation of a text by the first matching pattern; empty when no pattern matches."""
    for pattern, chinese in table:
        if found := pattern.fullmatch(text):
            blanks = {
                name: "；".join(map(failure_in_chinese, value.split("; "))) if name in _INNER else value
                for name, value in found.groupdict("").items()
            }
            return chinese.format(**blanks)
    return ""


def failure_in_chinese(text: str) -> str:
    """Return a failure in Chinese. A text without a translation follows `ORIGINAL`.

    Args:
        text: an error's text, or a note of the doctor.
    """
    if not text or _CHINESE.search(text):
        return text
    if sentence := _found(text, _SENTENCES):
        return sentence
    if (refused := _REFUSED.fullmatch(text)) is not None:
        code, place = int(refused["code"]), refused["place"]
        who = f"{place} " if place else ""
        meaning = f"：{_ANSWERS[code]}" if code in _ANSWERS else ""  # type: ignore[index]
        return f"{who}返回错误码 {code}{meaning}（{ORIGINAL}{refused['remark']}）"
    return ORIGINAL + text


def question_in_chinese(question: str) -> str:
    """Return a request of the doctor in Chinese; unchanged when it has no translation."""
    return _found(question, _QUESTIONS) or question

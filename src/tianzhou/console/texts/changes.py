"""Texts of the console's confirmations before changes, and of undo."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    # Offsets
    "change.shown": ("What this will do", "变更预览"),
    "change.done": ("Done", "完成"),
    "change.totals": (
        "{group} in {topic}: messages skipped: {skipped}; messages consumed again: {repeated}; queues moved: {queues}.",
        "{group} / {topic}：跳过消息 {skipped} 条，重新消费 {repeated} 条，变更队列 {queues} 个。",
    ),
    "change.unknown": (
        "Queues in which {group} has no offset yet: {count}. An undo cannot move those queues back.",
        "{group} 在其中 {count} 个队列没有位点，这些队列无法撤销。",
    ),
    "change.nothing": ("Nothing would change.", "没有需要变更的内容。"),
    "change.skipped": ("Skipped", "跳过条数"),
    "change.repeated": ("Consumed again", "重新消费条数"),
    "change.offered": ("The earlier offsets are in the audit log.", "变更前的位点已写入操作记录。"),
    # Undo
    "undo": ("Undo", "撤销"),
    "undo.of": ("Undo: {subject}", "撤销：{subject}"),
    "undo.then": ("After the undo", "撤销后"),
    "undo.now": ("Now", "当前位点"),
    "undo.earlier": ("Before the change", "变更前"),
    "undo.set": ("After the change", "变更后"),
    "undo.what": ("What happens", "说明"),
    "undo.since": (
        "Of these, consumed after the change, and then a second time: {count}.",
        "其中 {count} 条在变更后已消费，将再次消费。",
    ),
    "undo.done": ("The earlier offsets of {group} in {topic} are set again.", "已恢复 {group} 在 {topic} 的位点。"),
    "undo.refused": (
        "Not undone. Queues in which an undo would lose messages or has no offset to set: {count}; see below.",
        "无法撤销：有 {count} 个队列在撤销后会丢失消息或位点无效，原因见下表。",
    ),
    "undo.nothing": (
        "There is nothing to undo: no queue would move.",
        "无需撤销：没有队列需要变更。",
    ),
    "undo.gone": (
        "The audit log no longer has this change among its last entries.",
        "最近的操作记录中已没有这次变更。",
    ),
    "undo.step.back": ("moves back", "恢复"),
    "undo.step.expired": (
        "moves to the first message that is left; older ones are deleted",
        "移至现存的第一条消息，更早的消息已删除",
    ),
    "undo.step.same": ("is there already", "无需变更"),
    "undo.step.passed": (
        "stays: the group has consumed past the earlier offset again",
        "保持不变：消费组已再次消费到该位点之后",
    ),
    "undo.step.new": ("stays: the group had no offset", "保持不变：变更前没有位点"),
    "undo.step.rewound": (
        "refused: a later change moved the group further back, and the undo would skip messages that it is to consume",
        "拒绝：之后的变更已将位点移到更早处，撤销会跳过应消费的消息",
    ),
    "undo.step.cut": (
        "refused: the queue ends before the earlier offset; the topic was created again",
        "拒绝：队列末尾小于该位点，主题可能已重建",
    ),
    "undo.step.lost": ("refused: the group has no offset here now", "拒绝：消费组目前在此没有位点"),
    # Table of the audit log
    "undo.state.undone": ("undone", "已撤销"),
    "undo.state.superseded": ("undo later changes first", "请先撤销之后的变更"),
    "undo.state.without": ("no earlier offsets", "变更前没有位点"),
    # Notices
    "undo.reason.undone": ("It is undone already.", "已撤销。"),
    "undo.reason.superseded": (
        "Not undone: a later change has moved the same group in this topic. Undo that one first.",
        "无法撤销：之后的变更又移动了该消费组在此主题的位点，请先撤销后者。",
    ),
    "undo.reason.without": (
        "Not undone: the group had no offset in any queue before the change.",
        "无法撤销：变更前该消费组在所有队列都没有位点。",
    ),
    # Dead letters
    "resend.ask": ("Dead letters of {group} to send again: {count}", "重新发送 {group} 的死信：{count} 条"),
    "resend.group": (
        "They go to {group} alone, as new messages. Messages that are sent cannot be taken back.",
        "将作为新消息仅发送给 {group}，发送后无法撤回。",
    ),
    "resend.topic": (
        "Topic {topic} gets new messages; groups that consume it: {groups}. A sent message cannot be taken back.",
        "将作为新消息发送到主题 {topic}，消费该主题的消费组：{groups}。发送后无法撤回。",
    ),
    "resend.topic.nobody": (
        "Topic {topic} gets new messages. No group has consumed this topic yet.",
        "将作为新消息发送到主题 {topic}，目前没有消费组消费过该主题。",
    ),
    "resend.message": ("Message to send again: {id}.", "重新发送消息：{id}。"),
    "resend.directly": (
        "{member} of {group} consumes message {id} at once, in addition to its queues. No offset moves.",
        "{group} 的成员 {member} 将立即额外消费消息 {id}，消费位点不变。",
    ),
    "resend.nameless": (
        "Without the topic that they were first sent to: {count}. These are not sent; name a topic for them.",
        "其中 {count} 条没有原主题信息，不会发送；请为其指定主题。",
    ),
    "resend.ask.some": (
        "Dead letters of {group} to send again: {count} of {total}",
        "重新发送 {group} 的死信：共 {total} 条，发送 {count} 条",
    ),
    "resend.count": ("Dead letters", "死信条数"),
    "resend.verb": ("Send", "发送"),
    # Lag of a topic
    "lag.of": ("Lag by queue: {topic}", "各队列堆积：{topic}"),
    "lag.total": ("Lag {count}", "堆积 {count}"),
    "lag.none": ("No group has consumed this topic.", "没有消费组消费过该主题。"),
    "lag.part": (
        "Groups with the largest lag: {shown} of {count}.",
        "共 {count} 个消费组，显示堆积最多的 {shown} 个。",
    ),
    "lag.failed": ("The lag is not known: {why}", "无法获取堆积：{why}"),
    "topic.do.lag": ("Lag by queue", "各队列堆积"),
    # Send limits
    "page.limits": ("Limits of senders", "发送限额"),
    "limit.words": (
        "Each broker counts by itself and answers more with SYSTEM_BUSY. * limits names without a limit of their own.",
        "每个 Broker 单独计数，超出时返回 SYSTEM_BUSY。名称 * 表示对每个没有单独限额的对象。",
    ),
    "limit.at": ("At", "范围"),
    "limit.everywhere": ("all brokers", "所有 Broker"),
    "limit.scope": ("Limits", "对象"),
    "limit.scope.topic": ("a topic", "主题"),
    "limit.scope.group": ("a producer group", "生产者组"),
    "limit.scope.client": ("a client (address or account)", "客户端（地址或账号）"),
    "limit.name": ("Name, or *", "名称或 *"),
    "limit.rate": ("Messages a second", "每秒消息数"),
    "limit.burst": ("Messages at once", "突发消息数"),
    "limit.rate_bytes": ("Bytes a second", "每秒字节数"),
    "limit.burst_bytes": ("Bytes at once", "突发字节数"),
    "limit.set": ("Set limit", "设置限额"),
    "limit.done": ("{limit}: {rate} at {brokers}", "{limit}：{rate}，{brokers}"),
    "limit.ask": (
        "Delete the limit of {limit} at {broker}? Its senders are then not limited by it.",
        "删除 {broker} 上 {limit} 的限额？删除后不再限制其发送。",
    ),
    "limit.deleted": ("{limit}: no limit any more at {brokers}", "{limit}：{brokers} 上已无限额"),
    "limit.none": ("No sender is limited.", "没有发送方受限。"),
    "limit.silent": ("{broker} does not tell its limits: {why}", "{broker} 未返回限额：{why}"),
    "limit.change": ("Change the limits", "修改限额"),
}

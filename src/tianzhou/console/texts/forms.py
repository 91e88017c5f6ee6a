"""Texts of the forms that create and change topics and groups."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    # Checks of fields
    "form.number": ("Give a whole number from {least} to {most}.", "请输入 {least} 到 {most} 的整数。"),
    "form.range": ("{least} to {most}", "{least} 到 {most}"),
    "form.name.blank": ("Give a name.", "请输入名称。"),
    "form.name.characters": (
        "Use letters, digits and the characters % | _ - only.", "只能使用字母、数字以及字符 % | _ -。",
    ),
    "form.name.long": ("A name has at most {most} characters.", "名称最多 {most} 个字符。"),
    "form.name.reserved": (
        "{name} is a name of the system; choose another one.", "{name} 是系统保留名称，请换一个。",
    ),
    "form.name.derived": (
        "Brokers create the topics that begin with {prefix} themselves; choose another name.",
        "以 {prefix} 开头的主题由 Broker 自行创建，请换一个名称。",
    ),
    # Existing and missing names
    "topic.exists": ("Topic {name} exists already. Nothing was changed.", "主题 {name} 已存在，未作任何变更。"),
    "topic.exists.open": ("Open topic {name}", "打开主题 {name}"),
    "group.exists": ("Group {name} exists already. Nothing was changed.", "消费组 {name} 已存在，未作任何变更。"),
    "group.exists.open": ("Open group {name}", "打开消费组 {name}"),
    "topic.missing": (
        "There is no topic {name}. It was deleted, or the name is wrong.", "没有主题 {name}：已被删除，或名称有误。",
    ),
    "topic.missing.open": ("All topics", "所有主题"),
    "group.missing": (
        "No broker knows consumer group {name}. It was deleted, or the name is wrong.",
        "没有 Broker 认识消费组 {name}：已被删除，或名称有误。",
    ),
    "group.missing.open": ("All consumer groups", "所有消费组"),
    # Fields of a topic
    "topic.add": ("Add a topic", "新建主题"),
    "topic.update": ("Update a topic", "修改主题"),
    "topic.update.open": ("Open its settings", "打开配置"),
    "topic.where": ("Where", "范围"),
    "topic.where.all": ("all clusters", "所有集群"),
    "topic.where.having": ("all brokers that have it", "所有已有该主题的 Broker"),
    "topic.where.cluster": ("cluster {name}", "集群 {name}"),
    "topic.where.broker": ("broker {name}", "Broker {name}"),
    "topic.where.new": ("add it to broker {name}", "新增到 Broker {name}"),
    "topic.accepts": ("Message type", "消息类型"),
    "topic.accepts.any": ("any", "不限"),
    "topic.accepts.other": ("{value}", "{value}"),
    "topic.numbers.words": (
        "Numbers are per broker. Consumers read the read queues, producers write the write queues.",
        "数量按每个 Broker 计。消费者读取读队列，生产者写入写队列。",
    ),
    "topic.order.words": (
        ("More queues are read first, and written then. Fewer queues are written first, and read once every group has "
         "consumed the queues that go."),
        "增加时先增加读队列，再增加写队列。减少时先减少写队列，待各消费组消费完被移除的队列后，再减少读队列。",
    ),
    # A change
    "change.preview": ("Show what would change", "预览变更"),
    "change.apply": ("Apply", "应用"),
    "change.none": ("This changes nothing.", "没有变化。"),
    "change.setting": ("Setting", "配置项"),
    "change.now": ("Now", "当前"),
    "change.then": ("Afterwards", "变更后"),
    "change.steps": ("Steps", "步骤"),
    "change.absent": ("not there", "不存在"),
    "change.step.grow": ("Read {number} queues on {brokers}.", "在 {brokers} 上读取 {number} 个队列。"),
    "change.step.write": ("Write {number} queues on {brokers}.", "在 {brokers} 上写入 {number} 个队列。"),
    "change.step.cut": (
        "Read {number} queues on {brokers}, once every group has consumed the queues that go.",
        "待各消费组消费完被移除的队列后，在 {brokers} 上读取 {number} 个队列。",
    ),
    "change.dropped": ("Queues that go: {queues}.", "将移除的队列：{queues}。"),
    "change.dropped.more": (
        "{shown} of the {count} queues with messages are shown.", "共 {count} 个含有消息的队列，显示其中 {shown} 个。",
    ),
    "change.unread": ("Unread", "未消费"),
    "change.unread.group": ("{group}: {count}", "{group}：{count}"),
    "change.unread.words": (
        ("The queues that go have unread messages: {unread}. The topic goes on reading these queues until the groups "
         "have consumed them. Apply the change again then."),
        "将移除的队列中有未消费的消息：{unread}。在各消费组消费完之前，主题仍读取这些队列；之后请再次应用该变更。",
    ),
    "change.late": ("messages that came meanwhile", "变更期间到达的消息"),
    "change.drop": ("Let the queues go with their unread messages", "连同未消费的消息一起移除队列"),
    "change.waits": (
        "Topic {name} still reads the queues that go. Unread: {unread}",
        "主题 {name} 仍读取将移除的队列。未消费：{unread}",
    ),
    "topic.reads.more": (
        ("{broker} reads queues that are not written any more: {queues}. Set the read queues to {number} to take them "
         "away."),
        "{broker} 上有只读不写的队列：{queues}。将读队列数设为 {number} 即可移除。",
    ),
    "topic.writes.more": (
        "{broker} writes queues that are not read: {queues}. Consumers do not get their messages.",
        "{broker} 上有只写不读的队列：{queues}，消费者收不到其中的消息。",
    ),
    "group.add": ("Add a consumer group", "新建消费组"),
    "group.on": ("yes", "是"),
    "group.off": ("no", "否"),
}  # fmt: skip

"""Words of the pages about consumer groups."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "page.groups": ("Consumer groups", "消费组"),
    "page.group": ("Consumer group {group}", "消费组 {group}"),
    "page.member": ("Member {member}", "成员 {member}"),
    "group.lag": ("Lag", "堆积"),
    "group.progress": ("Progress", "消费进度"),
    "group.members": ("Members", "成员"),
    "group.member": ("Member", "成员"),
    "group.nobody": ("No member is connected.", "没有在线成员。"),
    "group.consumed": ("Consumed up to", "消费位点"),
    "group.last": ("Last consumed was stored", "最后消费消息的写入时间"),
    "group.language": ("Language", "语言"),
    "group.subscriptions": ("Subscriptions", "订阅关系"),
    "group.expression": ("Expression", "表达式"),
    "group.settings": ("Settings", "配置"),
    "group.enabled": ("May consume", "允许消费"),
    "group.broadcast": ("May broadcast", "允许广播消费"),
    "group.retries": ("Deliveries before it is a dead letter", "最大重试次数"),
    "group.info": ("Running info and stack", "运行信息与堆栈"),
    "group.reset": ("Reset offsets", "重置位点"),
    "group.to": ("To", "到"),
    "group.to.earliest": ("the first message", "最早"),
    "group.to.latest": ("behind the last message (skip all)", "最新（跳过堆积）"),
    "group.to.time": ("a time", "指定时间"),
    "group.to.offset": ("an offset", "指定位点"),
    "group.preview": ("Show what would happen", "预览"),
    "group.before": ("Before", "重置前"),
    "group.after": ("Afterwards", "重置后"),
    "group.moved": ("{queues} queues of {topic} are reset.", "已重置 {topic} 的 {queues} 个队列。"),
    "group.created": ("Group {name} is there.", "消费组 {name} 已创建。"),
    "group.delete": ("Delete the group with its offsets", "删除消费组及其位点"),
    "group.deleted": ("Group {name} is deleted.", "消费组 {name} 已删除。"),
    "group.members.count": ("Members", "成员数"),
}

"""Words of the pages about topics."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "page.topics": ("Topics", "主题"),
    "page.topic": ("Topic {topic}", "主题 {topic}"),
    "system": ("with those of the system", "包含系统主题"),
    "queues": ("Queues", "队列数"),
    "topic.created": ("Topic {name} is there.", "主题 {name} 已创建。"),
    "topic.look": ("Its messages", "查看消息"),
    "topic.queues": ("Queues and offsets", "队列与位点"),
    "topic.messages": ("Messages", "消息数"),
    "topic.stored": ("Last message", "最后写入"),
    "topic.min": ("First offset", "最小位点"),
    "topic.max": ("Next offset", "最大位点"),
    "topic.route": ("Route", "路由"),
    "topic.settings": ("Settings", "配置"),
    "topic.groups": ("Who consumes it", "订阅的消费组"),
    "topic.read": ("Read queues", "读队列数"),
    "topic.write": ("Write queues", "写队列数"),
    "topic.perm": ("May", "权限"),
    "topic.perm.6": ("read and write", "可读可写"),
    "topic.perm.4": ("read", "只读"),
    "topic.perm.2": ("write", "只写"),
    "topic.send": ("Send a message", "发送消息"),
    "topic.tags": ("Tags", "标签"),
    "topic.keys": ("Keys", "键"),
    "topic.body": ("Body", "消息体"),
    "topic.sent": ("{status} in queue {queue} at offset {offset}", "{status}，队列 {queue}，位点 {offset}"),
    "topic.delete": ("Delete the topic with its messages", "删除主题及其消息"),
    "topic.deleted": ("Topic {name} is deleted.", "主题 {name} 已删除。"),
}

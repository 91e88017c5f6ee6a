"""Words of the pages about brokers, name servers and producers."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "page.cluster": ("Cluster", "集群"),
    "page.broker": ("Broker {broker}", "Broker：{broker}"),
    "page.ops": ("Ops", "运维"),
    "page.producers": ("Producers", "生产者"),
    "id": ("Id", "ID"),
    "cluster": ("Cluster", "集群"),
    "cluster.since": ("Since", "启动时间"),
    "cluster.lag": ("Behind", "落后"),
    "cluster.troubles": ("Troubles", "异常"),
    "cluster.failing": ("What fails and is tried again", "失败并重试中的任务"),
    "cluster.task": ("Task", "任务"),
    "cluster.why": ("Why", "原因"),
    "cluster.count": ("Times in a row", "连续失败次数"),
    "cluster.rates": ("The last hour", "最近一小时"),
    # One broker
    "broker.config": ("Configuration", "配置"),
    "broker.runtime": ("Runtime", "运行时信息"),
    "broker.key": ("Key", "配置项"),
    "broker.figure": ("Figure", "指标"),
    "broker.value": ("Value", "值"),
    "broker.new": ("New value", "新值"),
    "broker.changed": ("{name} is {value} now.", "{name} 已改为 {value}。"),
    "broker.error": ("Error", "错误信息"),
    "broker.silent": ("It does not answer: {why}", "未响应：{why}"),
    "broker.doctor": ("What ails it?", "诊断"),
    "broker.write": ("Write permission", "写权限"),
    "broker.write.means": (
        "Without it, producers leave the broker alone while its messages are consumed: do that before you stop it.",
        "去除写权限后，生产者不再向该 Broker 写入，已有消息仍可消费；停机前请先执行。",
    ),
    "broker.wipe": ("Wipe write permission", "去除写权限"),
    "broker.add": ("Add write permission", "恢复写权限"),
    "broker.add.ask": ("Have producers send to {name} again?", "允许生产者重新写入 {name}？"),
    "broker.touched": (
        "{count} topics changed at name server {address}",
        "NameServer {address} 上已变更 {count} 个主题",
    ),
    # Clean-ups
    "upkeep": ("Clean-ups", "清理"),
    "upkeep.where": ("On {where}", "范围：{where}"),
    "upkeep.queues": ("Clean expired consume queues", "清理过期消费队列"),
    "upkeep.queues.ask": (
        "Delete consume queues of topics and queues that are gone, on {where}?",
        "删除 {where} 上已不存在的主题和队列的消费队列文件？",
    ),
    "upkeep.topics": ("Clean unused topics", "清理无用主题"),
    "upkeep.topics.ask": (
        "Delete what is kept of topics that are gone, on {where}?",
        "删除 {where} 上已不存在的主题的残留数据？",
    ),
    "upkeep.logs": ("Delete expired commit log", "删除过期 CommitLog"),
    "upkeep.logs.ask": (
        "Delete expired files of the commit log on {where} now? Messages in them are gone.",
        "立即删除 {where} 上过期的 CommitLog 文件？其中的消息将无法恢复。",
    ),
    "upkeep.done": ("Cleaned: {where}", "已清理：{where}"),
    # Name servers
    "ops.namesrv": ("Name servers", "NameServer"),
    "ops.server": ("Of", "所属"),
    "ops.kv": ("KV entries", "KV 配置"),
    "ops.namespace": ("Namespace", "命名空间"),
    "ops.kv.key": ("Key of an entry", "键"),
    "ops.kv.value": ("Its value", "值"),
    "ops.kv.put": ("Put", "写入"),
    "ops.kv.there": ("The entry is there.", "已写入。"),
    # Producers
    "producers.groups": ("Producer groups", "生产者组"),
    "producers.group": ("Producer group", "生产者组"),
    "producers.members": ("Members", "成员数"),
    "producers.languages": ("Languages", "语言"),
    "producers.seen": ("Last heartbeat", "最近心跳"),
    "producers.untold": ("Not told by {broker}", "无法获取：{broker}"),
    "producers.connections": ("Connections of a group", "生产者连接"),
    "producers.topic": ("Topic (all brokers without it)", "主题（不填则查询所有 Broker）"),
    "producers.nobody": ("No producer of this group is connected.", "该组没有在线的生产者。"),
    "producers.client": ("Client", "客户端"),
    "producers.address": ("Address", "地址"),
    "producers.language": ("Language", "语言"),
    "producers.version": ("Version", "版本"),
}

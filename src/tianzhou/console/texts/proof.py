"""Texts of the proof's page."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "page.proof": ("Proof", "消息对账"),
    "proof.means": (
        "Messages are sent, every replica is read, a group consumes: acknowledged = stored = consumed, one by one.",
        "发送一批消息，读取每个副本，并用消费组消费：逐条核对 已确认 = 已存储 = 已消费。",
    ),
    "proof.topic": ("Topic", "主题"),
    "proof.topic.hint": ("empty: one of its own, deleted afterwards", "不填：使用临时主题，结束后删除"),
    "proof.count": ("Messages", "消息数"),
    "proof.size": ("Bytes of a body", "消息体字节数"),
    "proof.run": ("Prove it", "开始对账"),
    "proof.of": ("Proof with topic {topic}", "主题 {topic} 的对账"),
    "proof.proven": ("Proven", "已证明"),
    "proof.not.proven": ("Not proven", "未能证明"),
    "proof.acked": ("acknowledged", "已确认"),
    "proof.stored": ("stored on a majority", "已存储（多数副本）"),
    "proof.consumed": ("consumed", "已消费"),
    "proof.broker": ("Broker", "Broker"),
    "proof.address": ("Address", "地址"),
    "proof.messages": ("Messages", "消息数"),
    "proof.state": ("Not read whole, because", "未读完整的原因"),
    "proof.lost": ("Lost", "丢失"),
    "proof.unproven": ("Not proven, as replicas could not be read", "副本不可读，无法证明"),
    "proof.not.consumed": ("Not consumed", "未消费"),
    "proof.differing": ("Replicas differ", "副本不一致"),
    "proof.stored.twice": ("Stored more than once", "重复存储"),
    "proof.consumed.twice": ("Consumed more than once", "重复消费"),
    "proof.failures": ("Sends that failed", "发送失败"),
}

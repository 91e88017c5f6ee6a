"""Chinese texts for the audit log's entries, which are written in English."""

from __future__ import annotations

from typing import Final

ACTIONS: Final = {
    "create topic": "新建主题", "change topic": "修改主题", "delete topic": "删除主题",
    "add topic to broker": "在 Broker 上新增主题",
    "create group": "新建消费组", "change group": "修改消费组", "delete group": "删除消费组",
    "reset offsets": "重置位点", "preview reset of offsets": "预览重置位点", "undo reset of offsets": "撤销重置位点",
    "send message": "发送消息", "send message again": "重新发送消息", "consume message directly": "直接消费消息",
    "send dead letters again": "重新发送死信",
    "commit transaction": "提交事务", "roll back transaction": "回滚事务",
    "change broker configuration": "修改 Broker 配置", "change name server configuration": "修改 NameServer 配置",
    "wipe write permission": "去除写权限", "add write permission": "恢复写权限",
    "put KV entry": "写入 KV", "delete KV entry": "删除 KV",
    "clean expired consume queues": "清理过期消费队列", "clean unused topics": "清理无用主题",
    "delete expired commit log": "删除过期 CommitLog",
    "create user": "新建用户", "delete user": "删除用户", "disable user": "禁用用户", "enable user": "启用用户",
    "change password of user": "修改用户密码", "set policy": "设置策略", "delete policy": "删除策略",
    "set account": "设置账号", "delete account": "删除账号",
    "set limit": "设置限额", "delete limit": "删除限额",
    "prove": "消息对账", "cancel proof": "取消对账",
}  # fmt: skip
"""Names of actions, as passed to `View.act`."""
OUTCOMES: Final = {"begun": "开始", "done": "完成", "failed": "失败", "refused": "被拒绝"}
"""Prefixes of outcomes."""

"""Texts of the page about access control."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "page.access": ("Access", "访问控制"),
    "access.off": (
        "Access control is off on {brokers}: whoever reaches the ports may do everything. Settings switch it on.",
        "{brokers} 未开启访问控制：能连通端口的任何人都可以执行任何操作。可在 Broker 配置中开启。",
    ),
    "access.users": ("Users and policies of RocketMQ 5.3 are on: {brokers}", "已开启 ACL 2.0（用户与策略）：{brokers}"),
    "access.accounts": ("Accounts of RocketMQ 4.x are on: {brokers}", "已开启 ACL 1.0（账号）：{brokers}"),
    "access.untold": ("{broker} does not tell: {why}", "无法获取 {broker} 的配置：{why}"),
    # Users
    "access.list": ("Users", "用户"),
    "access.user": ("User", "用户"),
    "access.type": ("Type", "类型"),
    "access.status": ("Status", "状态"),
    "access.created": ("User {name} is there.", "用户 {name} 已创建。"),
    "access.nobody": ("There is no user {name}.", "没有用户 {name}。"),
    "access.of": ("User {name}", "用户 {name}"),
    "access.password": ("Change password", "修改密码"),
    "access.disable": ("Disable", "禁用"),
    "access.enable": ("Enable", "启用"),
    "access.delete": ("Delete user", "删除用户"),
    # Policies
    "access.policies": ("Policies", "策略"),
    "access.policies.of": ("Policies of {name}", "{name} 的策略"),
    "access.choose": ("Choose a user to change policies.", "请选择用户以修改策略。"),
    "access.resource": ("Resource", "资源"),
    "access.actions": ("Actions", "操作"),
    "access.decision": ("Decision", "决策"),
    "access.from": ("Source addresses", "来源地址"),
    "access.policy": ("Kind", "策略类型"),
    "access.put": ("Set policy", "设置策略"),
    "access.unput": ("Delete chosen", "删除所选"),
    # Accounts of 4.x
    "access.files": ("Account files", "账号文件"),
    "access.plain": ("Accounts", "账号"),
    "access.white": ("These need no signature: {addresses}", "以下地址免签名：{addresses}"),
    "access.broker": ("Broker", "Broker"),
    "access.file": ("File", "文件"),
    "access.changes": ("Changes", "变更次数"),
    "access.changed": ("Changed", "变更时间"),
    "access.account": ("Access key", "AccessKey"),
    "access.account.set": ("Set or delete an account", "设置或删除账号"),
    "access.topics": ("Topics", "主题默认权限"),
    "access.groups": ("Groups", "消费组默认权限"),
    "access.exceptions": ("Exceptions", "例外权限"),
    "access.admin": ("Administrator", "管理员"),
}

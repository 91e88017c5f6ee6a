"""Texts of the doctor's page. The texts of findings are in `tianzhou.doctor.chinese`."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "page.doctor": ("Doctor", "诊断"),
    "doctor.subject": ("Look at", "诊断对象"),
    "doctor.name": ("Name", "名称"),
    "doctor.ask": ("Examine", "开始诊断"),
    "doctor.cluster": ("the whole cluster", "整个集群"),
    "doctor.group": ("a consumer group", "消费组"),
    "doctor.topic": ("a topic", "主题"),
    "doctor.broker": ("a broker", "Broker"),
    "doctor.send": ("sends to a topic", "发送"),
    "doctor.access": ("who may do what", "访问控制"),
    "doctor.looking": ("Looking …", "诊断中……"),
    "doctor.healthy": ("Healthy", "健康"),
    "doctor.error": ("error", "错误"),
    "doctor.warning": ("warning", "警告"),
    "doctor.note": ("note", "提示"),
    "doctor.looked": ("looked at {what}", "已检查：{what}"),
    "doctor.more": (
        "{count} more; `tianzhou doctor -o json` has all.",
        "另有 {count} 项，请用 tianzhou doctor -o json 查看。",
    ),
    "doctor.unanswered": ("Not known, {question} of {server}: {why}", "未知：{server} 的 {question}：{why}"),
    "doctor.fix": ("What to do", "处理办法"),
}

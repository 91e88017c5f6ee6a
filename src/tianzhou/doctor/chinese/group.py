"""Illnesses of consumer groups and their members in Chinese."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "group-unknown": (
        "没有任何 Broker 认识消费组 {group}：从未有人用它消费过，或者名称写错了。",
        "用以下命令查找：tianzhou group list",
    ),
    "group-without-members": (
        "消费组 {group} 没有在线成员，{lag} 条未消费的消息无人读取。",
        "启动该消费组的消费者。如果已有消费者在运行，请在其机器上检查它能连通哪里：tianzhou doctor connect",
    ),
    "group-disabled": (
        "消费组 {group} 在 {brokers} 上被禁止消费（consumeEnable=false）。",
        (
            "重新允许消费：mqadmin updateSubGroup -c CLUSTER -g {group} -s true，或在 Python 中执行 "
            'admin.groups.update("{group}", consume_enable=True)'
        ),
    ),
    "group-broadcast-refused": (
        "消费组 {group} 的成员要求广播消费（BROADCASTING），而 {brokers} 不允许。",
        (
            '让成员改用 CLUSTERING，或在 Python 中允许广播：admin.groups.update("{group}", '
            "consume_broadcast_enable=True)"
        ),
    ),
    "group-broadcasting": (
        (
            "消费组 {group} 的每个成员都会收到全部消息（BROADCASTING）：成员之间不分担工作，失败的消息不会重投，"
            "Broker 也不知道各成员的消费进度。"
        ),
        "如果本意是由成员分担消息，请让所有成员使用 CLUSTERING。",
    ),
    "more-members-than-queues": (
        "主题 {topic} 有 {queues} 个队列，消费组 {group} 有 {members} 个成员：其中 {idle} 个分不到队列。",
        "停掉空闲的成员，或增加主题的队列数：tianzhou topic create {topic} --queues {members}",
    ),
    "queues-without-reader": (
        "主题 {topic} 有 {count} 个队列没有被消费组 {group} 的任何成员读取，其中有 {lag} 条未消费的消息。",
        "重启成员，先重启那些分配策略或订阅关系与其他成员不同的。",
    ),
    "queue-read-twice": (
        "消费组 {group} 有多个成员在读取主题 {topic} 的同一个队列，消息会被重复消费。",
        "等待半分钟，到下一次重平衡。如果仍然如此，请让所有成员使用同一种分配策略。",
    ),
    "subscriptions-differ": (
        "消费组 {group} 的成员订阅关系不一致，各成员都会漏掉分给其他成员的消息。",
        "让所有成员以相同的表达式订阅相同的主题，或者为不同的订阅使用不同的消费组。",
    ),
    "client-ids-clash": (
        (
            "消费组 {group} 中有多个进程使用同一个客户端 ID {client_id}：每个进程都以为只有自己，"
            "队列会被重复读取或无人读取。"
        ),
        "为每个进程设置不同的 ID：不同的 instanceName 或 unitName，或者不设置 client_id。",
    ),
    "consume-modes-differ": (
        "消费组 {group} 的部分成员顺序消费，其他成员不是，因此谁都无法保证顺序。",
        "让所有成员注册同一类处理函数（顺序或并发）。",
    ),
    "filter-drops-all": (
        (
            "消费组 {group} 的表达式 {expression!r} 没有选中主题 {topic} 最新 {count} 条消息中的任何一条："
            "消费进度在前进，处理函数却什么也收不到。"
        ),
        "将表达式与生产者设置的内容对比，注意标签和属性的大小写：tianzhou consume {topic} --from-beginning --max 5",
    ),
    "filter-unreadable": (
        "消费组 {group} 在主题 {topic} 上的表达式 {expression!r} 无法解析。",
        "请改正：{error}",
    ),
    "offset-below-min": (
        "消费组 {group} 在主题 {topic} 上要继续消费的消息已被删除：{lost} 条从未被消费。",
        (
            "成员会从现存的第一条消息继续。要保留更久，请增大 fileReservedTime；要从其他位置继续：tianzhou group "
            "reset {group} -t {topic} --to earliest"
        ),
    ),
    "offset-above-max": (
        (
            "消费组 {group} 的位点超出了主题 {topic} 的末尾：在队列增长到该位点之前收不到任何消息，"
            "并会漏掉此前的消息。原因是存储丢失了末尾，或者主题被删除后重建。"
        ),
        "将位点重置到现有范围：tianzhou group reset {group} -t {topic} --to earliest（或 latest）",
    ),
    "group-behind": (
        "消费组 {group} 在主题 {topic} 上堆积 {lag} 条消息，下一条已等待 {waits}。",
        "查看是哪些队列和成员：tianzhou group lag {group} -t {topic}",
    ),
    "never-catches-up": (
        "消费组 {group} 在主题 {topic} 上堆积 {lag} 条消息且还在增加：每秒写入 {come_in} 条，消费 {consumed} 条。",
        "加快处理函数或提高并发；增加成员，最多与队列数相同。",
    ),
    "unread-about-to-be-lost": (
        (
            "消费组 {group} 在主题 {topic} 上最早的未消费消息已有 {age}，而 {broker} 只保留 {hours} 小时："
            "它将未经消费就被删除。"
        ),
        "立即增大 fileReservedTime：tianzhou config set fileReservedTime={longer}；然后查明该消费组为何落后。",
    ),
    "message-retried-again-and-again": (
        "消费组 {group} 的处理函数对同样的消息反复失败，最多已达 {times} 次。",
        (
            "查看其中一条：tianzhou consume {retry_topic} --from-beginning --max 1；"
            "让处理函数把永远无法消费的消息另行存放。"
        ),
    ),
    "dead-letters": (
        "消费组 {group} 放弃了 {count} 条消息，它们在 {topic} 中。",
        "查看死信：tianzhou dlq list {group}；排除原因后重新发送：tianzhou dlq resend {group}",
    ),
    "topic-of-group-missing": (
        "消费组 {group} 订阅的主题 {topic} 不存在。",
        "改正消费者中的名称，或创建主题：tianzhou topic create {topic}",
    ),
    "topic-of-group-not-readable": (
        "消费组 {group} 订阅的主题 {topic} 在 {brokers} 上不可读。",
        "恢复主题的权限：tianzhou topic create {topic} --queues {queues} --perm rw",
    ),
    # Members
    "member-does-not-answer": (
        "消费组 {group} 的成员 {client_id} 在线，但没有回答它正在做什么。",
        "其进程可能卡住或没有处理器时间：请查看其日志和处理器占用。3.1.8 之前的客户端无法回答。",
    ),
    "handler-slow": (
        "成员 {client_id} 的处理函数在主题 {topic} 上每条消息耗时 {took}。",
        "查看处理函数在等待什么；提高并发（consumeThreadMax、consume_concurrency）。",
    ),
    "handler-hangs": (
        (
            "成员 {client_id} 手中有主题 {topic} 的 {count} 条消息，已有 {since} 没有完成任何一条："
            "处理函数卡住了，或者太慢。{timeout} 分钟后这些消息会重新投递（consumeTimeout）。"
        ),
        "查看成员的线程：mqadmin consumerStatus -g {group} -i {client_id} -s；为处理函数的调用设置超时。",
    ),
    "handler-fails": (
        "成员 {client_id} 的处理函数在主题 {topic} 上失败：最近一小时 {failed} 条消息。",
        "原因在成员的日志中；失败的消息会重新投递，16 次之后成为死信。",
    ),
    "queue-lock-not-held": (
        (
            "成员 {client_id} 顺序消费，但没有取得主题 {topic} 中 {count} 个队列的锁：锁在其他进程手中，"
            "或者持有锁的进程被强制终止。"
        ),
        (
            "已离线成员的锁在一分钟后失效。如果仍然如此，说明另有进程以同一消费组顺序消费：tianzhou group "
            "describe {group}"
        ),
    ),
    "member-does-not-pull": (
        (
            "成员 {client_id} 已有 {since} 没有拉取主题 {topic} 中的 {count} 个队列，而处理函数并没有积压："
            "它被暂停，或进程卡住。"
        ),
        "恢复该消费者，或重启其进程。",
    ),
    "client-clock-off": (
        "成员 {client_id} 的时钟快了 {ahead}：其消息中的时间、延时和超时都不正确。",
        "让其机器通过网络校时（NTP）。",
    ),
}

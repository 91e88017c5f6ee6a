"""Illnesses of topics, and reasons why a send is refused, in Chinese."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "topic-missing": (
        "主题 {topic} 不存在，而 {brokers} 不会自动创建主题（autoCreateTopicEnable=false）。",
        "创建主题：tianzhou topic create {topic}；或改正名称。",
    ),
    "topic-unknown": (
        "主题 {topic} 不存在；发往它的第一条消息会以默认队列数在一个 Broker 上创建它。",
        "按所需队列数在所有 Broker 上创建：tianzhou topic create {topic} --queues 8",
    ),
    "topic-without-route": (
        "{brokers} 上有主题 {topic}，但没有 NameServer 指向它：这些 Broker 没有注册该主题。",
        "检查它们能否连通 NameServer（namesrvAddr，日志中的 registerBroker）：tianzhou doctor broker",
    ),
    "topic-not-writable": (
        "主题 {topic} 在 {brokers} 上不可写，发送会转向其他 Broker 或被拒绝。",
        "恢复其权限：tianzhou topic create {topic} --queues {queues} --perm rw",
    ),
    "topic-not-readable": (
        "主题 {topic} 在 {brokers} 上不可读：消费者收不到那里的任何消息。",
        "恢复其权限：tianzhou topic create {topic} --queues {queues} --perm rw",
    ),
    "write-permission-wiped": (
        "NameServer 让生产者不要向 {brokers} 写入主题 {topic}，而这些 Broker 本可接收：有人去除了它们的写权限。",
        "Broker 上的工作完成后恢复：mqadmin addWritePerm -n NAMESRV -b {broker}",
    ),
    "more-queues-written-than-read": (
        "主题 {topic} 在 {brokers} 上的写队列多于读队列：写入最后几个队列的消息不会投递给任何人。",
        "让读队列数与写队列数相同：tianzhou topic create {topic} --queues {queues}",
    ),
    "queue-numbers-differ": (
        "主题 {topic} 在各 Broker 上的队列数不同，因此各 Broker 得到的消息份额也不同。",
        "如果不是有意为之：tianzhou topic create {topic} --queues {queues}",
    ),
    "topic-not-on-all-brokers": (
        "{brokers} 上没有主题 {topic}：它们不接收其消息，其他 Broker 故障时该主题即中断。",
        "在那里也创建：tianzhou topic create {topic} --queues {queues}",
    ),
    "broker-not-in-route": (
        "{brokers} 上有主题 {topic}，但路由不指向那里：其中的消息无人读取。",
        "Broker 每 30 秒注册一次；如果仍然如此，请在其日志中查找失败的注册。",
    ),
    "routes-differ": (
        "各 NameServer 给出的主题 {topic} 的队列不同：客户端看到的主题取决于询问了谁。",
        "为每个 Broker 配置全部 NameServer 的地址（namesrvAddr）。",
    ),
    "topic-without-master": (
        "{brokers} 有主题 {topic} 的队列，但目前没有主节点：这些队列无法写入。",
        "启动主节点，或由 DLedger 组选举：tianzhou doctor broker",
    ),
    "producer-clock-off": (
        "主题 {topic} 中来自 {host} 的消息，产生时间比存储时间晚 {ahead}：该机器或 Broker 的时钟不准。",
        "让两台机器都通过网络校时（NTP）。",
    ),
    # Sends
    "message-too-large": (
        "{size} 字节的消息超过了 {broker} 的上限（{most} 字节，maxMessageSize）。",
        "减小消息，或只发送消息体的存放位置；或者增大 Broker 的 maxMessageSize 和生产者的 max_message_size。",
    ),
    "transactions-rejected": (
        "{broker} 拒绝事务消息（rejectTransactionMessage=true）。",
        "如果生产者需要事务，请在其配置中设置 rejectTransactionMessage=false。",
    ),
    "no-broker-takes-messages": (
        "没有可接收消息的 Broker 在应答。",
        "查看各 Broker 的问题：tianzhou doctor broker",
    ),
}

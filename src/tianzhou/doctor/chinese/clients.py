"""Faults of clients and Spark streams in Chinese: addresses, TLS, signatures; checkpoints, Java."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "host-name-unknown": (
        "本机无法解析 {address} 中的主机名。",
        "改正名称，或让 DNS 或 /etc/hosts 能解析它；Broker 告诉客户端的是其 brokerIP1。",
    ),
    "no-address": (
        "{address} 不是有效的地址。",
        "请写成 host:port，例如 127.0.0.1:9876。",
    ),
    "port-closed": (
        "{address} 上没有任何服务在监听。",
        "启动 {expected}，改正端口，或让它不只在本机监听（bindAddress，tianzhou serve --host 0.0.0.0）。",
    ),
    "host-unreachable": (
        "从本机无法连通 {address}。",
        "被防火墙丢弃，或者是其他网络（容器、NAT）的地址：请开放端口，或将 brokerIP1 设为客户端能连通的地址。",
    ),
    "tls-required": (
        "{address} 只接受 TLS，而此客户端没有使用 TLS。",
        "使用 --tls 或 TIANZHOU_TLS_ENABLE=true（客户端：tls=True）；参见 docs/howto/tls.md",
    ),
    "tls-not-spoken": (
        "{address} 不支持 TLS，而此客户端要求 TLS。",
        "使用 --no-tls，或在服务端设置 tls.server.mode=permissive 或 enforcing。",
    ),
    "certificate-not-trusted": (
        "{address} 出示的证书不受信任。",
        "信任其签发者（tls.client.trustCertPath），或使用证书所对应的主机名：docs/howto/tls.md",
    ),
    "not-rocketmq": (
        "{address} 上有服务在监听，但不是 RocketMQ 协议。",
        "改正端口：NameServer 监听 9876，Broker 监听 10911。",
    ),
    "ha-port": (
        "{address} 是 Broker 之间的端口（haListenPort、dLegerPeers），不供客户端使用。",
        "使用 Broker 自己的端口：{right}",
    ),
    "fast-port": (
        "{address} 是 Broker 的第二个端口（listenPort 减 2），不向消费者提供消息。",
        "使用 Broker 自己的端口：{right}",
    ),
    "wrong-server": (
        "{address} 是 {kind}，而这里需要的是 {expected}。",
        "客户端的 namesrv_addr（-n）应为 NameServer，端口通常是 9876；Broker 通过 NameServer 找到。",
    ),
    "signature-missing": (
        "{address} 只处理已签名的请求，而此客户端没有签名。",
        (
            "设置 TIANZHOU_ACCESS_KEY 和 TIANZHOU_SECRET_KEY（客户端：access_key、secret_key）："
            "docs/howto/access-control.md"
        ),
    ),
    "signature-refused": (
        "{address} 拒绝此客户端的签名：没有这个账号，密钥不对，或该账号无权请求。",
        "将 AccessKey 和 SecretKey 与服务端的账号核对：docs/howto/access-control.md",
    ),
    "server-does-not-answer": (
        "{address} 接受连接但没有应答：其进程卡住，或该端口不供客户端使用。",
        "查看其日志和处理器占用，并确认端口是否正确。",
    ),
    # Streams of Spark
    "pyspark-missing": (
        "此解释器没有安装 pyspark。",
        "安装：pip install 'tianzhou[spark]'",
    ),
    "pyspark-too-old": (
        "pyspark {version} 低于该数据源所需的最低版本 {oldest}。",
        "安装更新的版本：pip install 'pyspark>={oldest}'",
    ),
    "java-missing": (
        "Spark 在本机找不到 Java {oldest} 或更新的版本。",
        "安装后在 JAVA_HOME 中指定：{why}",
    ),
    "checkpoint-unreadable": (
        "检查点 {path} 无法作为此数据源的流来读取。",
        "{why}",
    ),
    "checkpoint-topic-gone": (
        "{path} 的流读取的 {count} 个队列已不存在：主题 {topic} 被删除，或其 Broker 已离线。",
        "恢复 Broker 或主题，或使用新的检查点目录重新开始。",
    ),
    "checkpoint-data-lost": (
        "{path} 的流尚未读取主题 {topic} 的 {lost} 条消息，而它们已被删除：下一个批次会失败。",
        (
            "设置 failOnDataLoss=false 以继续读取余下的消息，或使用新的检查点重新开始；"
            "延长消息保留时间（fileReservedTime）或更频繁地读取。"
        ),
    ),
    "checkpoint-beyond-end": (
        "{path} 的流的位置超出了主题 {topic} 的末尾：主题被重建，或其存储丢失了末尾。",
        "使用新的检查点目录重新开始；届时读取什么参见 docs/howto/spark-source.md。",
    ),
    "batch-not-finished": (
        "{path} 的流的批次 {batch} 在 {since} 前已计划，至今没有完成。",
        "查询是否在运行？查看其日志和 Stage 页面；批次大小受 maxOffsetsPerTrigger 限制。",
    ),
    "stream-behind": (
        "{path} 的流还有 {lag} 条消息要读，是上一个批次的 {factor:.0f} 倍。",
        "增大 maxOffsetsPerTrigger、minPartitions 或 Executor 的核数。",
    ),
}

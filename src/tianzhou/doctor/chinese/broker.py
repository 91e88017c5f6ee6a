"""Illnesses of name servers and brokers in Chinese."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "name-server-does-not-answer": (
        "NameServer {address} 没有应答；先询问它的客户端会损失时间，Broker 也无法向它注册。",
        "启动它，或从所有客户端和 Broker 的配置中去掉其地址。检查该地址上有什么：tianzhou doctor connect {address}",
    ),
    "name-servers-disagree": (
        "各 NameServer 已知的 Broker 不同：{missing} 不知道 {broker}。",
        "为该 Broker 配置全部 NameServer 的地址：namesrvAddr={all}",
    ),
    "no-broker": (
        "NameServer 上没有注册任何 Broker。",
        "以这些地址作为 namesrvAddr 启动一个：tianzhou serve",
    ),
    "broker-does-not-answer": (
        "{broker} 在 {address} 接受连接但没有应答：其进程卡住或负载过高。",
        "检查其日志以及所在机器的处理器和磁盘；如果不能恢复，请重启。",
    ),
    "broker-not-reached": (
        "{broker} 注册的地址是 {address}，但无法与其保持连接。",
        "其进程是否在运行？本机能否连通该地址？tianzhou doctor connect {address}",
    ),
    "broker-without-master": (
        "Broker {broker} 只有从节点，没有主节点：其队列可读不可写。",
        "启动主节点，或将一个从节点改为主节点：docs/howto/master-slave.md",
    ),
    "group-without-leader": (
        "DLedger 组 {broker} 的成员没有 Leader，因此不接收消息。",
        "必须有多数成员在运行并能相互连通（dLegerPeers）：docs/howto/two-of-three-gone.md",
    ),
    "address-only-local": (
        "{broker} 让客户端连接 {address}，而在其他机器上这个地址指的是那台机器自己。",
        "将 brokerIP1 设为客户端能连通的 Broker 机器地址，然后重启：tianzhou serve --advertise HOST",
    ),
    "work-fails": (
        "{broker} 有一项工作无法完成：{task} 已失败 {since}。",
        "原因见证据和其日志；原因消除后会自动继续（docs/howto/troubles.md）。",
    ),
    "disk-full": (
        "{broker} 的磁盘已用 {ratio:.0%}，上限为 {limit:.0%}：发送被拒绝。",
        "腾出空间，或减少保留时间：tianzhou config set fileReservedTime={hours}；参见 docs/howto/disk-space.md",
    ),
    "disk-nearly-full": (
        "{broker} 的磁盘已用 {ratio:.0%}：达到 {limit:.0%} 后消息会被提前删除。",
        "腾出空间，或减少保留时间：tianzhou config set fileReservedTime={hours}；参见 docs/howto/disk-space.md",
    ),
    "log-damaged": (
        "{broker} 的日志有 {count} 段损坏尚未修复：其中的消息无法提供。",
        "如果其他节点有副本，会自动取回；否则：tianzhou store check 和 tianzhou store repair",
    ),
    "state-rebuilt": (
        "{broker} 启动时已丢失 {files}：它从日志重建了能重建的部分，并且不会删除其表中没有的主题的队列。",
        "对照其存储中的 config/rebuiltState.json，补建缺少的主题、消费组和位点，再删除该文件：docs/howto/troubles.md",
    ),
    "state-file-damaged": (
        "{broker} 发现状态文件损坏，并保存为 {files}；它读取了各文件的前一版本，或重建了相应的表。",
        "检查其磁盘，查看这些文件中还有什么，然后删除它们：docs/howto/troubles.md",
    ),
    "slave-missing": (
        "{broker} 是 SYNC_MASTER，但与其同步的从节点太少：生产者会收到 SLAVE_NOT_AVAILABLE。",
        "启动其从节点，或不再要求同步：brokerRole=ASYNC_MASTER。",
    ),
    "slave-not-following": (
        "{broker} 是从节点，但没有从任何节点复制：新写入的消息只在主节点上。",
        "从那里能否连通主节点的 HA 端口（haListenPort，10912）？其地址是否在 replicationAllowedAddresses 中？",
    ),
    "slave-behind": (
        "{broker} 落后主节点 {behind}。",
        "比较两者的磁盘和网络；发送速度受 maxHaTransferByteInSecond 限制。",
    ),
    "member-follows-no-further": (
        "{broker} 是 DLedger 组的成员，已停止跟随：{reason}。",
        (
            "将其日志与 Leader 的日志比较：tianzhou status。如果应保留 Leader 的日志，请停止该成员，移走其存储目录，"
            "再用空目录启动：docs/howto/two-of-three-gone.md"
        ),
    ),
    "slave-refuses-log": (
        "{broker} 是从节点，拒绝接受主节点的日志：{reason}。",
        (
            "先决定保留哪一份日志；要保留从节点的日志，请将其提升为主节点：docs/howto/master-slave.md；"
            "要保留主节点的日志，请清空从节点的存储目录后重新启动。"
        ),
    ),
    "messages-undeliverable": (
        "{broker} 有 {count} 条消息无法投递，已被搁置（主题：{topics}）。最近一条的原因：{reason}。",
        (
            "用 `tianzhou undelivered list` 列出这些消息。消除所述原因后用 `tianzhou undelivered resend` 投递，"
            "或用 --to 投递到其他主题。"
        ),
    ),
    "sends-limited": (
        "{broker} 因发送方受限而拒绝消息：{limits}。",
        (
            "若负载正常，请用 `tianzhou limit set` 提高限额；否则请找出发送方，"
            "`tianzhou limit list` 显示每个限额拒绝的消息数。"
        ),
    ),
    "group-identities-differ": (
        "DLedger 组 {broker} 的成员属于不同的组：{members}。",
        (
            "其中某个成员使用了另一个组的目录，或本组早先的目录。请停止它，移走其存储目录，"
            "待其他成员选出 Leader 后再用空目录启动。"
        ),
    ),
    "two-masters": (
        "Broker {broker} 有两个主节点在线：{first} 和 {second}。客户端只能访问其中一个，另一个接收的消息无法被看到。",
        "停止误启动的那一个，或为其设置另一个 brokerName。在其消息重新发送之前请保留其目录：tianzhou store export",
    ),
    "two-brokers-of-one-id": (
        "有两个 Broker {broker} 以 brokerId={id} 在线：{first} 和 {second}。客户端和工具只能访问其中一个。",
        "停止误启动的那一个，或为其设置另一个 brokerId。",
    ),
    "durability-differs": (
        "{broker} 的各 Broker 配置文件中 durability 的值不一致：{values}。",
        "请在每个配置文件中写入相同的 durability=…，并逐个重启：docs/howto/zero-loss.md",
    ),
    "broker-clock-off": (
        "{broker} 的时钟与本机相差 {ahead}。",
        "让两台机器都通过网络校时（NTP）；延时、超时和保留时间都以时钟为准。",
    ),
    "broker-not-writable": (
        "{broker} 不接收消息（brokerPermission={permission}）。",
        "需要它重新接收时：tianzhou config set brokerPermission=6",
    ),
    "broker-not-readable": (
        "{broker} 不提供消息（brokerPermission={permission}）。",
        "需要它重新提供时：tianzhou config set brokerPermission=6",
    ),
    "broker-waits-to-accept": (
        "{broker} 还要拒绝发送 {left}（startAcceptSendRequestTimeStamp）。",
        "等待，或在其配置中设置 startAcceptSendRequestTimeStamp=0。",
    ),
    "broker-busy": (
        "发送在 {broker} 上等待 {waits} 才得到处理；等待更久的会被拒绝（SYSTEM_BUSY）。",
        "负载超出了它的能力：查看其磁盘和处理器，增加 Broker（tianzhou plan brokers），或让生产者放慢。",
    ),
    "page-cache-busy": (
        "写入 {broker} 的日志耗时 {held}：磁盘跟不上，发送被拒绝。",
        "查看还有什么在使用该磁盘，以及磁盘的设置：tianzhou doctor host FOLDER",
    ),
    "sends-failed": (
        "{broker} 自启动以来有 {count} 条消息未能存储。",
        "原因见生产者的报错和 Broker 的日志：磁盘满、磁盘慢、同时发送过多、消息有误。",
    ),
    "sends-slow": (
        "{broker} 上百分之一的发送耗时 {took} 或更久：磁盘或它所等待的节点跟不上。",
        "查看磁盘及其设置：tianzhou doctor host FOLDER；查看需要确认的从节点：tianzhou status",
    ),
    "limits-reached": (
        "{broker} 因达到上限拒绝过请求：{limits}。",
        "如果用量是正常的，请提高上限；否则查明是谁请求了这么多（docs/reference/limits.md）。",
    ),
    "half-messages-pile-up": (
        "{broker} 有未决的事务，最早的已有 {age}：其生产者已离线，或不知道结果。",
        "重新启动该组的生产者，以便回查；回查 transactionCheckMax 次之后消息会被放弃。",
    ),
    "delayed-messages-late": (
        "{broker} 上级别 {level} 的延时消息晚了 {late}，还有 {waiting} 条在等待。",
        "查看其异常和负载：tianzhou status；只有主节点投递延时消息。",
    ),
}

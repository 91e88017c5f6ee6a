"""Shortcomings of a machine for a broker, and faults of access control, in Chinese."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "open-files-limit-low": (
        "此用户最多可打开 {limit} 个文件，而每个连接和每个存储文件都占用一个。",
        "在服务单元中设置 LimitNOFILE=655350，或在 /etc/security/limits.conf 中提高 nofile 硬限制。",
    ),
    "file-size-limited": (
        "此用户的单个文件不能超过 {limit} 字节，而日志的一个文件有 {least} 字节。",
        "在服务单元中设置 LimitFSIZE=infinity，或在 /etc/security/limits.conf 中提高 fsize 硬限制。",
    ),
    "address-space-limited": (
        "此用户的一个进程最多有 {limit} 字节的地址空间，而存储文件是整个映射的。",
        "在服务单元中设置 LimitAS=infinity，或在 /etc/security/limits.conf 中提高 as 硬限制。",
    ),
    "listen-queue-short": (
        "最多 {limit} 个连接可以等待服务端接受（net.core.somaxconn）：同时到来很多时，有些会被丢弃，一秒后才重试。",
        "设置：sysctl -w net.core.somaxconn=4096，并写入 /etc/sysctl.d",
    ),
    "processor-share-small": (
        "这里的一个进程只能使用 {processors} 个处理器，而一个 Broker 需要一整个。",
        "提高容器（--cpus）或服务单元（CPUQuota）的配额：每个 Broker 一个处理器，另加半个。",
    ),
    "zone-reclaim": (
        "系统先释放页缓存，然后才使用其他节点的内存（vm.zone_reclaim_mode={mode}）：消费者因此要从磁盘得到消息。",
        "设置：sysctl -w vm.zone_reclaim_mode=0，并写入 /etc/sysctl.d",
    ),
    "clock-not-synchronised": (
        "内核表明本机的时钟没有同步：消息的时间、延时和保留时间都以它为准。",
        "让它通过网络校时（NTP）：timedatectl set-ntp true，或 chrony；容器使用宿主机的时钟。",
    ),
    "disk-syncs-slow": (
        "{store} 所在的磁盘一次同步耗时 {took} 毫秒：使用 SYNC_FLUSH 时每次发送都要等待一次同步。",
        "查看还有什么在使用该磁盘（iostat -x 1）；让日志独占一块磁盘，使用 SSD 或带掉电保护缓存的磁盘。",
    ),
    "max-map-count-low": (
        "一个进程最多可有 {limit} 个内存映射（vm.max_map_count），而每个存储文件都占用一个。",
        "设置：sysctl -w vm.max_map_count=655360，并写入 /etc/sysctl.d",
    ),
    "swap-eager": (
        "系统倾向于使用交换空间（vm.swappiness={swappiness}）：Broker 急需的内容可能在磁盘上。",
        "设置：sysctl -w vm.swappiness=1，或关闭交换空间。",
    ),
    "transparent-huge-pages": (
        "透明大页始终开启：系统整理内存页时会使进程停顿。",
        "设置：echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    ),
    "little-memory": (
        "本机或其容器的内存为 {total} GiB：留给页缓存的很少，而消费者是从页缓存得到消息的。",
        "为 Broker 提供 8 GiB 或更多；tianzhou plan brokers 可估算负载所需：tianzhou plan brokers --rate 10000",
    ),
    "read-ahead-high": (
        "{store} 所在的磁盘每次读取都预读 {kilobytes} KiB：查找和冷读会挤占较新消息的内存。",
        "设置：echo 128 > /sys/block/DEVICE/queue/read_ahead_kb",
    ),
    "io-scheduler": (
        "{store} 所在的磁盘使用调度器 {scheduler}，它会把同步排在其他进程的读取之后。",
        "设置：echo mq-deadline > /sys/block/DEVICE/queue/scheduler（NVMe 用 none）",
    ),
    "little-disk-left": (
        "{store} 所在的磁盘已用 {ratio:.0%}：达到 75% 后消息会被提前删除，达到 90% 后拒绝发送。",
        "腾出空间，或让存储独占一块磁盘（storePathRootDir，serve --data）。",
    ),
    "store-filesystem": (
        "{store} 位于 {filesystem} 上，其同步和文件映射慢或不安全。",
        "将存储放在本地的 ext4 或 xfs 上。",
    ),
    "store-in-memory": (
        "{store} 位于内存中（{filesystem}）：机器重启后全部丢失。",
        "将存储放在磁盘上：tianzhou serve --data FOLDER",
    ),
    "store-read-only": (
        "{store} 所在的文件系统以只读方式挂载。",
        "在系统日志中查找磁盘错误，然后重新挂载。",
    ),
    "interpreter-not-optimised": (
        "Python 解释器编译时没有使用 PGO 优化；经过优化的快 10% 到 30%。",
        "使用系统或 python.org 的解释器，或以 --enable-optimizations 编译。",
    ),
    "interpreter-debug-build": (
        "Python 解释器是调试版本，比普通版本慢数倍。",
        "使用没有 --with-pydebug 编译的解释器。",
    ),
    "pure-mode": (
        "热点函数以 Python 运行：Broker 的处理能力只有编译版本的几分之一。",
        (
            "安装 gcc 和 python3-dev 后重新安装：pip install --force-reinstall --no-deps tianzhou（不能设置 "
            "TIANZHOU_PURE）。"
        ),
    ),
    # Access control
    "broker-open-to-all": (
        (
            "{broker} 在 {bind} 上监听且没有访问控制：能连通它的任何人都可以读写所有主题、创建主题和消费组、"
            "重置任何消费组的位点；如果开启了 enableRemoteAdmin，还可以删除主题和修改其配置。"
        ),
        (
            "开启访问控制（aclEnable=true，或 authenticationEnabled 和 authorizationEnabled）："
            "docs/howto/access-control.md；或让它只在本机监听（bindAddress=127.0.0.1）。"
        ),
    ),
    "name-server-open-to-all": (
        (
            "NameServer {address} 在其他地址上监听且没有访问控制：能连通它的任何人都可以注册 Broker，"
            "包括冒用离线 Broker 的名称，从而得到发给它的消息。"
        ),
        "在 NameServer 上开启访问控制，或只让 Broker 和客户端连通其端口：docs/howto/access-control.md",
    ),
    "remote-admin-open": (
        (
            "{server} 允许任何人删除主题、消费组和消息，修改其配置，去除写权限；RocketMQ "
            "的服务端没有访问控制时如此，我们的服务端在 enableRemoteAdmin=true 时如此。"
        ),
        "设置 enableRemoteAdmin=false 并在其本机上管理，或开启访问控制。",
    ),
    "connections-not-encrypted": (
        "{server} 在 {bind} 上接受没有 TLS 的连接：处于中间的人可以读取和修改消息。",
        "当所有客户端都支持 TLS 后，设置 tls.server.mode=enforcing：docs/howto/tls.md",
    ),
    "replication-port-open": (
        "{broker} 的 Broker 间端口对任何人开放：能连通它的人可以读取整个日志。",
        "列出其对端：replicationAllowedAddresses，或对其他人关闭该端口。",
    ),
    "secret-file-readable": (
        "本机的其他用户可以读取含有密钥的 {path}。",
        "只允许其所有者读取：chmod 600 {path}",
    ),
}

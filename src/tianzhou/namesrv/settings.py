"""Settings of a name server, under RocketMQ's keys (broker.md §2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tianzhou import limits
from tianzhou.access.settings import IGNORED as IGNORED_OF_ACCESS
from tianzhou.access.settings import AuthSettings
from tianzhou.metrics.settings import MetricsSettings
from tianzhou.settings import keyed

ALWAYS_BLACK_LISTED = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
"""Keys that no request may change, whatever `configBlackList` says (broker.md §2.1)."""

IGNORED: Final[dict[str, tuple[str, ...]]] = {
    "one event loop serves everything, there are no pools of threads or buffers to size": (
        "clientRequestThreadPoolNums", "clientRequestThreadPoolQueueCapacity", "defaultThreadPoolNums",
        "defaultThreadPoolQueueCapacity", "unRegisterBrokerQueueCapacity", "serverAsyncSemaphoreValue",
        "serverCallbackExecutorThreads", "serverNettyWorkerGroupEnable", "serverOnewaySemaphoreValue",
        "serverPooledByteBufAllocatorEnable", "serverSelectorThreads", "serverWorkerThreads", "useEpollNativeSelector",
    ),
    "sockets keep the system's sizes, and who does not read is always waited for": (
        "serverSocketBacklog", "serverSocketRcvBufSize", "serverSocketSndBufSize", "writeBufferHighWaterMark",
        "writeBufferLowWaterMark", "enableShutdownGracefully", "shutdownWaitTimeSeconds",
    ),
    "there is no controller": ("enableControllerInNamesrv",),
    **IGNORED_OF_ACCESS,
}  # fmt: skip
"""Accepted keys without effect, by reason; see `tianzhou.settings.ignored_lines`."""


@dataclass
class NamesrvSettings(AuthSettings, MetricsSettings):
    """Keys of `namesrv.conf`.

    The keys below the last comment are accepted, stored and shown, but have no effect; `IGNORED` has the reasons.
    """

    # Settings with an effect.
    bind_address: str = "0.0.0.0"  # Apache's default, for which its users' firewalls are configured
    listen_port: int = 9876
    kv_config_path: str = "~/namesrv/kvConfig.json"
    config_store_path: str = "~/namesrv/namesrv.properties"
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    scan_not_active_broker_interval: int = 5000
    support_acting_master: bool = False
    notify_min_broker_id_changed: bool = False
    enable_topic_list: bool = True
    enable_all_topic_list: bool = True
    delete_topic_with_broker_registration: bool = False
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    server_channel_max_idle_time_seconds: int = 120
    cluster_test: bool = False
    product_env_name: str = "center"
    # Tianzhou's own: limits of growth that peers can cause (tianzhou/limits.py, docs/reference/limits.md).
    max_connections: int = limits.CONNECTIONS.default
    max_connections_per_address: int = limits.ADDRESS_CONNECTIONS.default
    max_queues_per_topic: int = limits.QUEUES_OF_TOPIC.default
    max_topics: int = limits.TOPICS.default
    max_unread_reply_bytes: int = limits.UNREAD_BYTES.default
    max_held_request_bytes: int = limits.REQUEST_BYTES.default
    max_requests_per_connection: int = limits.CONNECTION_REQUESTS.default
    first_request_timeout_millis: int = limits.FIRST_FRAME.default
    max_brokers: int = limits.BROKERS.default
    max_filter_servers: int = limits.FILTER_SERVERS.default
    max_routes: int = limits.ROUTES.default
    max_queue_mappings: int = limits.MAPPINGS.default
    max_registration_bytes: int = limits.REGISTRATION_BYTES.default
    max_registrations_bytes: int = limits.REGISTRATIONS_BYTES.default
    max_kv_value_bytes: int = limits.KV_VALUE.default
    max_kv_entries: int = limits.KV_ENTRIES.default
    max_kv_bytes: int = limits.KV_BYTES.default
    log_levels: str = ""  # Tianzhou's own; see log_levels.py
    proxy_protocol_trusted: str = ""  # Tianzhou's own; see remoting/gates/peer_addresses.py
    enable_remote_admin: bool = False  # Tianzhou's own; see remoting/gates/admin_gate.py
    require_signed_lookups: bool = False  # Tianzhou's own; see access/needs.py, LOOKUPS
    metrics_prom_exporter_port: int = 5_556  # one below the port of a broker on the same machine

    # Accepted for compatibility with existing files and tools.
    client_request_thread_pool_nums: int = 8
    client_request_thread_pool_queue_capacity: int = 50_000
    default_thread_pool_nums: int = 16
    default_thread_pool_queue_capacity: int = 10_000
    un_register_broker_queue_capacity: int = keyed("unRegisterBrokerQueueCapacity", 3000)
    enable_controller_in_namesrv: bool = False
    enable_shutdown_gracefully: bool = False
    shutdown_wait_time_seconds: int = 30
    server_async_semaphore_value: int = 64
    server_callback_executor_threads: int = 0
    server_netty_worker_group_enable: bool = True
    server_oneway_semaphore_value: int = 256
    server_pooled_byte_buf_allocator_enable: bool = True
    server_selector_threads: int = 3
    server_socket_backlog: int = 1024
    server_socket_rcv_buf_size: int = 0
    server_socket_snd_buf_size: int = 0
    server_worker_threads: int = 8
    use_epoll_native_selector: bool = False
    write_buffer_high_water_mark: int = 0
    write_buffer_low_water_mark: int = 0

    @property
    def kv_config_file(self) -> Path:
        """Path of the KV configuration file."""
        return Path(self.kv_config_path).expanduser()

    @property
    def config_file(self) -> Path:
        """Path of the file of settings that requests have changed."""
        return Path(self.config_store_path).expanduser()

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that no request may change."""
        return ALWAYS_BLACK_LISTED | {key.strip() for key in self.config_black_list.split(";") if key.strip()}

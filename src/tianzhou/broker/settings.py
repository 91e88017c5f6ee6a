"""The broker's settings under RocketMQ's keys and defaults (broker.md §26); the store's are its own.

Comments mark keys that the broker does not use. They exist so that an existing broker.conf loads without warnings and
tools that read the configuration find every key.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field

from tianzhou import limits
from tianzhou.access.settings import AuthSettings
from tianzhou.metrics.settings import MetricsSettings
from tianzhou.settings import keyed, secret

INT_MAX = 2_147_483_647
LINGER_MICROS = 150
"""Default of `lingerMicros` for a broker in its own process; longer than a local client takes to send again."""


def _cores() -> int:
    return os.cpu_count() or 1


def _some_threads() -> int:
    return min(_cores(), 4)


def _many_threads() -> int:
    return 16 + 2 * _cores()


@dataclass
class BrokerSettings(AuthSettings, MetricsSettings):
    """All settings of broker.conf except the store's.

    Times are milliseconds unless the key says otherwise. `broker_ip1` empty means this machine's first address
    that is not loopback; `listen_port` 0 takes any free port.
    """

    # identity and network, §26.1
    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = field(default_factory=socket.gethostname)
    broker_id: int = 0
    namesrv_addr: str = field(default_factory=lambda: os.environ.get("NAMESRV_ADDR", ""))
    listen_port: int = 10911
    bind_address: str = "0.0.0.0"
    broker_ip1: str = keyed("brokerIP1", "")
    broker_ip2: str = keyed("brokerIP2", "")
    broker_permission: int = 6
    rocketmq_home: str = field(default_factory=lambda: os.environ.get("ROCKETMQ_HOME", ""))
    fetch_namesrv_addr_by_address_server: bool = False
    fetch_name_srv_addr_by_dns_lookup: bool = False
    fetch_namesrv_addr_interval: int = 10_000
    # system properties of the Java broker, taken from the file here
    namesrv_domain: str = keyed("rocketmq.namesrv.domain", "jmenv.tbsite.net")
    namesrv_domain_subgroup: str = keyed("rocketmq.namesrv.domain.subgroup", "nsaddr")
    update_name_server_addr_period: int = 120_000
    register_name_server_period: int = 30_000
    register_broker_timeout_mills: int = 24_000
    force_register: bool = True
    compressed_register: bool = False
    broker_heartbeat_interval: int = 1_000
    send_heartbeat_timeout_millis: int = 1_000
    broker_not_active_timeout_millis: int = 10_000
    sync_broker_member_group_period: int = 1_000
    enable_split_registration: bool = False
    split_registration_size: int = 800
    enable_single_topic_register: bool = False
    compatible_with_old_name_srv: bool = True
    region_id: str = "DefaultRegion"
    message_store_plug_in: str = ""
    config_black_list: str = "configBlackList;brokerConfigPath"
    isolate_log_enable: bool = False
    broker_config_path: str = ""

    # topics and groups, §26.2
    auto_create_topic_enable: bool = True
    default_topic_queue_nums: int = 8
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    enable_create_sys_group: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    trace_on: bool = True
    validate_system_topic_when_update_topic: bool = True
    enable_mixed_message_type: bool = False
    clear_retry_topic_when_delete_topic: bool = True
    use_static_subscription: bool = False
    forward_timeout: int = 3_000

    # executors, §26.3: one event loop serves everything; these keys are saved, not used
    send_message_thread_pool_nums: int = field(default_factory=_some_threads)
    send_thread_pool_queue_capacity: int = 10_000
    put_message_future_thread_pool_nums: int = field(default_factory=_some_threads)
    put_thread_pool_queue_capacity: int = 10_000
    pull_message_thread_pool_nums: int = field(default_factory=_many_threads)
    pull_thread_pool_queue_capacity: int = 100_000
    lite_pull_message_thread_pool_nums: int = field(default_factory=_many_threads)
    lite_pull_thread_pool_queue_capacity: int = 100_000
    ack_message_thread_pool_nums: int = 16
    ack_thread_pool_queue_capacity: int = 100_000
    process_reply_message_thread_pool_nums: int = field(default_factory=_many_threads)
    reply_thread_pool_queue_capacity: int = 10_000
    query_message_thread_pool_nums: int = field(default_factory=lambda: 8 + _cores())
    query_thread_pool_queue_capacity: int = 20_000
    admin_broker_thread_pool_nums: int = 16
    admin_broker_thread_pool_queue_capacity: int = 10_000
    client_manage_thread_pool_nums: int = 32
    client_manager_thread_pool_queue_capacity: int = 1_000_000
    consumer_manage_thread_pool_nums: int = 32
    consumer_manager_thread_pool_queue_capacity: int = 1_000_000
    load_balance_processor_thread_pool_nums: int = 32
    load_balance_thread_pool_queue_capacity: int = 100_000
    heartbeat_thread_pool_nums: int = field(default_factory=lambda: min(32, _cores()))
    heartbeat_thread_pool_queue_capacity: int = 50_000
    end_transaction_thread_pool_nums: int = field(default_factory=lambda: max(8 + 2 * _cores(), 4 * _some_threads()))
    end_transaction_pool_queue_capacity: int = 100_000
    recover_thread_pool_nums: int = 32
    recover_concurrently: bool = False

    # flow control, §26.4
    broker_fast_failure_enable: bool = True
    wait_time_mills_in_send_queue: int = 200
    wait_time_mills_in_pull_queue: int = 5_000
    wait_time_mills_in_lite_pull_queue: int = 5_000
    wait_time_mills_in_heartbeat_queue: int = 31_000
    wait_time_mills_in_transaction_queue: int = 3_000
    wait_time_mills_in_ack_queue: int = 3_000
    wait_time_mills_in_admin_broker_queue: int = 5_000
    start_accept_send_request_time_stamp: int = 0
    enable_net_work_flow_control: bool = False
    disable_consume_if_consumer_read_slowly: bool = False
    consumer_fallbehind_threshold: int = 17_179_869_184
    cold_ctr_strategy_enable: bool = False
    use_pid_cold_ctr_strategy: bool = keyed("usePIDColdCtrStrategy", True)
    cg_cold_read_threshold: int = 3_145_728
    global_cold_read_threshold: int = 104_857_600

    # sending and pulling, §26.5
    async_send_enable: bool = True
    store_reply_message_enable: bool = True
    reject_transaction_message: bool = False
    recall_message_enable: bool = False
    allow_recall_when_broker_not_writeable: bool = True
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1_000
    transfer_msg_by_heap: bool = True
    slave_read_enable: bool = False
    lite_pull_message_enable: bool = True
    reject_pull_consumer_enable: bool = False
    notify_consumer_ids_changed_enable: bool = True
    real_time_notify_consumer_change: bool = True
    use_server_side_reset_offset: bool = True
    lock_in_strict_mode: bool = False
    enable_broadcast_offset_store: bool = True
    broadcast_offset_expire_second: int = 120
    broadcast_offset_expire_max_second: int = 300
    flush_consumer_offset_interval: int = 5_000
    flush_consumer_offset_history_interval: int = 60_000
    consumer_offset_update_version_step: int = 500
    delay_offset_update_version_step: int = 200
    channel_expired_timeout: int = 120_000
    subscription_expired_timeout: int = 600_000
    enable_fast_channel_event_process: bool = False
    print_channel_groups: bool = False
    print_channel_groups_min_num: int = 5
    enable_register_producer: bool = True
    server_load_balancer_enable: bool = True
    default_message_request_mode: str = "PULL"
    default_pop_share_queue_num: int = -1
    load_balance_poll_name_server_interval: int = 30_000
    config_manager_version: str = "v1"

    # filtering, §26.6
    enable_property_filter: bool = False
    enable_calc_filter_bit_map: bool = False
    expect_consumer_num_use_filter: int = 32
    max_error_rate_of_bloom_filter: int = 20
    filter_data_clean_time_span: int = 86_400_000
    filter_support_retry: bool = False
    estimate_accumulation: bool = True

    # transactions, §26.7
    transaction_time_out: int = 6_000
    transaction_check_max: int = 15
    transaction_check_interval: int = 30_000
    transaction_metric_flush_interval: int = 3_000
    transaction_op_msg_max_size: int = 4_096
    transaction_op_batch_interval: int = 3_000

    # POP, §26.8
    pop_polling_size: int = 1_024
    pop_polling_map_size: int = 100_000
    max_pop_polling_size: int = 100_000
    revive_queue_num: int = 8
    revive_interval: int = 1_000
    revive_max_slow: int = 3
    revive_scan_time: int = 10_000
    enable_skip_long_awaiting_ack: bool = False
    revive_ack_wait_ms: int = 180_000
    enable_pop_log: bool = False
    enable_pop_buffer_merge: bool = False
    pop_ck_stay_buffer_time: int = 10_000
    pop_ck_stay_buffer_time_out: int = 3_000
    pop_ck_max_buffer_size: int = 200_000
    pop_ck_offset_max_queue_size: int = 20_000
    enable_pop_batch_ack: bool = False
    pop_long_polling_force_notify_interval: int = 800
    init_pop_offset_by_check_msg_in_mem: bool = True
    enable_retry_topic_v2: bool = False
    retrieve_message_from_pop_retry_topic_v1: bool = True
    pop_from_retry_probability: int = 20
    pop_response_return_actual_retry_topic: bool = False
    enable_pop_message_threshold: bool = False
    pop_inflight_message_threshold: int = 10_000
    skip_when_ck_re_put_reach_max_times: bool = keyed("skipWhenCKRePutReachMaxTimes", False)
    append_ack_async: bool = False
    append_ck_async: bool = False
    pop_consumer_kv_service_init: bool = keyed("popConsumerKVServiceInit", False)
    pop_consumer_kv_service_enable: bool = keyed("popConsumerKVServiceEnable", False)
    pop_consumer_kv_service_log: bool = keyed("popConsumerKVServiceLog", False)
    pop_revive_max_return_size_per_read: int = 16_384
    pop_revive_max_attempt_times: int = 16
    enable_notify_before_pop_calculate_lag: bool = True
    enable_notify_after_pop_order_lock_release: bool = True

    # high availability, §26.9
    enable_slave_acting_master: bool = False
    enable_remote_escape: bool = False
    skip_pre_online: bool = False
    enable_controller_mode: bool = False
    controller_addr: str = ""
    fetch_controller_addr_by_dns_lookup: bool = False
    sync_broker_metadata_period: int = 5_000
    check_sync_state_set_period: int = 5_000
    sync_controller_metadata_period: int = 10_000
    controller_heart_beat_timeout_mills: int = 10_000
    broker_election_priority: int = INT_MAX

    # statistics, §26.10; the metrics' are of `MetricsSettings`
    account_stats_enable: bool = True
    account_stats_print_zero_values: bool = True
    enable_detail_stat: bool = True
    auto_delete_unused_stats: bool = True
    max_stats_idle_time_in_minutes: int = -1
    enable_lmq_stats: bool = False

    # connections, §26.11: of the server, then of the broker's own client
    server_worker_threads: int = 8
    server_callback_executor_threads: int = 0
    server_selector_threads: int = 3
    server_oneway_semaphore_value: int = 256
    server_async_semaphore_value: int = 64
    server_channel_max_idle_time_seconds: int = 120
    server_socket_snd_buf_size: int = 0
    server_socket_rcv_buf_size: int = 0
    write_buffer_high_water_mark: int = 0
    write_buffer_low_water_mark: int = 0
    server_socket_backlog: int = 1_024
    server_pooled_byte_buf_allocator_enable: bool = True
    use_epoll_native_selector: bool = False
    client_worker_threads: int = 4
    connect_timeout_millis: int = 3_000
    channel_not_active_interval: int = 60_000
    client_channel_max_idle_time_seconds: int = 120
    client_oneway_semaphore_value: int = 65_535
    client_async_semaphore_value: int = 65_535

    # further keys of Apache's broker; stored, not used
    clean_offline_broker_interval: int = 30_000
    client_callback_executor_threads: int = field(default_factory=_cores)
    client_close_socket_if_timeout: bool = True
    client_pooled_byte_buf_allocator_enable: bool = False
    client_socket_rcv_buf_size: int = 0
    client_socket_snd_buf_size: int = 0
    commercial_base_count: int = 1
    commercial_size_per_msg: int = 4_096
    disable_callback_executor: bool = False
    disable_netty_worker_group: bool = False
    enable_clean_expired_offset: bool = False
    enable_reconnect_for_go_away: bool = True
    enable_schedule_message_stats: bool = True
    enable_shutdown_gracefully: bool = False
    high_speed_mode: bool = False
    is_broker_container: bool = False
    is_in_broker_container: bool = False
    is_scan_available_name_srv: bool = True
    max_reconnect_interval_time_seconds: int = 60
    max_topic_length: int = 127
    pop_consumer_fs_service_init: bool = keyed("popConsumerFSServiceInit", True)
    pull_batch_max_message_count: int = 160
    server_netty_worker_group_enable: bool = True
    shutdown_wait_time_seconds: int = 30
    socks_proxy_config: str = secret("{}")
    use_tls: bool = keyed("useTLS", False)
    bottom_most_compression_type_for_consume_queue_store: str = "zstd"
    clean_rocks_db_dirty_cq_interval_min: int = keyed("cleanRocksDBDirtyCQIntervalMin", 60)
    debug_lock_enable: bool = False
    dispatch_from_sender_thread: bool = False
    enable_rocks_db_log: bool = keyed("enableRocksDBLog", False)
    max_async_put_message_requests: int = 5_000
    max_slave_resend_length: int = 268_435_456
    mem_table_flush_interval_ms: int = 3_600_000
    real_time_persist_rocks_db_config: bool = keyed("realTimePersistRocksDBConfig", True)
    rocksdb_compression_type: str = "lz4"
    rocksdb_cq_double_write_enable: bool = keyed("rocksdbCQDoubleWriteEnable", False)
    rocksdb_flush_wal_frequency: int = 1_024
    rocksdb_wal_file_rolling_threshold: int = 1_073_741_824
    search_bcq_by_cache_enable: bool = True
    stat_rocks_db_cq_interval_sec: int = keyed("statRocksDBCQIntervalSec", 10)
    timer_enable_disruptor: bool = False
    timer_intercept_delay_level: bool = False
    timer_progress_log_interval_ms: int = 10_000

    # Tianzhou's own: how long staged messages wait for a decision before their coordinator is queried, and how long the
    # last batch of a writer is remembered after it was last heard of (docs/adr/0006)
    staged_message_time_out: int = 21_600_000
    staged_writer_reserved_days: int = 30
    # Tianzhou's own: bounds on memory and tables that peers can fill (tianzhou/limits.py, docs/reference/limits.md)
    max_connections: int = limits.CONNECTIONS.default
    max_connections_per_address: int = limits.ADDRESS_CONNECTIONS.default
    max_queues_per_topic: int = limits.QUEUES_OF_TOPIC.default
    max_filter_expression_length: int = limits.FILTER_LENGTH.default
    max_json_body_size: int = limits.JSON_SIZE.default
    max_heartbeat_size: int = limits.HEARTBEAT_SIZE.default
    max_groups_per_heartbeat: int = limits.HEARTBEAT_GROUPS.default
    max_subscriptions_per_group: int = limits.GROUP_SUBSCRIPTIONS.default
    max_topics: int = limits.TOPICS.default
    max_unread_reply_bytes: int = limits.UNREAD_BYTES.default
    max_held_request_bytes: int = limits.REQUEST_BYTES.default
    max_requests_per_connection: int = limits.CONNECTION_REQUESTS.default
    first_request_timeout_millis: int = limits.FIRST_FRAME.default
    max_queues: int = limits.QUEUES.default
    max_groups: int = limits.GROUPS.default
    max_forbidden_topics: int = limits.FORBIDDEN.default
    max_members_per_group: int = limits.MEMBERS_OF_GROUP.default
    max_members: int = limits.MEMBERS.default
    max_groups_per_connection: int = limits.GROUPS_OF_CLIENT.default
    max_subscription_characters: int = limits.SUBSCRIPTIONS.default
    max_group_config_bytes: int = limits.GROUP_CONFIG.default
    max_group_configs_bytes: int = limits.GROUP_CONFIGS.default
    max_consumer_offsets: int = limits.OFFSETS.default
    max_broadcast_offsets: int = limits.BROADCAST_OFFSETS.default
    max_consumer_filters: int = limits.FILTERS.default
    max_consumer_filter_characters: int = limits.FILTER_TEXT.default
    max_figures: int = limits.FIGURES.default
    max_locks_per_group: int = limits.LOCKS_OF_GROUP.default
    max_locks: int = limits.LOCKS.default
    max_long_polls: int = limits.LONG_POLLS.default
    max_long_polls_per_connection: int = limits.CONNECTION_POLLS.default
    max_requests_per_client: int = limits.CLIENT_REQUESTS.default
    max_half_messages: int = limits.HALF_MESSAGES.default
    max_staged_writers: int = limits.STAGED_WRITERS.default
    max_staged_units: int = limits.STAGED_UNITS.default
    max_send_limits: int = limits.SEND_LIMITS.default
    max_send_buckets: int = limits.SEND_BUCKETS.default
    max_cold_read_limits: int = limits.COLD_READ_GROUPS.default
    # Tianzhou's own: whether requests that can lose messages or stop the service are served from other machines, too
    # (see remoting.gates.admin_gate)
    enable_remote_admin: bool = False
    # Tianzhou's own: load balancers whose PROXY header is trusted (remoting.gates.peer_addresses)
    log_levels: str = ""  # Tianzhou's own; see log_levels.py
    proxy_protocol_trusted: str = ""
    # Tianzhou's own: addresses and CIDR ranges, by commas, that may connect to the HA port and to the port of a
    # group's members; empty allows all (replication/allowed_addresses.py)
    replication_allowed_addresses: str = ""
    # Tianzhou's own: µs for which the loop polls for the next request of a client that sends one at a time; 0 for
    # never, which is right where other threads share the process (remoting/busy_poll.py)
    linger_micros: int = LINGER_MICROS

    @property
    def namesrv_addresses(self) -> list[str]:
        """Addresses of the name servers, each `host:port`."""
        return [address.strip() for address in self.namesrv_addr.split(";") if address.strip()]

    @property
    def readable(self) -> bool:
        """Whether the broker's permission allows reads."""
        return bool(self.broker_permission & 4)

    @property
    def writable(self) -> bool:
        """Whether the broker's permission allows writes."""
        return bool(self.broker_permission & 2)

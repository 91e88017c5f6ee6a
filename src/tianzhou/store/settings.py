"""Settings of the store, under RocketMQ's keys and defaults (store.md §20)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tianzhou.file_modes import parse_mode
from tianzhou.limits import BODY_BYTES
from tianzhou.settings import formerly, keyed

_HOME_STORE: Final = str(Path.home() / "store")
SHORTEST_INTERVAL_MS: Final = 10
"""Minimum interval of periodic work in ms, whatever is configured."""
_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delay of each level in ms, level 1 first.

    Raises:
        ValueError: a level is not a whole number followed by s, m, h or d.
    """
    levels = []
    for item in text.split():
        if item[-1] not in _UNITS or not re.fullmatch("[0-9]{1,9}", item[:-1]):
            raise ValueError(f"messageDelayLevel={text!r}: level {item!r} is not a number followed by s, m, h or d")
        levels.append(int(item[:-1]) * _UNITS[item[-1]])
    return tuple(levels)


def parse_hours(text: str) -> frozenset[int]:
    """Return the hours of `deleteWhen`: `04`, or several joined by `;`.

    Raises:
        ValueError: a part is no hour.
    """
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not all(part.isascii() and part.isdigit() and int(part) < 24 for part in parts):
        raise ValueError(f"deleteWhen={text}: expected hours from 00 to 23, several joined by ';'")
    return frozenset(map(int, parts))


def parse_peers(text: str) -> dict[str, str]:
    """Return host and port of each member of a DLedger group, by its id, from `dLegerPeers` (broker.md §19.1).

    Raises:
        ValueError: the text is not of the form `n0-host:port;n1-host:port;…`.
    """
    peers: dict[str, str] = {}
    for item in (part.strip() for part in text.split(";")):
        if not item:
            continue
        name, _, address = item.partition("-")
        host, _, port = address.rpartition(":")
        if not is_member_id(name) or not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
            raise ValueError(f"dLegerPeers={text}: {item!r} is no member; expected n0-host:port;n1-host:port;…")
        if name in peers:
            raise ValueError(f"dLegerPeers={text}: {name} is there twice; give each member an id of its own")
        if address in peers.values():
            raise ValueError(f"dLegerPeers={text}: {address} is there twice; give each member an address of its own")
        peers[name] = address
    return peers


def _check_address(key: str, text: str) -> None:
    """Reject a value that is no `host:port`.

    Raises:
        ValueError: the text is no `host:port`; the error names key and value.
    """
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
        raise ValueError(f"{key}={text}: expected host:port, as in 10.0.0.1:10912")


def is_member_id(text: str) -> bool:
    """Whether a text can be the id of a DLedger group's member: a letter and a number, which sets its brokerId."""
    return re.fullmatch("[a-zA-Z][0-9]{1,9}", text) is not None


def _paths(text: str) -> list[Path]:
    return [Path(part.strip()) for part in text.split(",") if part.strip()]


@dataclass
class StoreSettings:
    """Every key of store.md §20. Durations are ms and sizes bytes unless noted.

    Raises:
        ValueError: a value cannot work; the text has the key, the value and the accepted values.
    """

    # Paths
    store_path_root_dir: str = _HOME_STORE  # root of the store
    store_path_commit_log: str = ""  # segment directories, comma-joined; empty: root/commitlog
    read_only_commit_log_store_paths: str = ""  # directories that are only read
    store_path_d_ledger_commit_log: str = ""
    store_path_epoch_file: str = ""
    store_path_broker_identity: str = ""
    store_file_mode: str = "0600"  # permissions of new files; folders may be entered by who may read them

    # Segments
    mapped_file_size_commit_log: int = 1_073_741_824  # bytes of a commit-log segment
    mapped_file_size_consume_queue: int = 6_000_000  # bytes of a queue segment, rounded up to a multiple of 20
    mapper_file_size_batch_consume_queue: int = 13_800_000
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = 50_331_648
    bit_map_length_consume_queue_ext: int = 64
    mapped_file_swap_enable: bool = True
    commit_log_swap_map_interval: int = 3_600_000
    commit_log_force_swap_map_interval: int = 43_200_000
    commit_log_swap_map_reserve_file_num: int = 100
    logic_queue_swap_map_interval: int = 3_600_000
    logic_queue_force_swap_map_interval: int = 43_200_000
    logic_queue_swap_map_reserve_file_num: int = 20
    clean_swaped_map_interval: int = 300_000
    data_read_ahead_enable: bool = True
    warm_maped_file_enable: bool = False
    flush_least_pages_when_warm_maped_file: int = 4096

    # Puts
    max_message_size: int = BODY_BYTES.default  # bytes of a body
    max_filter_message_size: int = 16_000  # bytes of queue units looked at per read
    use_reentrant_lock_when_put_message: bool = True
    use_abs_lock: bool = keyed("useABSLock", False)
    topic_queue_lock_num: int = 32
    spin_lock_collision_retreat_optimal_degree: int = 1000
    put_message_timeout: int = 8000  # ms
    os_page_cache_busy_time_out_mills: int = 1000  # ms
    auto_message_version_on_topic_len: bool = True  # record version 2 for topics above 127 characters
    enabled_append_prop_crc: bool = keyed("enabledAppendPropCRC", False)  # CRC of the whole record as a property
    force_verify_prop_crc: bool = keyed("forceVerifyPropCRC", False)

    # Flush
    flush_disk_type: str = "ASYNC_FLUSH"  # or SYNC_FLUSH: acknowledge after the disk has it
    flush_interval_commit_log: int = 500  # ms
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000  # ms
    flush_commit_log_timed: bool = True
    wake_flush_when_put_message: bool = False
    wake_commit_when_put_message: bool = True
    sync_flush_timeout: int = 5000  # ms
    commit_interval_commit_log: int = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    fast_fail_if_no_buffer_in_store_pool: bool = False
    flush_interval_consume_queue: int = 1000  # ms
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000  # ms
    put_consume_queue_data_by_file_channel: bool = True

    # Retention
    clean_resource_interval: int = 10_000  # ms
    delete_when: str = "04"  # local hours, joined by ;
    file_reserved_time: int = 72  # hours
    delete_commit_log_files_interval: int = 100  # ms
    delete_consume_queue_files_interval: int = 100  # ms
    delete_file_batch_max: int = 10
    destroy_maped_file_interval_forcibly: int = 120_000  # ms
    redelete_hanged_file_interval: int = 120_000  # ms
    disk_max_used_space_ratio: int = 75  # percent
    disk_space_clean_forcibly_ratio: int = 85  # percent
    disk_space_warning_level_ratio: int = 90  # percent
    disk_space_enough_free_bytes: int = 0  # ours: a disk with so much free is not full, whatever the two above; 0: off
    clean_file_forcibly_enable: bool = True
    replicas_per_disk_partition: int = 1
    logical_disk_space_clean_forcibly_threshold: float = 0.8

    # Recovery and dispatch
    check_crc_on_recover: bool = keyed("checkCRCOnRecover", True)
    check_store_on_start: bool = False  # read and check everything before serving, also after a clean stop
    duplication_enable: bool = False
    recheck_reput_offset_from_cq: bool = False
    read_un_committed: bool = False
    enable_build_consume_queue_concurrently: bool = False
    batch_dispatch_request_thread_pool_nums: int = 16
    recover_concurrently: bool = False
    max_recovery_commitlog_files: int = 30
    dispatch_cq_threads: int = 10
    dispatch_cq_cache_num: int = 4096
    enable_async_reput: bool = True
    max_batch_delete_files_num: int = 50
    put_msg_index_hight_water: int = 600_000

    # Index
    message_index_enable: bool = True
    message_index_safe: bool = False
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    max_msgs_num_batch: int = 64  # records per query
    default_query_max_num: int = 32

    # Reads
    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 65_536
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40  # percent of the machine's memory
    access_message_in_memory_hot_ratio: int = 26
    travel_cq_file_num_when_get_message: int = 1  # queue segments per read while nothing matches
    disk_fall_recorded: bool = True
    offset_check_in_slave: bool = False
    max_consume_queue_scan: int = 20_000
    sample_count_threshold: int = 5000
    long_polling_enable: bool = True

    # Delay levels
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"  # levels 1, 2, …
    flush_delay_offset_interval: int = 10_000  # ms
    enable_schedule_async_deliver: bool = False
    schedule_async_deliver_max_pending_limit: int = 2000
    schedule_async_deliver_max_resend_num2_blocked: int = 3

    # Light queues
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: int = 20_000

    # Timer
    timer_wheel_enable: bool = True
    timer_precision_ms: int = 1000
    timer_roll_window_slot: int = 172_800
    timer_max_delay_sec: int = 259_200
    mapped_file_size_timer_log: int = 104_857_600
    timer_flush_interval_ms: int = 1000
    timer_get_message_thread_num: int = 3
    timer_put_message_thread_num: int = 3
    timer_congest_num_each_slot: int = 2_147_483_647
    timer_stop_enqueue: bool = False
    timer_stop_dequeue: bool = False
    timer_skip_unknown_error: bool = False
    timer_enable_retry_until_success: bool = False
    timer_warm_enable: bool = False
    timer_check_metrics_when: str = "05"
    timer_enable_check_metrics: bool = True
    timer_metric_small_threshold: int = 1_000_000
    disappear_time_after_start: int = -1

    # Compaction and other engines
    enable_compaction: bool = True
    compaction_mapped_file_size: int = 104_857_600
    compaction_cq_mapped_file_size: int = 10_485_760
    compaction_schedule_internal: int = 900_000
    compaction_thread_num: int = 6
    max_offset_map_size: int = 104_857_600
    store_type: str = "default"
    correct_logic_min_offset_force_interval: int = 300_000
    correct_logic_min_offset_sleep_interval: int = 1

    # Replication
    ha_listen_port: int = 10_912
    ha_master_address: str = ""  # host:port of the master's HA port; a slave with it ignores what name servers answer
    broker_role: str = "ASYNC_MASTER"  # or SYNC_MASTER, SLAVE
    ha_send_heartbeat_interval: int = 5000
    ha_housekeeping_interval: int = 20_000
    ha_transfer_batch_size: int = 32_768
    ha_max_gap_not_in_sync: int = formerly("haSlaveFallbehindMax", 268_435_456)
    ha_slave_cut_max: int = 1_073_741_824
    ha_slave_cut_keep_max: int = 1_073_741_824
    slave_timeout: int = 3000
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    total_replicas: int = 1
    all_ack_in_sync_state_set: bool = False
    enable_auto_in_sync_replicas: bool = False
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: int = 104_857_600
    ha_max_time_slave_not_catchup: int = 15_000
    sync_master_flush_offset_when_startup: bool = False
    max_checksum_range: int = 1_073_741_824
    sync_from_last_file: bool = False
    async_learner: bool = False
    durability: str = ""  # ours: zero-loss sets what keeps an acknowledged message
    enable_d_leger_commit_log: bool = False
    d_leger_group: str = ""
    d_leger_peers: str = ""
    d_leger_self_id: str = ""
    preferred_leader_id: str = ""
    enable_batch_push: bool = False
    d_leger_heart_beat_time_interval_ms: int = 2000
    d_leger_max_heart_beat_leak: int = 3
    d_leger_min_vote_interval_ms: int = 300
    d_leger_max_vote_interval_ms: int = 1000
    cold_data_flow_control_enable: bool = False
    cold_data_scan_enable: bool = False
    timer_cold_data_check_interval_ms: int = 60_000
    sample_steps: int = 32

    def __post_init__(self) -> None:
        """Reject values that could only fail later."""
        if self.flush_disk_type not in {"ASYNC_FLUSH", "SYNC_FLUSH"}:
            raise ValueError(f"flushDiskType={self.flush_disk_type}: expected ASYNC_FLUSH or SYNC_FLUSH")
        if self.broker_role not in {"ASYNC_MASTER", "SYNC_MASTER", "SLAVE"}:
            raise ValueError(f"brokerRole={self.broker_role}: expected ASYNC_MASTER, SYNC_MASTER or SLAVE")
        for key, value, least in (
            ("mappedFileSizeCommitLog", self.mapped_file_size_commit_log, 1024),
            ("mappedFileSizeConsumeQueue", self.mapped_file_size_consume_queue, 1),
            ("mapperFileSizeBatchConsumeQueue", self.mapper_file_size_batch_consume_queue, 1),
            ("mappedFileSizeConsumeQueueExt", self.mapped_file_size_consume_queue_ext, 64),
            ("maxHashSlotNum", self.max_hash_slot_num, 1),
            ("maxIndexNum", self.max_index_num, 2),
            ("maxMessageSize", self.max_message_size, 10),
            ("diskSpaceEnoughFreeBytes", self.disk_space_enough_free_bytes, 0),
        ):
            if value < least:
                raise ValueError(f"{key}={value}: must be at least {least}")
        if self.ha_master_address:
            _check_address("haMasterAddress", self.ha_master_address)
        parse_delay_levels(self.message_delay_level)
        parse_hours(self.delete_when)
        parse_mode(self.store_file_mode)
        if self.enable_d_leger_commit_log:
            self._check_group()

    def _check_group(self) -> None:
        """Reject a DLedger group that cannot work."""
        if not self.d_leger_group.strip():
            raise ValueError("dLegerGroup is not set, enableDLegerCommitLog=true; name the group")
        peers = parse_peers(self.d_leger_peers)
        if not peers:
            raise ValueError(
                "dLegerPeers is not set, enableDLegerCommitLog=true; name all members: n0-host:port;n1-host:port;…"
            )
        if self.d_leger_self_id not in peers:
            raise ValueError(
                f"dLegerSelfId={self.d_leger_self_id}: no member of dLegerPeers={self.d_leger_peers}; "
                f"expected one of {', '.join(peers)}"
            )
        for name in self.preferred_leaders:
            if name not in peers:
                raise ValueError(
                    f"preferredLeaderId={self.preferred_leader_id}: {name} is no member of "
                    f"dLegerPeers={self.d_leger_peers}; expected one of {', '.join(peers)}"
                )
        if self.broker_role == "SLAVE":
            raise ValueError(
                "brokerRole=SLAVE, enableDLegerCommitLog=true: the group decides who is master; leave brokerRole out"
            )

    @property
    def cuts_nothing(self) -> bool:
        """Whether a slave with these settings never cuts its log by itself: its end may have the only copies."""
        return self.durability == "zero-loss"

    @property
    def hides_uncopied(self) -> bool:
        """Whether consumers read a message only after a slave has it: at the master of a pair with zero loss.

        The members of a DLedger group always show committed messages only.
        """
        pair = self.broker_role == "SYNC_MASTER" and not self.enable_d_leger_commit_log
        return pair and self.sync_flush and self.durability == "zero-loss"

    @property
    def may_follow(self) -> bool:
        """Whether this store may copy another broker's log: a slave's store, or the store of a group's member."""
        return self.broker_role == "SLAVE" or self.enable_d_leger_commit_log

    @property
    def preferred_leaders(self) -> tuple[str, ...]:
        """Ids of the members that should lead, the most preferred first."""
        return tuple(part.strip() for part in self.preferred_leader_id.split(";") if part.strip())

    @property
    def entry_folder(self) -> Path:
        """Folder of a DLedger group's member for its files beside the log's segments."""
        return self.root / f"dledger-{self.d_leger_self_id}"

    @property
    def root(self) -> Path:
        """The root directory."""
        return Path(self.store_path_root_dir)

    @property
    def commit_log_directories(self) -> list[Path]:
        """Directories for new commit-log segments."""
        if self.enable_d_leger_commit_log:
            return _paths(self.store_path_d_ledger_commit_log) or [self.entry_folder / "data"]
        return self.plain_log_directories

    @property
    def plain_log_directories(self) -> list[Path]:
        """Directories of commit-log segments whose records are not in entries."""
        return _paths(self.store_path_commit_log) or [self.root / "commitlog"]

    @property
    def read_only_directories(self) -> list[Path]:
        """Directories whose commit-log segments are read, and not appended to."""
        named = _paths(self.read_only_commit_log_store_paths)
        return named + self.plain_log_directories if self.enable_d_leger_commit_log else named

    @property
    def queue_segment_size(self) -> int:
        """Bytes of a queue segment: a whole number of 20-byte units (store.md §5.1)."""
        return -(-self.mapped_file_size_consume_queue // 20) * 20

    @property
    def batch_queue_segment_size(self) -> int:
        """Bytes of a segment of a BatchCQ queue: a whole number of 46-byte units (store.md §6)."""
        return -(-self.mapper_file_size_batch_consume_queue // 46) * 46

    @property
    def index_file_size(self) -> int:
        """Bytes of an index file (store.md §8.1)."""
        return 40 + 4 * self.max_hash_slot_num + 20 * self.max_index_num

    @property
    def sync_flush(self) -> bool:
        """Whether messages are acknowledged, and shown to consumers, only after they are synced."""
        return self.flush_disk_type == "SYNC_FLUSH"

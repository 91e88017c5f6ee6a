"""Sub-commands for what neither Tianzhou nor this tool has: each says so, and what to do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tianzhou.cli.mqadmin.answers import Answer
from tianzhou.cli.mqadmin.subcommand import Option, Subcommand, Values, Work
from tianzhou.cli.mqadmin.targets import NAME_SERVERS
from tianzhou.errors import ClientError

if TYPE_CHECKING:
    from tianzhou.admin import Admin


def _words(why: str) -> Work:
    async def work(admin: Admin, values: Values) -> Answer:
        del admin, values
        raise ClientError(why)

    return work


def _command(name: str, summary: str, example: str, why: str, *options: Option, one_of: Any = ()) -> Subcommand:
    return Subcommand(name, summary, example, _words(f"{name}: {why}"), options, one_of, remark=why, alone=True)


_STATIC = (
    "static topics are of RocketMQ 5 and not served here: make a plain topic with updateTopic, or use Apache's mqadmin "
    "for a cluster of Apache's"
)
_ROCKSDB = (
    "the files are RocksDB's, which neither Tianzhou's store nor this tool uses: exportMetadata writes topics and "
    "groups as JSON, and Apache's mqadmin reads RocksDB"
)
_MAPPING = (
    Option("t", "topic", "The topic.", required=True),
    Option("b", "brokers", "Names of brokers, joined by commas."),
    Option("c", "clusters", "Clusters, joined by commas."),
    Option("mf", "mapFile", "A file with the mapping."),
    Option("fr", "forceReplace", "true: in place of a mapping that is there."),
)
_FILES = (
    Option("t", "configType", "topics, subscriptionGroups or consumerOffsets."),
    Option("j", "jsonEnable", "true: as JSON."),
)
COMMANDS = (
    _command(
        "updateStaticTopic",
        "Create a static topic of RocketMQ 5; not served here.",
        "-t orders -b broker-a -qn 8",
        _STATIC,
        *_MAPPING,
        Option("qn", "totalQueueNum", "How many queues it has.", required=True),
        one_of=("brokers", "clusters"),
    ),
    _command(
        "remappingStaticTopic",
        "Move the queues of a static topic; not served here.",
        "-t orders -b broker-b",
        _STATIC,
        *_MAPPING,
        one_of=("brokers", "clusters"),
    ),
    _command(
        "exportMetadataInRocksDB",
        "Read topics and groups from RocksDB; not done here.",
        "-p /data/config/topics -t topics",
        _ROCKSDB,
        Option("p", "path", "The folder.", required=True),
        Option("t", "configType", "topics, subscriptionGroups or consumerOffsets.", required=True),
        *_FILES[1:],
    ),
    _command(
        "rocksDBConfigToJson",
        "Read settings from RocksDB, or have brokers write theirs; not done here.",
        "-p /data/config/topics -t topics",
        _ROCKSDB,
        Option("p", "configPath", "The folder."),
        Option("e", "exportFile", "The file that is written."),
        Option("b", "brokerAddr", "One broker, host:port."),
        Option("c", "cluster", "A cluster."),
        NAME_SERVERS,
        *_FILES,
    ),
)

"""Wrong inputs at every interface and their answers: the rows of docs/reference/bad-input.md.

`answer` is the printed text; `…` matches text that differs from run to run. This file has no tests: test_bad_input.py
and tests/spark/test_spark_bad_input.py run the rows, and `python tests/fault/bad_input_rows.py` prints the reference
page.
"""

from __future__ import annotations

import re
import shlex
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

FAILED = 1
USAGE = 2
BODY_LIMIT = 4_194_304


@dataclass(frozen=True)
class Row:
    """A wrong input and its answer."""

    what: str
    answer: str
    code: int = USAGE

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return a pattern for the whole answer."""
        return re.compile(".*".join(re.escape(part) for part in self.answer.split("…")), re.DOTALL)


@dataclass(frozen=True)
class Command(Row):
    """A command line; `{…}` are the ports and names of the test's servers."""

    def argv(self, places: Mapping[str, object]) -> list[str]:
        """Return its arguments."""
        return [part.format_map(places) for part in shlex.split(self.what)]


@dataclass(frozen=True)
class Frame(Row):
    """Bytes sent to a server: the connection is closed and the reason is in the server's log."""

    data: bytes = b""
    to: str = "broker"


@dataclass(frozen=True)
class Request(Row):
    """A well-formed request with wrong contents; it gets an error code, and the connection stays open."""

    request: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    to: str = "broker"


@dataclass(frozen=True)
class SparkRow(Row):
    """Options of a batch read, a stream or a write; `what` is `read`, `stream` or `write`."""

    options: Mapping[str, str] = field(default_factory=dict)


NO_SERVER = "Start a server with `tianzhou serve`, or name the right one with -n host:port or NAMESRV_ADDR."
KV_FILE = "name a file of lines key=value"

COMMANDS = [
    # the server of the request
    Command(
        "topic list -n 127.0.0.1:{dead}",
        "no name server answers: cannot connect to 127.0.0.1:…: Connection refused\n" + NO_SERVER,
        FAILED,
    ),
    Command(
        "produce orders --body x -n 127.0.0.1:{dead}",
        "no name server answers: cannot connect to 127.0.0.1:…: Connection refused\n" + NO_SERVER,
        FAILED,
    ),
    Command(
        "consume orders -n 127.0.0.1:{dead}",
        "no name server answers: cannot connect to 127.0.0.1:…: Connection refused\n" + NO_SERVER,
        FAILED,
    ),
    Command(
        "consume orders --group billing -n 127.0.0.1:{dead}",
        "no name server answers: cannot connect to 127.0.0.1:…: Connection refused\n" + NO_SERVER,
        FAILED,
    ),
    Command(
        "group list -n 'two words:9876'",
        "name server address 'two words:9876' is no host:port, as in 127.0.0.1:9876: it contains a space; join several "
        "addresses with ';'",
    ),
    Command(
        "topic list -n 127.0.0.1",
        "name server address '127.0.0.1' is no host:port, as in 127.0.0.1:9876: it has no port",
    ),
    Command(
        "topic list -n 127.0.0.1:9876/",
        "name server address '127.0.0.1:9876/' is no host:port, as in 127.0.0.1:9876: it ends with /; leave that out",
    ),
    Command(
        "topic list -n 127.0.0.1:99999",
        "name server address '127.0.0.1:99999' is no host:port, as in 127.0.0.1:9876: port 99999 is not between 1 and "
        "65535",
    ),
    Command("produce orders --body x -n ''", "no name server address: …"),
    Command(
        "topic list -n 127.0.0.1:{broker}",
        "code 3…request type 206 not supported: this is a broker, and GET_ALL_TOPIC_LIST_FROM_NAMESERVER is served by a"
        " name server; give its address, as 127.0.0.1:… (a name server's port is 9876 as a rule, a broker's 10911)",
        FAILED,
    ),
    # TLS
    Command(
        "topic list -n 127.0.0.1:{tls_only}",
        "no name server answers: connection to 127.0.0.1:… was lost…\n"
        "Somebody answers there, and ends the connection. Does that server take TLS only? Give --tls.",
        FAILED,
    ),
    Command(
        "topic list -n 127.0.0.1:{tls_never} --tls",
        "no name server answers: cannot connect to 127.0.0.1:…: …; does the server speak TLS?",
        FAILED,
    ),
    Command(
        "serve --data new --brokers 0", "--brokers 0: expected a whole number from 1 to 64, or auto for one per core"
    ),
    Command(
        "serve --data new --brokers x", "--brokers x: expected a whole number from 1 to 64, or auto for one per core"
    ),
    Command(
        "serve --data new --brokers 65", "--brokers 65: expected a whole number from 1 to 64, or auto for one per core"
    ),
    Command(
        "serve --data new --replicas 2", "--replicas 2: expected 3 to 9; a group of 3 goes on while one member is away"
    ),
    Command("serve --data new --set durability=all", "durability=all: expected zero-loss, or remove the key …"),
    Command(
        "serve --data new --set durability=zero-loss",
        "durability=zero-loss: brokers of `tianzhou serve` have no copies; give --replicas 3, or see …",
    ),
    Command("plan brokers --rate 0", "rate=0: expected 1 to 1e+09"),
    Command(
        "plan brokers --rate 1 --measured missing",
        "--measured missing: No such file or directory; name a file that is there",
    ),
    Command(
        "prove orders --acked missing",
        "--acked missing: No such file or directory; name a file of unique keys, one a line",
    ),
    Command("serve --data new --tls on", "…Invalid value for '--tls': …"),
    Command(
        "serve --data new --tls-config missing",
        "--tls-config: tls.config.file=missing: No such file or directory; name a file that is there",
    ),
    Command(
        "serve --data new --tls-config trust-nobody.tls",
        "trust-nobody.tls: tls.server.need.client.auth=sometimes: expected one of none, optional, require",
    ),
    # topics and groups
    Command("topic describe nothing", "topic nothing does not exist; create it or check its name", FAILED),
    Command(
        "topic create 'two words'",
        "topic 'two words' may only hold letters, digits and the characters % | _ -",
        FAILED,
    ),
    Command("topic create TBW102", "topic TBW102 belongs to the system; choose another name", FAILED),
    Command("topic create t --queues 0", "…Invalid value for '-q' / '--queues': …1…"),
    Command("topic create t --perm x", "…Invalid value for '--perm': …"),
    Command(
        "topic create t --cluster nowhere", "the name server knows no cluster nowhere; it knows DefaultCluster", FAILED
    ),
    Command(
        "topic delete orders", "delete topic orders and all its messages? Nobody is there to confirm it; give --yes"
    ),
    Command(
        "topic delete TBW102 --yes", "code 29 from …: The topic[TBW102] is conflict with system topic. (…)", FAILED
    ),
    Command("topic lst", "…No such command 'lst'.…"),
    Command("group describe nobody", "group nobody is not known to any broker; see: tianzhou group list", FAILED),
    Command("group lag nobody", "group nobody is not known to any broker; see: tianzhou group list", FAILED),
    Command("group reset nobody -t orders --to earliest", "code 26 from …: Group nobody not exist! (…)", FAILED),
    Command(
        "group reset billing -t nothing --to earliest",
        "topic nothing does not exist; create it or check its name",
        FAILED,
    ),
    Command(
        "group reset billing -t orders --to soon",
        "--to soon: expected earliest, latest, an offset, or a time as 2026-01-31T08:00:00",
    ),
    Command("group reset billing --to earliest", "…Missing option '-t' / '--topic'.…"),
    # messages
    Command("produce orders --body ''", "the message body is empty; a message needs at least one byte", FAILED),
    Command("produce orders --body x -p colour", "--property colour: write name=value, neither of them empty"),
    Command(
        "produce orders --body x -p DELAY=3",
        "property DELAY belongs to the system; use the Message field for it or another name",
        FAILED,
    ),
    Command("produce orders --body x --delay 19", "…Invalid value for '--delay': …18…"),
    Command("produce orders --body x --file lines", "--body and --file exclude each other; give one"),
    Command("produce orders --count 3", "--count repeats --body; give one, or leave --count out"),
    Command("produce orders --body-file lines --file lines", "--file and --body-file exclude each other; give one"),
    Command("produce orders --body-file missing", "--body-file missing: No such file or directory"),
    Command("produce orders --body-file folder", "--body-file folder: Is a directory"),
    Command(
        "produce orders --body-file long-line",
        f"--body-file long-line: has more than the {BODY_LIMIT} bytes a message may have; store it where consumers can "
        "read it, and send its address",
    ),
    Command("produce orders --body-file -", "--body-file -: is empty; a message needs at least one byte"),
    Command("consume orders --out lines", "--out lines: File exists; name a folder"),
    Command("produce orders --file missing", "--file missing: No such file or directory"),
    Command("produce orders --file folder", "--file folder: Is a directory"),
    Command(
        "produce orders --file long-line",
        f"long-line: line 1 is longer than the {BODY_LIMIT} bytes a message may have; each line is one message",
    ),
    Command(
        "produce 'two words' --body x",
        "topic 'two words' may only hold letters, digits and the characters % | _ -",
        FAILED,
    ),
    Command(
        "consume nothing --timeout 1",
        "topic nothing does not exist or has no readable queue; create it or check its name",
        FAILED,
    ),
    Command(
        "consume orders --group 'my group'",
        "group 'my group' may only hold letters, digits and the characters % | _ -",
        FAILED,
    ),
    Command(
        "consume orders --sql 'price >'",
        "the SQL expression 'price >' of topic orders is wrong: expected a property, a value, NOT or (,"
        " but the expression ends at position 7",
        FAILED,
    ),
    Command(
        "consume orders --sql 'price > 1 city = 2'",
        "the SQL expression 'price > 1 city = 2' of topic orders is wrong: the expression is complete before"
        " 'city = 2', which RocketMQ ignores; join conditions by AND or OR. It begins at position 10",
        FAILED,
    ),
    Command(
        "consume orders --tags A --sql 'price > 1'",
        "topic orders is subscribed by tags 'A' and by SQL; use TAGS in the SQL instead",
        FAILED,
    ),
    Command("consume orders --max 0", "…Invalid value for '--max': …1…"),
    # stores
    Command("store check missing", "missing: no such folder; name a storePathRootDir or a --data folder"),
    Command(
        "store dump folder",
        "folder: is no store, it has neither commitlog/ nor checkpoint; name a storePathRootDir or a --data folder",
    ),
    Command("store dump binary", "binary: no such folder; name a storePathRootDir or a --data folder"),
    Command(
        "store repair {data} --apply", "store … is in use by process … (file `lock` is locked); stop that broker, or …"
    ),
    Command("store dump {data} --part tree", "…Invalid value for '--part': …'tree'…"),
    # pipelines
    Command("pipeline source nothing", "there is no pipeline file nothing; there are archive, dead_letters, …"),
    Command(
        "pipeline archive nowhere --to folder -n 127.0.0.1:{namesrv}",
        "topic nowhere does not exist; tianzhou topic list --system shows those that do",
    ),
    Command(
        "pipeline archive orders --to archive -n 127.0.0.1:{dead}",
        "no name server answers: cannot connect to 127.0.0.1:…: Connection refused\n" + NO_SERVER,
        FAILED,
    ),
    Command(
        "pipeline replay orders --rate 5",
        "--checkpoint is missing: a folder of this replay's own, or choose messages by --id",
    ),
    Command(
        "pipeline dlq billing --apply",
        "--apply and --to-topic send again, and nothing is chosen; choose by --id, --where or --all",
    ),
    Command(
        "pipeline cdc db --table shop.orders --to cdc --checkpoint cdc",
        "db: expected USER@HOST or USER@HOST:PORT; the password belongs into MYSQL_PWD",
    ),
    # bench
    Command(
        "bench produce -n 127.0.0.1:{dead}",
        "no name server answers: cannot connect to 127.0.0.1:…: Connection refused\n" + NO_SERVER,
        FAILED,
    ),
    Command(
        "bench consume nowhere",
        "topic nowhere does not exist, so there is nothing to consume; store some messages first with tianzhou bench "
        "produce, or give --fill COUNT",
    ),
    Command(
        "bench latency --rate 0",
        "--rate 0: latency is measured under a steady load; give messages a second, as --rate 1000",
    ),
    Command(
        "bench produce --processes 4 --connections 2",
        "--processes 4: each needs a connection of its own, and --connections 2 makes 2; give --connections 4 or leave "
        "it out",
    ),
    Command("bench produce --size 5000000", "…Invalid value for '--size': …4194304…"),
    Command("bench produce --rate fast", "…Invalid value for '--rate': …"),
    Command("bench produce --keys some", "…Invalid value for '--keys': …'random'…"),
    Command(
        "bench produce --payload-file missing",
        "--payload-file missing: No such file or directory; name a file of bodies",
    ),
    Command(
        "bench mixed --workload missing",
        "--workload missing: No such file or directory; name a file that is there",
    ),
    Command("bench mixed --workload binary", "--workload binary: is no text; name a text file"),
    Command("bench mixed --workload lines", "--workload lines: holds no keys; expected lines as `topics: 1`"),
    Command("bench mixed --workload word.yaml", "--workload word.yaml: topics: 'many': expected a whole number from 1"),
    Command(
        "bench mixed --workload no-payload.yaml",
        "--workload no-payload.yaml: payloadFile: payload/100b is not there, from here or from the file's folders; "
        "name it with --payload-file, or give --size for bodies of letters",
    ),
    Command("bench produce --csv folder", "--csv folder: is a folder; name a file"),
    Command(
        "bench produce --png missing/bench.png",
        "--png missing/bench.png: the folder missing is not there; make it, or name another file",
    ),
    Command(
        "bench produce --compare lines",
        "--compare lines: is no result of an earlier run; keep one with: tianzhou bench … -o json > lines",
    ),
    # the main job
    Command("flights --out binary", "--out binary: is no folder; give an empty or a new one"),
    Command(
        "flights --out theirs",
        "--out theirs: the folder is not empty and not from an earlier run; give another one",
    ),
    # configuration
    Command("namesrv -c missing", f"-c missing: No such file or directory; {KV_FILE}"),
    Command("namesrv -c folder", f"-c folder: Is a directory; {KV_FILE}"),
    Command("broker -c binary", f"-c binary: is no text; {KV_FILE}"),
    Command("namesrv -c word-port.conf", "word-port.conf: listenPort=many: expected a whole number"),
    Command(
        "namesrv -c high-port.conf", "high-port.conf: listenPort 70000: expected 1 to 65535, or 0 for any free port"
    ),
    Command("broker -c no-key.conf", "no-key.conf, line 2: no key in '= 5'; write key=value"),
    Command("broker -c role.conf", "role.conf: brokerRole=MASTER: expected ASYNC_MASTER, SYNC_MASTER or SLAVE"),
    Command(
        "broker -c slave.conf",
        "slave.conf: brokerRole=SLAVE with brokerId=0: a slave's is 1 or more",
    ),
    Command(
        "broker -c acl.conf",
        "acl.conf: authorizationEnabled=true: needs authenticationEnabled=true: otherwise anybody could name any user",
    ),
    Command(
        "broker -c variable.conf",
        "variable.conf: storePathRootDir=${ROCKETMQ_HOME}/store: only ${user.home} is replaced; write the path out",
    ),
    Command("broker -c nowhere.conf", "nowhere.conf: brokerIP1=0.0.0.0: nobody can connect to it; give …"),
    Command(
        "broker -n somewhere",
        "-n: name server address 'somewhere' is no host:port, as in 127.0.0.1:9876: it has no port",
    ),
    Command(
        "broker -c unknown-key.conf -m",
        "warning: unknown-key.conf: unknown key brokerNam is ignored; did you mean brokerName?",
        0,
    ),
    Command(
        "broker -c no-effect.conf -m",
        "warning: no-effect.conf: no effect: sendMessageThreadPoolNums: one event loop serves everything, there are no "
        "pools of threads or buffers to size",
        0,
    ),
]

TAKEN = "the port is taken; end the process that holds it, or set {} to a free port (0 takes any)"
FREE = "--namesrv-port 0 --broker-port 0"

SERVERS = [
    Command(
        f"serve --data {{data}} {FREE}",
        "--data …: store … is in use by process … (file `lock` is locked); stop that server, or give another folder",
    ),
    Command(
        "serve --data new --namesrv-port {namesrv} --broker-port 0",
        "cannot listen on 127.0.0.1:…: " + TAKEN.format("--namesrv-port"),
    ),
    Command(
        "serve --data new --namesrv-port 0 --broker-port {broker}",
        "cannot listen on 127.0.0.1:…: " + TAKEN.format("--broker-port"),
    ),
    Command(
        "serve --data new --namesrv-port 0 --broker-port {above_broker}",
        "cannot listen on 127.0.0.1:…: " + TAKEN.format("--broker-port"),
    ),
    Command(
        "serve --data new --namesrv-port 99999 --broker-port 0",
        "--namesrv-port 99999: expected 1 to 65535, or 0 for any free port",
    ),
    Command(
        "serve --data new --namesrv-port 0 --broker-port 2",
        "--broker-port 2: expected 3 to 65535, or 0 for any free port",
    ),
    Command(
        "serve --data new --namesrv-port 30911 --broker-port 30911",
        "--namesrv-port 30911: the broker takes it, which uses its port and the one 2 below; give another",
    ),
    Command(
        f"serve --data future {FREE}",
        "--data future: was written by a newer Tianzhou (layout 99, this version knows 3); "
        "upgrade, or give another folder",
    ),
    Command(
        f"serve --data damaged {FREE}",
        '--data damaged: its tianzhou.json is damaged; write {"layout": 1} into it if this version wrote the folder, '
        "or give another folder",
    ),
    Command(
        f"serve --data grown --brokers 1 {FREE}",
        "--brokers 1: --data grown also holds messages of broker-b, which nobody would serve; give --brokers 2, or "
        "take grown/broker-b away (`tianzhou store export` first writes what is in its store to a file)",
    ),
    Command(
        "serve --data new --brokers 2 --namesrv-port 30909 --broker-port 30911",
        "--namesrv-port 30909: the broker takes it, which uses its port and the one 2 below; give another",
    ),
    Command(
        "serve --data new --brokers 3 --namesrv-port 0 --broker-port 65530",
        "--broker-port 65530: no free ports above it for 3 brokers; give a lower one",
    ),
    Command(f"serve --data binary {FREE}", "--data binary: is no folder; give an empty or a new one"),
    Command(
        f"serve --data binary/below {FREE}",
        "--data binary/below: cannot be used (Not a directory); give a folder this user can write to",
    ),
    Command(
        f"serve --data theirs {FREE}",
        "--data theirs: holds things that are not the server's (thesis.txt); give an empty or a new folder",
    ),
    Command(
        f"serve --data {{data}}/store {FREE}",
        "--data …/store: is the store of the data folder …; give that one",
    ),
    Command(
        f"serve --data new --host 203.0.113.9 {FREE}",
        "cannot listen on 203.0.113.9:0: 203.0.113.9 is no address of this machine; listen on one, or on 0.0.0.0",
    ),
    Command(
        f"serve --data new --host 'two words' {FREE}",
        "cannot listen on two words:0: no such host; listen on an address of this machine, or on 0.0.0.0",
    ),
    Command(
        f"serve --data new --host 0.0.0.0 --advertise 0.0.0.0 {FREE}",
        "--advertise 0.0.0.0: nobody can connect to it; give this machine's address as clients see it, for example …",
    ),
    Command(
        f"serve --data new --host 0.0.0.0 --advertise 224.0.0.1 {FREE}",
        "--advertise 224.0.0.1: nobody can connect to it; give this machine's address as clients see it, for example …",
    ),
    Command(
        f"serve --data new --advertise 203.0.113.9 {FREE}",
        "--advertise 203.0.113.9: the server would listen on loopback only (127.0.0.1), so clients that get this "
        "address could not reach it; listen on 0.0.0.0 as well",
    ),
    Command(
        f"serve --data new --advertise 127.0.0.1:10911 {FREE}",
        "--advertise 127.0.0.1:10911: does not resolve (…); give an address or a name that clients can connect to, "
        "without a port",
    ),
    Command(f"serve --data new --flush SOMETIMES {FREE}", "…Invalid value for '--flush': …"),
    Command("namesrv --port {namesrv}", "cannot listen on 0.0.0.0:…: " + TAKEN.format("listenPort")),
    Command(
        "broker -c same-store.conf",
        "store … is in use by process … (file `lock` is locked); stop that broker, or give this one its own "
        "storePathRootDir",
    ),
]

ALLOWED = "allowed are 4 to 16777212"

FRAMES = [
    Frame(
        "HTTP to the broker",
        f"frame length … (bytes b'GET '); {ALLOWED}: this is HTTP, which is not served on this port",
        data=b"GET / HTTP/1.1\r\n\r\n",
    ),
    Frame(
        "HTTP to the name server",
        f"frame length … (bytes b'GET '); {ALLOWED}: this is HTTP, which is not served on this port",
        data=b"GET / HTTP/1.1\r\n\r\n",
        to="namesrv",
    ),
    Frame(
        "HTTP/2, as RocketMQ 5's gRPC clients speak it",
        "neither a frame nor a PROXY header: it begins with b'PRI …: this is HTTP/2, most likely a RocketMQ 5 client"
        " over gRPC, which is not served; use a remoting client (RocketMQ 4.x's Java, Go, C++ and Node clients, or this"
        " package's)",
        data=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ),
    Frame(
        "AMQP",
        f"frame length … (bytes b'AMQP'); {ALLOWED}: this is AMQP, which is not served; …",
        data=b"AMQP\0\0\x09\1",
    ),
    Frame("a frame of length 0", f"frame length 0 (bytes …); {ALLOWED}", data=b"\0\0\0\0"),
    Frame("a frame of negative length", f"frame length -2 (bytes …); {ALLOWED}", data=b"\xff\xff\xff\xfe" + b"x" * 9),
    Frame(
        "a frame longer than 16 MiB",
        f"frame length 16777213 (bytes …); {ALLOWED}",
        data=struct.pack(">I", 16_777_213) + b"\0\0\0\x02{}",
    ),
    Frame(
        "a header longer than its frame",
        "header length 4096 exceeds the 4 bytes the frame has left",
        data=b"\0\0\0\x08\0\0\x10\0{}{}",
    ),
    Frame(
        "an unknown header form",
        "serialize type 5; known are 0 (JSON) and 1 (ROCKETMQ)",
        data=b"\0\0\0\x06\x05\0\0\x02{}",
    ),
    Frame(
        "a header that is no JSON",
        "JSON header of 3 bytes cannot be read: JSON is malformed: …",
        data=b"\0\0\0\x07\0\0\0\x03abc",
    ),
]

SEND, SEND_BATCH, REPLY, PULL, HEARTBEAT, CREATE_TOPIC, UPDATE_CONFIG = 10, 320, 324, 11, 34, 17, 25
END_TRANSACTION = 37
ROUTE, REGISTER, UPDATE_NAMESRV_CONFIG = 105, 103, 318

_MESSAGE = {
    "producerGroup": "tests",
    "topic": "orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "properties": "",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "batch": "false",
}
_PULL = {
    "consumerGroup": "billing",
    "topic": "orders",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}
_END = {
    "producerGroup": "billing",
    "tranStateTableOffset": "0",
    "commitLogOffset": "999999",
    "commitOrRollback": "8",
    "msgId": "X",
}
_TOPIC = {
    "topic": "t",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
}


def _send(what: str, answer: str, code: int, body: bytes = b"x", **changes: str) -> Request:
    return Request(what, answer, code, SEND, _MESSAGE | changes, body)


def _pull(what: str, answer: str, code: int, **changes: str) -> Request:
    return Request(what, answer, code, PULL, _PULL | changes)


REQUESTS = [
    Request("an unknown request to the broker", " request type 9999 not supported", 3, 9999),
    Request("an unknown request to the name server", " request type 9999 not supported", 3, 9999, to="namesrv"),
    Request("a send without header fields", "SEND_MESSAGE: header field producerGroup is missing", 1, SEND),
    _send(
        "a send whose queue is no number",
        "SEND_MESSAGE: header field queueId is 'many'; expected a whole number of 32 bits",
        1,
        queueId="many",
    ),
    _send(
        "a send to a queue the topic does not have",
        "request queueId[99] is illegal, topic[orders] has 2 read and 2 write queues, producer: …",
        29,
        queueId="99",
    ),
    _send(
        "a send to a topic with a blank in its name",
        "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        29,
        topic="two words",
    ),
    _send(
        "a send to a topic whose name is too long",
        "The specified topic is longer than topic max length.",
        29,
        topic="t" * 300,
    ),
    _send(
        "a send to a system topic",
        "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.",
        16,
        topic="SCHEDULE_TOPIC_XXXX",
    ),
    _send("a message without a body", "the message has no body; send at least one byte", 1, b""),
    _send(
        "a message over 4 MiB",
        f"message for topic 'orders' refused: the body is {BODY_LIMIT + 1} bytes, maxMessageSize is {BODY_LIMIT}; "
        "send less or raise it",
        13,
        b"x" * (BODY_LIMIT + 1),
    ),
    _send(
        "a message with more than 32 KiB of properties",
        "message for topic 'orders' refused: the properties are … bytes, the limit is 32767; move data into the body",
        13,
        properties="k\1" + "v" * 40_000 + "\2",
    ),
    _send(
        "a delay level that is no number",
        "property DELAY='soon': expected a delay level",
        1,
        properties="DELAY\1soon\2",
    ),
    Request(
        "the end of a transaction that is none",
        "Find prepared transaction message failed: no half message is at commit-log offset 999999",
        1,
        END_TRANSACTION,
        _END,
    ),
    Request(
        "the end of a transaction at no whole number",
        "END_TRANSACTION: header field commitLogOffset is 'x'; expected a whole number of 64 bits",
        1,
        END_TRANSACTION,
        _END | {"commitLogOffset": "x"},
    ),
    _pull("a pull from an unknown topic", "topic[nothing] not exist, apply first please!", 17, topic="nothing"),
    _pull(
        "a pull from a queue the topic does not have",
        "queueId[99] is illegal, topic:[orders] topicConfig.readQueueNums:[2]…",
        29,
        queueId="99",
    ),
    _pull(
        "a pull with a filter that is none",
        "no tag in the expression '||'; write TagA || TagB, or * for all at position 0",
        23,
        subscription="||",
    ),
    _pull(
        "a pull with SQL that is none",
        "Invalid MessageSelector: expected a string in single quotes after IN (, but 3 stands at position 10",
        23,
        subscription="price IN (3)",
        expressionType="SQL92",
    ),
    _pull(
        "a pull with a filter of an unknown type",
        "Invalid MessageSelector: expression type XPATH is unknown; use TAG or SQL92 at position 0",
        23,
        subscription="/price",
        expressionType="XPATH",
    ),
    _pull("a pull before the first offset", "OFFSET_TOO_SMALL", 21, queueOffset="-5"),
    Request(
        "a heartbeat that is no JSON",
        "JSON at character 0: expected a value, found 'rubbish'",
        1,
        HEARTBEAT,
        {},
        b"rubbish",
    ),
    Request("a heartbeat of another shape", "HeartbeatData: [] is not an object", 1, HEARTBEAT, {}, b"[]"),
    Request(
        "a topic with a negative number of queues",
        "writeQueueNums of topic t: -4; give 0 or more",
        29,
        CREATE_TOPIC,
        _TOPIC | {"writeQueueNums": "-4"},
    ),
    Request(
        "a reply that names nobody who asked",
        "reply message properties[REPLY_TO_CLIENT] is null",
        1,
        REPLY,
        _MESSAGE,
        b"x",
    ),
    Request(
        "a reply to a client that is gone",
        "push reply message fail, channel of <gone> not found.",
        1,
        REPLY,
        _MESSAGE | {"properties": "REPLY_TO_CLIENT\x01gone\x02"},
        b"x",
    ),
    Request(
        "a setting of the wrong type",
        "request: fileReservedTime=long: expected a whole number",
        1,
        UPDATE_CONFIG,
        {},
        b"fileReservedTime=long",
    ),
    Request(
        "a setting that may not be changed",
        "Can not update config in black list: brokerConfigPath",
        16,
        UPDATE_CONFIG,
        {},
        b"brokerConfigPath=/elsewhere",
    ),
    Request(
        "settings that are no text",
        "the configuration cannot be read: …",
        1,
        UPDATE_CONFIG,
        {},
        b"\xff\xfe=1",
    ),
    Request(
        "the route of an unknown topic",
        "No topic route info in name server for the topic: nothing…",
        17,
        ROUTE,
        {"topic": "nothing"},
        to="namesrv",
    ),
    Request(
        "a registration whose body is damaged",
        "crc32 not match",
        1,
        REGISTER,
        {
            "brokerName": "x",
            "brokerAddr": "203.0.113.9:1",
            "clusterName": "c",
            "brokerId": "0",
            "haServerAddr": "",
            "bodyCrc32": "5",
            "compressed": "false",
        },
        b"rubbish",
        to="namesrv",
    ),
    Request(
        "a name server setting that may not be changed",
        "Can not update config in black list.",
        16,
        UPDATE_NAMESRV_CONFIG,
        {},
        b"kvConfigPath=/elsewhere",
        to="namesrv",
    ),
]

OFFSETS_FORM = 'JSON like {"topic": {"broker": {"0": 42, "1": -2}}} with -1 for latest and -2 for earliest'

SPARK = [
    SparkRow("read", "the option subscribe is missing; expected topics joined by commas; …", options={"subscribe": ""}),
    SparkRow(
        "read",
        "namesrvAddr=here: 'here' is no address: it has no port; expected name servers as host:port, several joined "
        "by ; or ,",
        options={"namesrvAddr": "here"},
    ),
    SparkRow(
        "read",
        "there is no option startingoffset=earliest (did you mean startingOffsets?); there are …",
        options={"startingOffset": "earliest"},
    ),
    SparkRow(
        "read",
        f"startingOffsets=newest: expected earliest, latest (streams only) or {OFFSETS_FORM}",
        options={"startingOffsets": "newest"},
    ),
    SparkRow(
        "read",
        "startingOffsets=latest: a batch read that starts at the latest offset reads nothing; "
        "expected earliest or offsets that exist",
        options={"startingOffsets": "latest"},
    ),
    SparkRow("read", "failOnDataLoss=perhaps: expected true or false", options={"failOnDataLoss": "perhaps"}),
    SparkRow("read", "tags=||: expected tags joined by ||, or * for all", options={"tags": "||"}),
    SparkRow(
        "read",
        "startingOffsets=earliest and startingTimestamp=5 are both given; give one of them",
        options={"startingOffsets": "earliest", "startingTimestamp": "5"},
    ),
    SparkRow("read", "topic no-such-topic does not exist…", options={"subscribe": "no-such-topic"}),
    SparkRow(
        "read",
        "subscribe=orders and subscribePattern=o.* are given; give one of subscribe, subscribePattern, assign",
        options={"subscribe": "orders", "subscribePattern": "o.*"},
    ),
    SparkRow(
        "read",
        "subscribePattern=orders(: …; expected a regular expression that whole topic names match",
        options={"subscribePattern": "orders("},
    ),
    SparkRow(
        "read",
        "subscribePattern=nothing-.*: no topic has such a name; there are …",
        options={"subscribePattern": "nothing-.*"},
    ),
    SparkRow("read", "assign=orders: …; expected JSON like …, with ids of queues", options={"assign": "orders"}),
    SparkRow(
        "read",
        'assign={"orders": [-1]}: -1 of orders is no queue id; expected JSON like …',
        options={"assign": '{"orders": [-1]}'},
    ),
    SparkRow(
        "read",
        "sql=price >: expected a property, a value, NOT or (, but the expression ends at position 7; "
        "expected an SQL92 expression over properties, like price > 10 AND TAGS = 'paid'",
        options={"sql": "price >"},
    ),
    SparkRow(
        "read",
        "tags=A and sql=n > 1 are both given; give one of them, SQL has TAGS for the tag",
        options={"tags": "A", "sql": "n > 1"},
    ),
    SparkRow(
        "read",
        "startingTimestamp=yesterday: expected milliseconds since the epoch, or a time like 2026-01-31T08:00:00Z, …",
        options={"startingTimestamp": "yesterday"},
    ),
    SparkRow(
        "read",
        'startingOffsets: "latest" for topic orders cannot be; expected an offset: 0 or more, -1 for latest or -2 for '
        "earliest",
        options={"startingOffsets": '{"orders": "latest"}'},
    ),
    SparkRow(
        "read",
        "startingOffsets: nothing is given for … and there is no topic orders; give one for each queue of what is "
        "read: …",
        options={"startingOffsets": '{"orders": 0}'},
    ),
    SparkRow(
        "read",
        "minOffsetsPerTrigger=5: expected a whole number from 1; streams only",
        options={"minOffsetsPerTrigger": "5"},
    ),
    SparkRow("read", "tls=maybe: expected true or false", options={"tls": "maybe"}),
    SparkRow(
        "read",
        "tlsConfigFile=a.tls: is read with tls=true only; give that too, or leave the file out",
        options={"tlsConfigFile": "a.tls"},
    ),
    SparkRow(
        "read",
        "tlsConfigFile: tls.config.file=missing.tls: No such file or directory; name a file that is there",
        options={"tls": "true", "tlsConfigFile": "missing.tls"},
    ),
    SparkRow(
        "stream",
        "endingOffsets=latest: a stream has no end; read in batches, or use trigger(availableNow=True) to stop at what "
        "is there now",
        options={"endingOffsets": "latest"},
    ),
    SparkRow(
        "stream",
        "maxOffsetsPerTrigger=none: expected a whole number from 1; streams only",
        options={"maxOffsetsPerTrigger": "none"},
    ),
    SparkRow(
        "stream",
        "minOffsetsPerTrigger=10: is more than maxOffsetsPerTrigger=5, so that no micro-batch could have enough; "
        "expected at most that",
        options={"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
    ),
    SparkRow(
        "stream",
        "maxTriggerDelay=soon: expected a time like 500ms, 30s, 15m or 1h; streams only",
        options={"maxTriggerDelay": "soon"},
    ),
    SparkRow(
        "stream",
        "maxTriggerDelay=30s: bounds how long minOffsetsPerTrigger waits; give that too",
        options={"maxTriggerDelay": "30s"},
    ),
    SparkRow(
        "stream",
        "filterPushdown=true: Spark pushes no conditions down into streams; expected true or false; true for batch "
        "reads only",
        options={"filterPushdown": "true"},
    ),
    SparkRow("write", "the option topic is missing; expected a topic: …", options={}),
    SparkRow(
        "write",
        "sendTimeoutMs=0: expected milliseconds, a whole number from 1",
        options={"topic": "orders", "sendTimeoutMs": "0"},
    ),
    SparkRow(
        "write",
        "delivery=once: expected at-least-once or exactly-once",
        options={"topic": "orders", "delivery": "once"},
    ),
    SparkRow(
        "write",
        "delivery=exactly-once: a batch write has no name that would set a repetition apart from another write of "
        "the same rows; give it one with the option batchKey, unique to this data",
        options={"topic": "orders", "delivery": "exactly-once"},
    ),
    SparkRow(
        "write",
        "maxMessagesPerSecond=0: expected a whole number from 1, for each task; with delivery=at-least-once only",
        options={"topic": "orders", "maxMessagesPerSecond": "0"},
    ),
    SparkRow(
        "write",
        "maxMessagesPerSecond=5: what is delivered exactly-once becomes visible a batch at a time; bound the batch by "
        "the source's maxOffsetsPerTrigger and a trigger interval, or leave the option out",
        options={"topic": "orders", "delivery": "exactly-once", "batchKey": "today", "maxMessagesPerSecond": "5"},
    ),
    SparkRow(
        "write",
        "batchKey=today: counts with delivery=exactly-once only; give that too, or leave it out",
        options={"topic": "orders", "batchKey": "today"},
    ),
    SparkRow(
        "write",
        "batchNumber=7: says which batch of a batchKey it is; give that too, or leave it out",
        options={"topic": "orders", "batchNumber": "7"},
    ),
]


STORE, STORE_STREAM, LAKE = "read tianzhou_store", "stream tianzhou_store", "write tianzhou_lake"
OFFLINE = [
    SparkRow(
        STORE, "the option storePath is missing; expected the folder of a store: …", options={"subscribe": "orders"}
    ),
    SparkRow(STORE, "the option subscribe is missing; expected topics joined by commas", options={"storePath": "data"}),
    SparkRow(
        STORE,
        "there is no option verifyCRCs=true (did you mean verifyCrc?); there are …",
        options={"storePath": "data", "subscribe": "orders", "verifyCRCs": "true"},
    ),
    SparkRow(
        STORE,
        'subscribe=orders and assign={"orders": [0]} are both given; give one',
        options={"storePath": "data", "subscribe": "orders", "assign": '{"orders": [0]}'},
    ),
    SparkRow(
        STORE,
        "queues=first: expected queue numbers joined by commas, for every topic",
        options={"storePath": "data", "subscribe": "orders", "queues": "first"},
    ),
    SparkRow(
        STORE,
        "subscribePattern=[: expected a regular expression that whole topic names match",
        options={"storePath": "data", "subscribePattern": "["},
    ),
    SparkRow(
        STORE,
        "startingOffsets=latest: a batch read that starts at the latest offset reads nothing; "
        "expected earliest or offsets that exist",
        options={"storePath": "data", "subscribe": "orders", "startingOffsets": "latest"},
    ),
    SparkRow(
        STORE,
        "startingOffsets=newest: expected earliest, latest (streams only) or JSON like …",
        options={"storePath": "data", "subscribe": "orders", "startingOffsets": "newest"},
    ),
    SparkRow(
        STORE,
        "startingOffsets=earliest and startingTimestamp=5 are both given; give one of them",
        options={"storePath": "data", "subscribe": "orders", "startingOffsets": "earliest", "startingTimestamp": "5"},
    ),
    SparkRow(
        STORE,
        "maxOffsetsPerTrigger=5: expected a whole number from 1; streams only",
        options={"storePath": "data", "subscribe": "orders", "maxOffsetsPerTrigger": "5"},
    ),
    SparkRow(
        STORE_STREAM,
        "endingOffsets=latest: a stream has no end; read in batches, or use trigger(availableNow=True) to stop at what "
        "is there now",
        options={"storePath": "data", "subscribe": "orders", "endingOffsets": "latest"},
    ),
    SparkRow(
        STORE_STREAM,
        "key=k1: expected a message key or unique key; batch reads only",
        options={"storePath": "data", "subscribe": "orders", "key": "k1"},
    ),
    SparkRow(LAKE, "the option path is missing; expected the table's folder or URI, as given to save(), …", options={}),
    SparkRow(
        LAKE,
        "tableFormat=orc: expected delta or iceberg",
        options={"tableFormat": "orc", "path": "lake/orders"},
    ),
    SparkRow(
        LAKE,
        "path=lake/orders: an Iceberg table is named by its catalog; give table, catalogUri and warehouse, and save() "
        "or start() without a path",
        options={"tableFormat": "iceberg", "path": "lake/orders"},
    ),
    SparkRow(
        LAKE,
        "table=orders: expected namespace.name of an Iceberg table",
        options={"tableFormat": "iceberg", "table": "orders"},
    ),
    SparkRow(
        LAKE,
        "tableFormat=parquet: expected delta or iceberg; leave tableFormat out for a Delta table (package deltalake), "
        'or write Parquet with format("parquet") of Spark, and read files of a stream with Spark only',
        options={"tableFormat": "parquet", "path": "lake/orders"},
    ),
    SparkRow(
        LAKE,
        "txnAppId=nightly: is of no use without txnVersion; give both, or neither",
        options={"path": "lake/orders", "txnAppId": "nightly"},
    ),
    SparkRow(
        LAKE,
        "targetFileBytes=1k: expected a whole number from 65536",
        options={"path": "lake/orders", "targetFileBytes": "1k"},
    ),
    SparkRow(
        LAKE,
        "partitionBy=day(storeTimestamp): day(storeTimestamp) goes with tableFormat=iceberg only; make a column of it "
        "(to_date for days) and give that",
        options={"path": "lake/orders", "partitionBy": "day(storeTimestamp)"},
    ),
    SparkRow(
        LAKE,
        "partitionBy=day,day: names a column twice; name it once",
        options={"path": "lake/orders", "partitionBy": "day,day"},
    ),
]
"""Options that are refused before any file is read; run by tests/unit/spark/store/test_spark_store_options.py."""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


def _code(text: str) -> str:
    return f"`` {_cell(text)} ``" if "`" in text else f"`{_cell(text)}`"


def _shown(row: Row) -> str:
    names = {
        "dead": "PORT",
        "tls_only": "PORT",
        "tls_never": "PORT",
        "namesrv": "PORT",
        "broker": "PORT",
        "above_broker": "PORT+2",
        "data": "DATA",
    }
    return "tianzhou " + row.what.replace("--namesrv-port 0 --broker-port 0", "").strip().format_map(names)


def page() -> str:
    """Return the text of docs/reference/bad-input.md."""
    lines = [
        "# What wrong input is answered with",
        "",
        "Every row is run by the tests (`tests/fault/hostile_peers/test_bad_input.py`,",
        "`tests/spark/test_spark_bad_input.py`): the answer and the code are compared, and afterwards the server still",
        "serves and a message acknowledged before is still there. `…` stands for what differs from case to case. The",
        "page is printed by `python tests/fault/bad_input_rows.py`.",
        "",
        "Commands answer on stderr, after `tianzhou: `, and end with 0 (done), 1 (failed), 2 (the command line, a",
        "configuration file, or a port or folder that is taken) or 130 (interrupted).",
        "",
        "## Commands",
        "",
        "| command | answer | exit code |",
        "|---|---|---|",
        *(f"| {_code(_shown(row))} | {_cell(row.answer)} | {row.code} |" for row in [*COMMANDS, *SERVERS]),
        "",
        "## Bytes that are no frames",
        "",
        "The connection is closed, only that one, and the server's log says why.",
        "",
        "| what comes | log |",
        "|---|---|",
        *(f"| {row.what} | {_cell(row.answer)} |" for row in FRAMES),
        "",
        "## Requests",
        "",
        "Answered with a response code and a remark; the connection stays.",
        "",
        "| request | code | remark |",
        "|---|---|---|",
        *(f"| {row.what} | {row.code} | {_cell(row.answer.strip())} |" for row in REQUESTS),
        "",
        "## Spark",
        "",
        "| what | options | error |",
        "|---|---|---|",
        *(
            f"| {row.what} | {' '.join(_code(f'{k}={v}') for k, v in row.options.items()) or 'none'} "
            f"| {_cell(row.answer)} |"
            for row in [*SPARK, *OFFLINE]
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")

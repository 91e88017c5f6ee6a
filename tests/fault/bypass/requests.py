"""The attempts of rows.py that are requests: for the data of others, at every port, and forged replies."""

from __future__ import annotations

import functools
import itertools
import json

from bypass.stage import (
    CLOSED,
    KEY,
    LEAVER,
    PULL,
    READER,
    REFUSED,
    SEND,
    SERVED,
    SHORT,
    UNKNOWN,
    WORKER,
    Attempt,
    Elsewhere,
    Fields,
    Outcome,
    Section,
    Stage,
    asked,
    frame,
    json_frame,
    sent,
    signed,
)

from tianzhou.wire.batch import encode_batch
from tianzhou.wire.hashing import index_hash, java_hash

ORDERS = SHORT | {"b": "orders"}
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@functools.cache
def clashing_key(topic: str, other: str, key: str) -> str:
    """Return a key that has, with one topic, the hash that another key has with another topic."""
    wanted, modulus = index_hash(other, key), 1 << 32
    heads = {
        java_hash(f"{topic}#{head}") * 31**4 % modulus: head
        for head in map("".join, itertools.product(_LETTERS, repeat=3))
    }
    for tail in map("".join, itertools.product(_LETTERS, repeat=4)):
        for hashed in (wanted, -wanted):
            head = heads.get((hashed - java_hash(tail)) % modulus)
            if head is not None:
                return head + tail
    raise ValueError("no key of seven letters; take a longer one")


def _by_hash(stage: Stage) -> Outcome:
    return stage.asks(12, KEY | {"topic": "orders", "key": clashing_key("orders", "secret", "jewel")})


def _sent_back(stage: Stage) -> Outcome:
    place = str(stage.secret_place)
    return stage.asks(36, {"group": "billing", "offset": place, "delayLevel": "0", "originTopic": "orders"})


def _handed_on(stage: Stage) -> Outcome:
    message = f"7F00000100002A9F{stage.secret_place:016X}"
    return stage.asks(309, {"consumerGroup": "billing", "clientId": "c", "msgId": message, "brokerName": "broker-a"})


def end_transaction(stage: Stage, fields: Fields, who: str = WORKER) -> Outcome:
    """Return the outcome of rolling back the half message of `secret`."""
    place, offset = stage.half
    usual = {
        "producerGroup": "owner", "tranStateTableOffset": str(offset), "commitLogOffset": str(place),
        "commitOrRollback": "12", "msgId": "HALF",
    }  # fmt: skip
    return stage.asks(37, usual | fields, who=who)


def heartbeat_body(group: str, topic: str, client_id: str = "c") -> bytes:
    """Return the heartbeat of one consumer."""
    subscription = {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False, "subscriptionDataSet": [subscription],
    }  # fmt: skip
    return json.dumps({"clientID": client_id, "producerDataSet": [], "consumerDataSet": [consumer]}).encode()


def _lock(group: str, topic: str) -> bytes:
    queue = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
    return json.dumps({"clientId": "c", "consumerGroup": group, "mqSet": [queue]}).encode()


_MORE = "INNER_MULTI_DISPATCH\x01secret\x02"
_BATCH = encode_batch([(0, b"1", b""), (0, b"2", _MORE.encode())])
_OF_ALL = (
    "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
    "rmq_sys_STAGED_TOPIC", "rmq_sys_UNDELIVERABLE", "DefaultCluster_REPLY_TOPIC",
)  # fmt: skip
_TWO_GROUPS = heartbeat_body("billing", "orders")[:-1] + b"," + heartbeat_body("audit", "orders")[1:]
_OTHER_KIND = {"outcome": f"{REFUSED} or {UNKNOWN}", "note": "code 3 at servers with the other kind"}

REQUESTS: Section = (
    asked("a send to a topic of others", 10, SEND, b"x"),
    asked("the same with short names", 310, SHORT, b"x"),
    asked("a batch", 320, SHORT | {"m": "true"}, _BATCH),
    asked("a batch of which a message is put into a further topic", 320, ORDERS | {"m": "true"}, _BATCH),
    asked("a message that is put into a further topic", 310, ORDERS | {"i": _MORE}, b"x"),
    asked("a reply (324) to a topic of others", 324, SEND, b"x"),
    asked("a reply (325) to a topic of others", 325, SHORT, b"x"),
    asked("a reply (325) to a topic that ends like a reply topic", 325, SHORT | {"b": "my_REPLY_TOPIC"}, b"x"),
    asked("a send to the topic of delayed messages, with `REAL_TOPIC=secret`, by who may send to all topics but one",
        310, SHORT | {"b": "SCHEDULE_TOPIC_XXXX", "i": "REAL_TOPIC\x01secret\x02REAL_QID\x010\x02"}, b"x", who=READER),
    asked("a send to another group's retry topic", 310, SHORT | {"b": "%RETRY%audit"}, b"x"),
    asked("the same in the name of one's own group", 310,
        SHORT | {"a": "billing", "b": "%RETRY%audit", "j": "99"}, b"x"),
    asked("a pull", 11, PULL),
    asked("a pull by its other number (361)", 361, PULL),
    asked("a pull from another group's retry topic", 11, PULL | {"topic": "%RETRY%audit"}),
    asked("a pull from another group's dead letters", 11, PULL | {"topic": "%DLQ%audit"}),
    asked("a pull for another group", 11, PULL | {"topic": "orders", "consumerGroup": "audit"}),
    asked("a name inside a namespace (`ns%secret`)", 11, PULL | {"topic": "ns%secret"}),
    asked("a group inside a namespace (`ns%billing`)", 11, PULL | {"topic": "orders", "consumerGroup": "ns%billing"}),
    *(asked(f"a pull from `{topic}`, which holds messages of all topics, by who may read all but one", 11,
        PULL | {"topic": topic}, who=READER) for topic in _OF_ALL),
    Attempt("a message by its offset, sent back (36)", _sent_back),
    Attempt("a message by its offset (33)", lambda stage: stage.asks(33, {"offset": str(stage.secret_place)})),
    Attempt("a message by its offset, handed to oneself (309)", _handed_on),
    Attempt("a query (12) for a key that has, with one's own topic, the hash of a key of `secret`", _by_hash, "code 22",
        "nothing found: records of other topics are passed over"),
    Attempt("a transaction of others ended (37), no topic named", lambda stage: end_transaction(stage, {})),
    Attempt("the same with one's own topic named", lambda stage: end_transaction(stage, {"topic": "orders"})),
    asked("a heartbeat that subscribes a topic of others", 34, {}, heartbeat_body("billing", "secret")),
    asked("a heartbeat for a group of others", 34, {}, heartbeat_body("audit", "orders")),
    asked("a heartbeat that has its groups twice, the last a group of others", 34, {}, _TWO_GROUPS),
    asked("locks for a group of others (41)", 41, {}, _lock("audit", "orders")),
    asked("locks of queues of others (41)", 41, {}, _lock("billing", "secret")),
    asked("locks of a group of others released (42)", 42, {}, _lock("audit", "orders")),
    asked("the offset of a group of others (15)", 15,
        {"consumerGroup": "audit", "topic": "orders", "queueId": "0", "commitOffset": "0"}),
    asked("offsets of a group of others reset (222)", 222,
        {"group": "audit", "topic": "orders", "timestamp": "0", "isForce": "true"}),
    asked("a topic in the body of a list, one's own in the header (18)", 18, {"topic": "orders"},
        b'{"topicConfigList":[{"topicName":"mine","readQueueNums":1,"writeQueueNums":1,"perm":6}]}'),
    asked("a group in the body of a list, one's own in the header (225)", 225, {"group": "billing"},
        b'{"groupConfigList":[{"groupName":"audit"}]}'),
    asked("one's own topic deleted (215)", 215, {"topic": "orders"}),
    asked("one's own group deleted (207)", 207, {"groupName": "billing"}),
    asked("a setting changed (25)", 25, {}, b"brokerPermission=0"),
    asked("topics cleaned away (316)", 316),
    asked("the log deleted (329)", 329),
    asked("the log read (31010)", 31010, {"offset": "0"}),
    asked("the limit of a topic raised (31030)", 31030, {"limit": "topic:orders", "rate": "9", "burst": "9"}),
    asked("oneself made an administrator (50)", 50,
        {"accessKey": WORKER, "secretKey": "12345678", "admin": "true"}, **_OTHER_KIND),
    asked("everybody let in (53)", 53, {"globalWhiteAddrs": "*"}, **_OTHER_KIND),
    asked("a super user made (3001)", 3001, {"username": "eve"},
        b'{"username":"eve","password":"eve-secret","userType":"Super"}', **_OTHER_KIND),
    asked("policies of one's own (3006)", 3006, {"subject": f"User:{WORKER}"}, b"{}", **_OTHER_KIND),
    *(sent(f"code {code}, which nobody serves, unsigned", frame(code, {}))
      for code in (0, -1, -310, 206, 999_999, 0x7FFFFFFF, -0x80000000)),
    asked("a code nobody serves, signed", 999_999, {}, outcome=UNKNOWN),
    sent("a code above 32 bits", json_frame((1 << 32) + 310, [*SHORT.items()], b"x"), CLOSED),
    asked("topic `orders*`, of who may use `orders`", 310, SHORT | {"b": "orders*"}, b"x"),
    asked("topic `orders:secret`", 310, SHORT | {"b": "orders:secret"}, b"x"),
    asked("topic `Topic:orders`", 11, PULL | {"topic": "Topic:orders"}),
    asked("topic `*`", 11, PULL | {"topic": "*"}),
    asked("a topic in wide letters, which Unicode takes for `orders`", 310, SHORT | {"b": "\uff4frders"}, b"x"),
    asked("no topic at all", 310, SHORT | {"b": ""}, b"x"),
)  # fmt: skip

_TRUSTED = "10.9.9.9"
"""An address in the global white list of accounts."""
_V1 = f"PROXY TCP4 {_TRUSTED} 127.0.0.1 1 2\r\n".encode()
_V2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes([10, 9, 9, 9, 127, 0, 0, 1, 0, 1, 0, 2])


def _split_proxy(stage: Stage) -> Outcome:
    with stage.connect() as peer:
        for byte in _V1:
            peer.sendall(bytes([byte]))
        return stage.talk(peer, frame(11, PULL))


def _deleted_meanwhile(stage: Stage) -> Outcome:
    data = frame(310, signed(ORDERS, b"x", LEAVER), b"x")
    with stage.connect() as peer:
        before = stage.talk(peer, data)
        stage.remove(LEAVER)
        return f"{before}, {stage.talk(peer, data)}"


_BROKER = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:1", "clusterName": "DefaultCluster", "brokerId": "0"}
_HERE = "tests/fault/hostile_peers/test_access_bypass.py::"
PORTS: Section = (
    sent("a PROXY header (1) with an address of the white list", _V1 + frame(11, PULL)),
    sent("a PROXY header (2) with an address of the white list", _V2 + frame(11, PULL)),
    sent("a PROXY header twice", _V1 + _V1 + frame(11, PULL), CLOSED),
    Attempt("a PROXY header byte by byte", _split_proxy),
    asked("the fast port: a send", 310, SHORT, b"x", to="fast"),
    sent("the fast port: a send without signature", frame(310, ORDERS, b"x"), to="fast"),
    sent("the fast port: a pull", frame(11, PULL), to="fast"),
    asked("the fast port: a topic deleted (215)", 215, {"topic": "orders"}, to="fast"),
    asked("the name server: a broker's place taken (103)", 103, _BROKER | {"haServerAddr": "10.0.0.1:2"}, to="namesrv"),
    asked("the name server: a broker taken out (104)", 104, _BROKER, to="namesrv"),
    asked("the name server: a broker's heartbeat (904)", 904, _BROKER, to="namesrv"),
    asked("the name server: a topic registered (217)", 217, {"topic": "orders"}, to="namesrv"),
    asked("the name server: a topic deleted (216)", 216, {"topic": "orders"}, to="namesrv"),
    asked("the name server: a value stored (100)", 100, {"namespace": "n", "key": "k", "value": "v"}, to="namesrv"),
    asked("the name server: a broker closed to writers (205)", 205, {"brokerName": "broker-a"}, to="namesrv"),
    asked("the name server: a setting changed (318)", 318, {}, b"listenPort=1", to="namesrv"),
    sent("the name server with `requireSignedLookups`: a route, unsigned (105)", frame(105, {"topic": "orders"}),
         to="namesrv"),
    Attempt("an account that is deleted while its connection lives", _deleted_meanwhile, f"{SERVED}, {REFUSED}"),
    Elsewhere("the HA port, from an address that is not listed", CLOSED,
        "tests/unit/replication/test_allowed_addresses.py::test_the_ha_port_closes_who_is_not_among_them",
        "it asks nobody for a signature: list its peers (`replicationAllowedAddresses`), or ask for certificates"),
    Elsewhere("the HA port, with the certificate of an account that is no administrator's, or with none", CLOSED,
        "tests/unit/replication/test_port_protection.py::test_who_may_copy_the_log",
        "with `tls.server.accountFrom`; one without a certificate is served where its address is listed"),
    Elsewhere("HA, members' and other ports that enforce TLS: plain, no certificate, one of another authority", CLOSED,
        "tests/scenario/test_tls_between_servers.py::test_a_pair_replicates_and_fails_over_and_strangers_get_nowhere"),
    Elsewhere("the port of a group's members, unsigned or as no administrator", REFUSED,
        _HERE + "test_members_ports_serve_only_administrators"),
    Elsewhere("a certificate with a zero byte in its name", CLOSED,
        "tests/unit/access/test_certificate_names.py::test_names_that_mislead_are_refused"),
    Elsewhere("a certificate with several names", CLOSED,
        "tests/unit/access/test_certificate_names.py::test_an_ambiguous_subject_is_refused"),
    Elsewhere("a certificate without a name, or with one of another kind", CLOSED,
        "tests/unit/access/test_certificate_names.py::test_a_certificate_without_such_a_name_says_so"),
    Elsewhere("a certificate with the name `*`", REFUSED, _HERE + "test_certificates_open_their_own_account_alone"),
    Elsewhere("no certificate or another's, and an administrator's name with a wrong signature", REFUSED,
        _HERE + "test_certificates_open_their_own_account_alone"),
    Elsewhere("rules that change between the question who asks and what it may", REFUSED,
        "tests/unit/remoting/gates/test_access_gate.py::test_rules_that_change_in_between_count"),
    Elsewhere("policies of equal weight in another order", "Deny goes first in every order",
        "tests/unit/access/test_policies.py::test_looking_up_is_the_same_as_sorting"),
)  # fmt: skip

_ANSWERS = _HERE + "test_answers_count_on_the_connection_that_was_asked_and_show_no_signature"
FORGED: Section = (
    Elsewhere("an answer to a broker's question, with its number, from another connection", "goes nowhere", _ANSWERS),
    Elsewhere("the signature of who asks for a consumer's running info (307), read by that consumer",
        "is not handed on", _ANSWERS, "with it a request of the same values could be made under any code"),
    Elsewhere("requests of brokers to clients (39, 40, 220, 221, 326), sent to a broker", UNKNOWN,
        _HERE + "test_requests_to_clients_are_not_taken_by_brokers"),
    Elsewhere("a heartbeat with another account's client id, for the replies (326) to it", REFUSED,
        _HERE + "test_a_client_id_stays_with_its_account", "the id is of who had it first, as long as it is connected"),
)  # fmt: skip

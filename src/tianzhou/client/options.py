"""The options that all clients have: whom they ask, under which name, how safely and how often (client.md §1, §21).

Constructors take them as `**keywords: Unpack[ClientKeywords]`; `scripts/facade` writes these from the dataclass.
"""

from __future__ import annotations

import difflib
import inspect
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tianzhou.client.cluster.address_server import DEFAULT_SUBGROUP
from tianzhou.client.cluster.tls import Tls
from tianzhou.client.validation import check_number
from tianzhou.clock import Clock
from tianzhou.errors import ConfigError
from tianzhou.limits import UNPACKED_BODIES, UNPACKED_BODY
from tianzhou.remoting.client import RpcHook

_PASSED_ON = frozenset({inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options of a client instance.

    Args:
        namesrv_addr: name servers, `host:port` joined by `;` or a list; None takes the environment's
            `NAMESRV_ADDR`, or else looks them up at `namesrv_domain`.
        client_id: the id to go by; None makes one that is unique on this machine.
        namesrv_domain: an address server that lists the name servers, when no address is given.
        namesrv_domain_subgroup: which of its lists.
        unit_name: appended to the id and to the address server's URL, where RocketMQ deployments use units.
        unit_mode: whether producers and consumers say that they work in unit mode.
        namespace: wraps the names of topics and groups, see `tianzhou.client.namespaces`; by default that of a
            name server address of the form `http://MQ_INST_….…`.
        namespace_v2: travels with each request and leaves the names as they are; brokers of RocketMQ 5 know it.
        vip_channel_enabled: requests but for pulls go to the brokers' port minus two.
        rpc_hooks: called around each request, see `tianzhou.remoting.client.RpcHook`.
        poll_name_server_interval_ms: pause between refreshes of known routes.
        heartbeat_broker_interval_ms: pause between heartbeats.
        mq_client_api_timeout_ms: limit of small requests.
        connect_timeout_ms: limit of connection attempts.
        max_unpacked_body_bytes: most bytes a compressed message body may have unpacked, as it is when it is looked at;
            looking at a larger one raises, which in a handler means that the message is not consumed.
        max_unpacked_bytes: maximum total size in bytes of the unpacked bodies, of 1 MiB and less each, that the
            messages of this client store. Messages unpack every other compressed body at each access; 0 stores none.
        tls: speak TLS: True by RocketMQ's rules, **which trust any server** unless `tls.client.authServer` says
            otherwise; or an `ssl.SSLContext`, or `TlsSettings`. None asks the environment's `TIANZHOU_TLS_ENABLE`, see
            `tianzhou.client.cluster.tls.context_of`.
        socks_proxy_config: SOCKS 5 proxies by network, as an object or as RocketMQ's JSON:
            `{"10.0.0.0/8": {"addr": "proxy:1080", "username": "", "password": ""}}`; `0.0.0.0/0` is everywhere.
        access_key: signs requests, with `secret_key`, for brokers that check that (ACL); see
            `tianzhou.remoting.signing`. None for both asks the environment's `TIANZHOU_ACCESS_KEY` and
            `TIANZHOU_SECRET_KEY`, as commands do.
        secret_key: never sent.
        security_token: goes with each signed request, where a cloud service wants one.
        clock: source of time.
        rng: source of randomness.

    Raises:
        ConfigError: a value is out of its range. What is parsed (addresses, TLS, proxies, keys) is checked by its
            parser when the instance is made.
    """

    namesrv_addr: str | Sequence[str] | None = None
    client_id: str | None = None
    namesrv_domain: str | None = None
    namesrv_domain_subgroup: str = DEFAULT_SUBGROUP
    unit_name: str | None = None
    unit_mode: bool = False
    namespace: str | None = None
    namespace_v2: str | None = None
    vip_channel_enabled: bool = False
    rpc_hooks: Iterable[RpcHook] = ()
    poll_name_server_interval_ms: int = 30_000
    heartbeat_broker_interval_ms: int = 30_000
    mq_client_api_timeout_ms: int = 3_000
    connect_timeout_ms: int = 3_000
    max_unpacked_body_bytes: int = UNPACKED_BODY.default
    max_unpacked_bytes: int = UNPACKED_BODIES.default
    tls: Tls = None
    socks_proxy_config: str | Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    clock: Clock | None = None
    rng: random.Random | None = None

    def __post_init__(self) -> None:
        check_number("max_unpacked_body_bytes", self.max_unpacked_body_bytes, 1)
        check_number("max_unpacked_bytes", self.max_unpacked_bytes, 0)


def option_names(kind: Any) -> set[str]:
    """The names of a dataclass's options."""
    return {option.name for option in fields(kind)}


def check_option_names(names: Iterable[str], client: type, kind: type | None = None) -> None:
    """Check that keyword arguments are options of every client.

    Args:
        names: those that a client does not know itself.
        client: the client's class; the arguments of its constructor are proposed too when a name is misspelled.
        kind: its own options, proposed likewise.

    Raises:
        ConfigError: there is no such option.
    """
    known = option_names(ClientOptions)
    for name in names:
        if name not in known:
            own = option_names(kind) if kind is not None else set()
            raise ConfigError(_unknown(name, known | own | _arguments(client), client))


def _arguments(client: type) -> set[str]:
    return {
        parameter.name
        for cls in client.__mro__
        if cls is not object
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.kind not in _PASSED_ON
    }


def _unknown(name: str, known: set[str], client: type) -> str:
    near = difflib.get_close_matches(name, known, n=3) or [
        option for option in sorted(known) if difflib.get_close_matches(name, option.split("_"))
    ]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{client.__name__} has no option {name}{hint}"

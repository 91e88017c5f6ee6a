"""The options of all clients: name servers, client id, security and timing (client.md §1, §21).

Constructors take them as `**keywords: Unpack[ClientKeywords]`. `scripts/facade` writes these from the dataclass.
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
        namesrv_addr: name servers, `host:port` joined by `;` or a list; None uses the environment's
            `NAMESRV_ADDR`, or looks them up at `namesrv_domain`.
        client_id: the client id; None creates one that is unique on this machine.
        namesrv_domain: an address server that lists the name servers, when no address is given.
        namesrv_domain_subgroup: name of the list at the address server.
        unit_name: suffix of the client id and of the address server's URL, for RocketMQ deployments with units.
        unit_mode: whether producers and consumers work in unit mode.
        namespace: wraps the names of topics and groups, see `tianzhou.client.namespaces`; by default the namespace in a
            name server address of the form `http://MQ_INST_….…`.
        namespace_v2: a namespace for brokers of RocketMQ 5, which each request contains; names do not change.
        vip_channel_enabled: whether all requests except pulls go to the brokers' port minus two.
        rpc_hooks: called before and after each request, see `tianzhou.remoting.client.RpcHook`.
        poll_name_server_interval_ms: pause between refreshes of known routes.
        heartbeat_broker_interval_ms: pause between heartbeats.
        mq_client_api_timeout_ms: timeout of small requests.
        connect_timeout_ms: timeout of connecting.
        max_unpacked_body_bytes: maximum size in bytes of an unpacked message body. Access to a larger body raises,
            which in a handler means that the message is not consumed.
        max_unpacked_bytes: maximum total size in bytes of the unpacked bodies, of 1 MiB and less each, that the
            messages of this client store. Messages unpack every other compressed body at each access; 0 stores none.
        tls: use TLS: True by RocketMQ's rules, **which trust any server** unless `tls.client.authServer` requires
            otherwise; or an `ssl.SSLContext`, or `TlsSettings`. None uses the environment's `TIANZHOU_TLS_ENABLE`, see
            `tianzhou.client.cluster.tls.context_of`.
        socks_proxy_config: SOCKS 5 proxies by network, as an object or as RocketMQ's JSON:
            `{"10.0.0.0/8": {"addr": "proxy:1080", "username": "", "password": ""}}`; `0.0.0.0/0` means all networks.
        access_key: signs requests, with `secret_key`, for brokers with access control (ACL); see
            `tianzhou.remoting.signing`. None for both uses the environment's `TIANZHOU_ACCESS_KEY` and
            `TIANZHOU_SECRET_KEY`, as commands do.
        secret_key: never sent.
        security_token: sent with each signed request, for cloud services that require one.
        clock: source of time.
        rng: source of randomness.

    Raises:
        ConfigError: a value is out of its range. Addresses, TLS, proxies and keys are checked when the instance is
            created.
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
    """Return the names of a dataclass's options."""
    return {option.name for option in fields(kind)}


def check_option_names(names: Iterable[str], client: type, kind: type | None = None) -> None:
    """Check that keyword arguments are options that every client has.

    Args:
        names: the keyword arguments that are not the client's own options.
        client: the client's class; its constructor's arguments are also suggested for a misspelled name.
        kind: the dataclass of its own options, which are also suggested.

    Raises:
        ConfigError: an option is unknown.
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

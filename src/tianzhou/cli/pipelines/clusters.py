"""The cluster of a pipeline command: its options, and the clients for it."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from tianzhou.cli import topics
from tianzhou.cli.access import read_secret
from tianzhou.cli.output import DEFAULT_NAMESRV, NamesrvOption, TlsOption
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tianzhou.admin import Admin
    from tianzhou.pipelines.topics import Topics

T = TypeVar("T")

ACCESS_KEY, SECRET_KEY = "TIANZHOU_ACCESS_KEY", "TIANZHOU_SECRET_KEY"

AccessKeyOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"The account that requests are signed for; default: {ACCESS_KEY}."),
]
SecretKeyOption = Annotated[
    str | None,
    typer.Option(
        metavar="SECRET",
        help=f"Its secret; default: {SECRET_KEY}. Arguments are seen by all users of the machine: better a file.",
    ),
]
SecretKeyFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File with its secret, readable by you alone.")
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Topics and groups are those of a namespace: orders is NAME%orders at servers."),
]


@dataclass(frozen=True, slots=True)
class PipelineCluster:
    """The servers of a pipeline's topics, and the account for them.

    Attributes:
        namesrv: the name servers.
        tls: see `TlsOption`.
        access_key: the account that signs requests; None for that of the environment.
        secret_key: secret of the account.
        namespace: prefix of the names of topics and groups; None for none.
    """

    namesrv: str = DEFAULT_NAMESRV
    tls: bool | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    namespace: str | None = None

    @property
    def client_options(self) -> dict[str, Any]:
        """Options of clients for the cluster, in addition to the name servers."""
        return {
            "tls": self.tls,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "namespace": self.namespace,
        }

    @property
    def source_options(self) -> dict[str, str | bool | None]:
        """The corresponding options of `format("tianzhou")`."""
        return {
            "namesrvAddr": self.namesrv,
            "tls": self.tls,
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
            "namespace": self.namespace,
        }

    def with_admin(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run admin operations on the cluster. Return their result."""
        keys = {"access_key": self.access_key, "secret_key": self.secret_key, "namespace": self.namespace}
        return topics.with_admin(self.namesrv, self.tls, work, **keys)

    def topics(self, spark: SparkSession, **more: Any) -> Topics:
        """Return the topics as tables and streams of Spark. `more` are further arguments of `Topics`."""
        from tianzhou.pipelines.topics import Topics

        return Topics(spark, self.namesrv, **self.client_options, **more)

    def refuse_store(self, store: str | None) -> None:
        """Reject a namespace for a store: its topics are stored under their full names.

        Raises:
            ConfigError: both are given.
        """
        if store is not None and self.namespace is not None:
            raise ConfigError(
                f"--namespace {self.namespace}: is for servers, and --store {store} asks none; name topics as they are "
                f"stored, {self.namespace}%orders"
            )


def account(
    access_key: str | None, secret_key: str | None, secret_key_file: Path | None, environment: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """Return access key and secret of a command line; both None if it has neither and the environment's apply.

    Args:
        access_key: `--access-key`.
        secret_key: `--secret-key`.
        secret_key_file: `--secret-key-file`.
        environment: environment of the process, with the keys that the command line leaves out.

    Raises:
        ConfigError: one of the two is missing, the secret is given twice, or its file cannot be read or is empty.
    """
    if secret_key is not None and secret_key_file is not None:
        raise ConfigError(f"--secret-key and --secret-key-file {secret_key_file} are both given; leave out the former")
    if access_key is None and secret_key is None and secret_key_file is None:
        return None, None
    if secret_key_file is not None:
        secret_key = read_secret("--secret-key-file", secret_key_file, "the secret")
    found = access_key or environment.get(ACCESS_KEY), secret_key or environment.get(SECRET_KEY)
    if found[0] is None or found[1] is None:
        missing, there = (
            ("--access-key", "a secret key") if found[0] is None else ("--secret-key-file", f"--access-key {found[0]}")
        )
        variable = ACCESS_KEY if found[0] is None else SECRET_KEY
        raise ConfigError(f"{there} is given without {missing}; give it too, or set {variable}")
    return found


_OPTIONS: Final[Mapping[str, tuple[Any, Any]]] = {
    "namesrv": (NamesrvOption, DEFAULT_NAMESRV),
    "tls": (TlsOption, None),
    "access_key": (AccessKeyOption, None),
    "secret_key": (SecretKeyOption, None),
    "secret_key_file": (SecretKeyFileOption, None),
    "namespace": (NamespaceOption, None),
}


def of_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a cluster to a command, which receives them as one argument `cluster`.

    Args:
        command: a Typer command with the keyword parameter `cluster`.

    Returns:
        The command with the signature for Typer.
    """
    own = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _OPTIONS.items()
    ]
    kept = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.parameters.items()
        if name != "cluster"
    ]
    output = [parameter for parameter in kept if parameter.name == "output"]
    shown = [*(parameter for parameter in kept if parameter.name != "output"), *options, *output]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        there = {name: given.pop(name) for name in _OPTIONS}
        keys = account(there["access_key"], there["secret_key"], there["secret_key_file"], os.environ)
        command(**given, cluster=PipelineCluster(there["namesrv"], there["tls"], *keys, there["namespace"]))

    run.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run

"""The cluster of a pipeline command: its options, and what talks to it."""

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
    """Where a pipeline's topics are, and as whom it asks.

    Attributes:
        namesrv: the name servers.
        tls: see `TlsOption`.
        access_key: the account that requests are signed for; None leaves that to the environment.
        secret_key: its secret.
        namespace: wraps the names of topics and groups; None for none.
    """

    namesrv: str = DEFAULT_NAMESRV
    tls: bool | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    namespace: str | None = None

    @property
    def client_options(self) -> dict[str, Any]:
        """Options of the clients that talk to it, beside the name servers."""
        return {
            "tls": self.tls,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "namespace": self.namespace,
        }

    @property
    def source_options(self) -> dict[str, str | bool | None]:
        """The options of `format("tianzhou")` that say the same."""
        return {
            "namesrvAddr": self.namesrv,
            "tls": self.tls,
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
            "namespace": self.namespace,
        }

    def with_admin(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run admin operations against it; returns what they return."""
        keys = {"access_key": self.access_key, "secret_key": self.secret_key, "namespace": self.namespace}
        return topics.with_admin(self.namesrv, self.tls, work, **keys)

    def topics(self, spark: SparkSession, **more: Any) -> Topics:
        """Its topics as Spark's tables and streams; `more` are further arguments of `Topics`."""
        from tianzhou.pipelines.topics import Topics

        return Topics(spark, self.namesrv, **self.client_options, **more)

    def refuse_store(self, store: str | None) -> None:
        """See that no namespace is given for a store, whose topics have the names that servers know.

        Raises:
            ConfigError: it is.
        """
        if store is not None and self.namespace is not None:
            raise ConfigError(
                f"--namespace {self.namespace}: is for servers, and --store {store} asks none; name topics as they are "
                f"stored, {self.namespace}%orders"
            )


def account(
    access_key: str | None, secret_key: str | None, secret_key_file: Path | None, environment: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """Access key and secret of a command line; both None when it names neither, and the environment counts.

    Args:
        access_key: `--access-key`.
        secret_key: `--secret-key`.
        secret_key_file: `--secret-key-file`.
        environment: of the process; has what the command line leaves out of the two.

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
    """Give a command the options of a cluster, which it takes as one argument `cluster`.

    Args:
        command: a command of Typer's; has the parameter `cluster` as a keyword.

    Returns:
        The command as Typer shall see it.
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

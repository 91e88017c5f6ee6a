"""`users list|create|update|delete` and `acl list|set|delete`."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from tianzhou.cli.topics import confirm, with_admin
from tianzhou.errors import ConfigError

PASSWORD: Final = "TIANZHOU_PASSWORD"
"""Environment variable of a user's password. Arguments of commands are visible to all users of the machine."""
LONGEST_FILE: Final = 4096
"""Maximum size in bytes of a file with a secret."""


class UserTypeOption(StrEnum):
    """Type of a user."""

    normal = "Normal"
    super = "Super"


class Status(StrEnum):
    """State of a user."""

    enable = "enable"
    disable = "disable"


class DecisionOption(StrEnum):
    """DecisionOption of a policy about a resource."""

    allow = "Allow"
    deny = "Deny"


class PolicyTypeOption(StrEnum):
    """Type of a policy."""

    custom = "Custom"
    default = "Default"


users_app = typer.Typer(
    help="Users of brokers that check who asks: list, create, update, delete.",
    epilog="Example: tianzhou users create alice --password-file alice.secret",
    no_args_is_help=True,
)
acl_app = typer.Typer(
    help="What users may do: list, set, delete.",
    epilog="Example: tianzhou acl set alice --resource 'Topic:orders*' --action Pub --action Sub",
    no_args_is_help=True,
)
UserArgument = Annotated[str, typer.Argument(help="The user's name, the access key of its clients.")]
ClusterOption = Annotated[str | None, typer.Option("-c", "--cluster", help="Only this cluster's brokers.")]
BrokerOption = Annotated[
    str | None, typer.Option("-b", "--broker", metavar="HOST:PORT", help="Only this broker or name server.")
]
PasswordOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file", help=f"File with the password; without it ${PASSWORD}, or a question at the terminal."
    ),
]
PolicyOption = Annotated[
    PolicyTypeOption, typer.Option("--policy", help="Default counts where no custom entry matches.")
]


def read_password(file: Path | None) -> str | None:
    """Return the password of a file, or of the environment; None if neither is given.

    Raises:
        ConfigError: the file cannot be read, or contains no password.
    """
    if file is None:
        return os.environ.get(PASSWORD) or None
    return read_secret("--password-file", file, "the password")


def read_secret(option: str, file: Path, what: str) -> str:
    """Return the secret in a file of one line.

    Args:
        option: the option with the file, for errors.
        file: the file, of at most `LONGEST_FILE` bytes.
        what: name of the secret, for errors.

    Raises:
        ConfigError: the file cannot be read, or does not consist of one line of text.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(LONGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(f"{option} {file}: {error.strerror}; name a file with one line") from error
    try:
        secret = text.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        secret = ""
    if not secret or len(text) > LONGEST_FILE or "\n" in secret:
        raise ConfigError(f"{option} {file}: expected one line of text, {what}")
    return secret


def need_password(file: Path | None) -> str:
    """Return the password as `read_password` does, or prompt for it at the terminal.

    Raises:
        ConfigError: as `read_password`, or there is no terminal.
    """
    password = read_password(file)
    if password is None:
        if not sys.stdin.isatty():
            raise ConfigError(f"no password: give --password-file FILE, or set {PASSWORD}")
        password = str(typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True))
    return password


def _done(what: str, username: str, servers: list[str], output: Output) -> None:
    if output is Output.json:
        print_json({"user": username, "done": what, "servers": servers})
    else:
        print_line(f"user {username} {what} on {', '.join(servers)}")


@users_app.command("list")
def list_users(
    part: Annotated[str, typer.Option("--filter", help="What their names contain.")] = "",
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List users; passwords are never shown.

    Example: tianzhou users list
    """
    found = with_admin(namesrv, tls, lambda admin: admin.access.users(part, cluster=cluster, broker_addr=broker))
    if not found and output is Output.text:
        print_note("no users; make one with: tianzhou users create NAME")
        return
    print_rows(("user", "type", "status"), [(one.username, one.user_type, one.user_status) for one in found], output)


@users_app.command("create")
def create_user(
    username: UserArgument,
    password_file: PasswordOption = None,
    user_type: Annotated[
        UserTypeOption, typer.Option("--type", help="Super users may do everything.")
    ] = UserTypeOption.normal,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Create a user on every broker, and on name servers that have users.

    Example: tianzhou users create alice --password-file alice.secret
    """
    password = need_password(password_file)
    servers = with_admin(
        namesrv,
        tls,
        lambda admin: admin.access.create_user(
            username, password, user_type=user_type.value, cluster=cluster, broker_addr=broker
        ),
    )
    _done("created", username, servers, output)


@users_app.command("update")
def update_user(
    username: UserArgument,
    password_file: PasswordOption = None,
    user_type: Annotated[UserTypeOption | None, typer.Option("--type", help="Super users may do everything.")] = None,
    status: Annotated[Status | None, typer.Option(help="Who is disabled is refused.")] = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Change a user's password, type or status; what is not given stays.

    Without `--type` and `--status` the password is changed.

    Example: tianzhou users update alice --status disable
    """
    alone = user_type is None and status is None
    password = need_password(password_file) if alone else read_password(password_file) if password_file else None
    servers = with_admin(
        namesrv,
        tls,
        lambda admin: admin.access.update_user(
            username,
            password=password,
            user_type=user_type and user_type.value,
            status=status and status.value,
            cluster=cluster,
            broker_addr=broker,
        ),
    )
    _done("changed", username, servers, output)


@users_app.command("delete")
def delete_user(
    username: UserArgument,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Delete a user with its policies.

    Example: tianzhou users delete alice --yes
    """
    if not yes:
        confirm(f"delete user {username} and its policies?")
    servers = with_admin(
        namesrv, tls, lambda admin: admin.access.delete_user(username, cluster=cluster, broker_addr=broker)
    )
    _done("deleted", username, servers, output)


@acl_app.command("list")
def list_acls(
    username: Annotated[str, typer.Option("--user", help="What the names of users contain.")] = "",
    resource: Annotated[str, typer.Option("--resource", help="What the resources contain.")] = "",
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List what users may do and may not.

    Example: tianzhou acl list --user alice
    """
    found = with_admin(
        namesrv, tls, lambda admin: admin.access.acls(username, resource, cluster=cluster, broker_addr=broker)
    )
    rows = [
        (
            (acl.subject or "").partition(":")[2],
            policy.policy_type,
            entry.resource,
            entry.decision,
            ",".join(entry.actions or ()),
            ",".join(entry.source_ips or ()),
        )
        for acl in found
        for policy in acl.policies or ()
        for entry in policy.entries or ()
    ]
    if not rows and output is Output.text:
        print_note("no policies; make one with: tianzhou acl set USER --resource Topic:NAME --action Pub")
        return
    print_rows(("user", "policy", "resource", "decision", "actions", "source ips"), rows, output)


@acl_app.command("set")
def set_acl(
    username: UserArgument,
    resources: Annotated[
        list[str], typer.Option("-r", "--resource", help="As Topic:orders, 'Topic:orders*', 'Group:*' or '*'.")
    ],
    actions: Annotated[
        list[str],
        typer.Option("-a", "--action", help="Pub, Sub, Create, Update, Delete, Get, List or All."),
    ],
    decision: Annotated[DecisionOption, typer.Option(help="Whether they are allowed.")] = DecisionOption.allow,
    source_ips: Annotated[
        list[str] | None, typer.Option("--source-ip", help="Address or CIDR range it holds for; default: all.")
    ] = None,
    policy: PolicyOption = PolicyTypeOption.custom,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Allow or deny a user actions on resources, in place of what was said about these.

    Example: tianzhou acl set alice --resource 'Topic:orders*' --action Pub --action Sub
    """
    servers = with_admin(
        namesrv,
        tls,
        lambda admin: admin.access.set_acl(
            username,
            resources,
            actions,
            decision=decision.value,
            source_ips=source_ips or (),
            policy_type=policy.value,
            cluster=cluster,
            broker_addr=broker,
        ),
    )
    _done("changed", username, servers, output)


@acl_app.command("delete")
def delete_acl(
    username: UserArgument,
    resource: Annotated[
        str | None, typer.Option("-r", "--resource", help="What to say nothing about; default: all policies.")
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    policy: PolicyOption = PolicyTypeOption.custom,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Remove what was said about a resource, or all policies of a user.

    Example: tianzhou acl delete alice --resource 'Topic:orders*' --yes
    """
    if not yes:
        confirm(f"delete {f'the entry for {resource}' if resource else 'all policies'} of user {username}?")
    servers = with_admin(
        namesrv,
        tls,
        lambda admin: admin.access.delete_acl(
            username, resource, policy_type=policy.value, cluster=cluster, broker_addr=broker
        ),
    )
    _done("changed", username, servers, output)

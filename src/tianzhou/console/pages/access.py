"""Access control: its kind at each broker, users and policies of RocketMQ 5.3, accounts of RocketMQ 4.x."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from nicegui import ui

from tianzhou.admin.accounts import AccountFiles
from tianzhou.console.layout import View, agreed, confirmed, keep_in_address, page, section, table
from tianzhou.errors import TianzhouError
from tianzhou.wire.bodies.access import AclInfo, PlainAccounts, UserInfo

ACTIONS: Final = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
DECISIONS: Final = ("Allow", "Deny")
USER_TYPES: Final = ("Normal", "Super")
PERMISSIONS: Final = ("DENY", "PUB", "SUB", "PUB|SUB")
Draw = Callable[[], Awaitable[None]]
USERS, ACCOUNTS, OFF = "users", "accounts", "off"


def kind_of(values: Mapping[str, str]) -> str:
    """Return the access control that a broker's configuration enables: `users` of 5.3, `accounts` of 4.x, or `off`."""
    if values.get("authenticationEnabled") == "true":
        return USERS
    return ACCOUNTS if values.get("aclEnable") == "true" else OFF


def user_rows(users: Iterable[UserInfo]) -> list[dict[str, Any]]:
    """Return the rows of the table of users."""
    return [
        {"user": one.username or "", "type": one.user_type or "", "status": one.user_status or ""}
        for one in sorted(users, key=lambda one: one.username or "")
    ]


def policy_rows(acls: Iterable[AclInfo], subject: str = "") -> list[dict[str, Any]]:
    """Return the rows of the table of policies.

    Args:
        acls: all policies.
        subject: subject of the wanted policies; empty for all.
    """
    return [
        {
            "key": f"{acl.subject} {policy.policy_type} {entry.resource}",
            "user": (acl.subject or "").removeprefix("User:"),
            "resource": entry.resource or "",
            "actions": ", ".join(entry.actions or ()),
            "decision": entry.decision or "",
            "from": ", ".join(entry.source_ips or ()),
            "policy": policy.policy_type or "",
        }
        for acl in acls
        if not subject or acl.subject == subject
        for policy in acl.policies or ()
        for entry in policy.entries or ()
    ]


def file_rows(files: Iterable[AccountFiles], when: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of the table of account files; `when` returns a time as text (`View.time`)."""
    return [
        {
            "key": f"{one.address} {path}",
            "broker": one.broker_name,
            "file": path,
            "changes": counter,
            "changed": when(at_ms),
        }
        for one in files
        for path, (counter, at_ms) in one.versions.items()
    ]


def account_rows(found: PlainAccounts, broker: str) -> list[dict[str, Any]]:
    """Return the rows of the table of accounts, without the secrets in a broker's reply."""
    return [
        {
            "key": f"{broker} {one.access_key}",
            "broker": broker,
            "account": one.access_key or "",
            "admin": "✓" if one.admin else "",
            "topics": one.default_topic_perm or "",
            "groups": one.default_group_perm or "",
            "exceptions": ", ".join([*(one.topic_perms or ()), *(one.group_perms or ())]),
            "from": one.white_remote_address or "",
        }
        for one in found.plain_access_configs
    ]


@page("/access", "page.access", "lock")
async def show(view: View) -> None:
    """Show the page."""
    masters = await view.console.admin.cluster.masters()
    kinds = dict(zip(masters, await asyncio.gather(*(_kind(view, one) for one in masters.values())), strict=True))
    for kind in (OFF, USERS, ACCOUNTS):
        if names := [name for name, one in kinds.items() if one == kind]:
            ui.label(view.text(f"access.{kind}", brokers=", ".join(names)))
    for name, kind in kinds.items():
        if kind not in (OFF, USERS, ACCOUNTS):
            ui.label(view.text("access.untold", broker=name, why=kind)).classes("text-negative")
    place = ui.column().classes("w-full gap-4")

    async def draw() -> None:
        place.clear()
        with place:
            if USERS in kinds.values():
                await _users(view, draw)
            if with_accounts := {name: masters[name] for name, kind in kinds.items() if kind == ACCOUNTS}:
                await _accounts(view, with_accounts, draw)

    await draw()


async def _kind(view: View, address: str) -> str:
    """Return `kind_of` a broker, or why it does not report its configuration."""
    try:
        return kind_of(await view.console.admin.cluster.broker_config(address))
    except (TianzhouError, OSError) as error:
        return str(error)


# --- users and policies of RocketMQ 5.3 --------------------------------------------------------------------------


async def _users(view: View, draw: Draw) -> None:
    access, chosen = view.console.admin.access, view.query.get("user", "")
    users, acls = await asyncio.gather(access.users(), access.acls())
    with section(view.text("access.list")):
        table(
            [(name, view.text(f"access.{name}")) for name in ("user", "type", "status")],
            user_rows(users),
            key="user",
            links={"user": "?user={value}"},
            filter_text=view.text("filter"),
            kept_for=view,
        )
        if view.visitor.may_change:
            _creation(view, draw)
    found = next((one for one in users if one.username == chosen), None)
    if chosen and found is None:
        ui.label(view.text("access.nobody", name=chosen)).classes("text-negative")
    if found is not None and view.visitor.may_change:
        with section(view.text("access.of", name=chosen)):
            _user(view, found, draw)
    with section(view.text("access.policies.of", name=chosen) if found else view.text("access.policies")):
        _policies(view, acls, chosen if found else "", draw)


def _creation(view: View, draw: Draw) -> None:
    with ui.row().classes("items-center"):
        name = ui.input(view.text("access.user")).props("dense outlined autocomplete=off")
        password = _password(view)
        kind = ui.select(list(USER_TYPES), value="Normal", label=view.text("access.type")).props("dense outlined")

        async def create() -> None:
            user, secret = name.value.strip(), password.value
            outcome = await view.act(
                "create user",
                f"{user} ({kind.value})",
                lambda: view.console.admin.access.create_user(user, secret, user_type=kind.value),
                view.text("access.created", name=user),
            )
            if outcome.done:
                await draw()

        ui.button(view.text("create"), on_click=create)


def _password(view: View) -> ui.input:
    return ui.input(view.text("login.password"), password=True, password_toggle_button=True).props(
        "dense outlined autocomplete=new-password"
    )


def _user(view: View, found: UserInfo, draw: Draw) -> None:
    name, access = found.username or "", view.console.admin.access
    is_on = found.user_status != "disable"
    with ui.row().classes("items-center"):
        password = _password(view)

        async def change(action: str, **values: str) -> None:
            outcome = await view.act(action, name, lambda: access.update_user(name, **values))
            if outcome.done:
                await draw()

        async def delete() -> None:
            if not await confirmed(view, name):
                return
            outcome = await view.act("delete user", name, lambda: access.delete_user(name))
            if outcome.done:
                keep_in_address(view, user="")
                await draw()

        async def switch() -> None:
            verb = view.text("access.disable" if is_on else "access.enable")
            if await agreed(view, f"{verb}: {name}", verb):
                await change("disable user" if is_on else "enable user", status="disable" if is_on else "enable")

        ui.button(
            view.text("access.password"), on_click=lambda: change("change password of user", password=password.value)
        ).bind_enabled_from(password, "value", bool)
        ui.button(view.text("access.disable" if is_on else "access.enable"), on_click=switch).props("outline")
        ui.button(view.text("access.delete"), on_click=delete).props("color=negative outline")


def _policies(view: View, acls: list[AclInfo], user: str, draw: Draw) -> None:
    names = ("user", "resource", "actions", "decision", "from", "policy")
    rows = policy_rows(acls, f"User:{user}" if user else "")
    columns = [(name, view.text(f"access.{name}")) for name in names]
    found = table(columns, rows, key="key", links={"user": "?user={value}"}, filter_text=view.text("filter"))
    if not user or not view.visitor.may_change:
        if view.visitor.may_change:
            ui.label(view.text("access.choose")).classes("text-grey")
        return
    found.props("selection=multiple")
    access = view.console.admin.access
    with ui.row().classes("items-center w-full"):
        resource = ui.input(view.text("access.resource"), placeholder="Topic:orders*").props("dense outlined")
        actions = ui.select(list(ACTIONS), value=["Pub"], multiple=True, label=view.text("access.actions"))
        actions.props("dense outlined").classes("w-48")
        decision = ui.select(list(DECISIONS), value="Allow", label=view.text("access.decision"))
        decision.props("dense outlined").classes("w-32")
        sources = ui.input(view.text("access.from"), placeholder="10.0.0.0/8").props("dense outlined")

        async def put() -> None:
            of, may = resource.value.strip(), list(actions.value)
            addresses = [one.strip() for one in (sources.value or "").split(",") if one.strip()]
            outcome = await view.act(
                "set policy",
                f"{user}: {decision.value} {', '.join(may)} on {of} from {', '.join(addresses) or 'anywhere'}",
                lambda: access.set_acl(user, [of], may, decision=decision.value, source_ips=addresses),
            )
            if outcome.done:
                await draw()

        async def delete() -> None:
            done = True
            for row in found.selected:
                work = partial(access.delete_acl, user, row["resource"], policy_type=row["policy"])
                outcome = await view.act("delete policy", f"{user}: {row['resource']} ({row['policy']})", work)
                done = done and outcome.done
            if done:
                await draw()

        ui.button(view.text("access.put"), on_click=put).bind_enabled_from(resource, "value", bool)
        ui.button(view.text("access.unput"), on_click=delete).props("color=negative outline").bind_enabled_from(
            found, "selected", bool
        )


# --- accounts of RocketMQ 4.x ------------------------------------------------------------------------------------


async def _accounts(view: View, masters: Mapping[str, str], draw: Draw) -> None:
    accounts = view.console.admin.accounts
    files = await asyncio.gather(*map(accounts.files, masters.values()))
    found = await asyncio.gather(*map(accounts.all, masters.values()))
    with section(view.text("access.plain")):
        names = ("broker", "account", "admin", "topics", "groups", "exceptions", "from")
        rows = [row for name, one in zip(masters, found, strict=True) for row in account_rows(one, name)]
        columns = [(name, view.text(f"access.{name}")) for name in names]
        table(columns, rows, key="key", filter_text=view.text("filter"))
        if white := sorted({address for one in found for address in one.global_white_addrs}):
            ui.label(view.text("access.white", addresses=", ".join(white)))
    with section(view.text("access.files")):
        columns = [(name, view.text(f"access.{name}")) for name in ("broker", "file", "changes", "changed")]
        table(columns, file_rows(files, view.time), key="key")
    if not view.visitor.may_change:
        return
    with section(view.text("access.account.set")), ui.row().classes("items-center w-full"):
        key = ui.input(view.text("access.account")).props("dense outlined autocomplete=off")
        secret = _password(view)
        choices = list(PERMISSIONS)
        topics = ui.select(choices, value="DENY", label=view.text("access.topics")).props("dense outlined")
        groups = ui.select(choices, value="SUB", label=view.text("access.groups")).props("dense outlined")
        exceptions = ui.input(view.text("access.exceptions"), placeholder="orders=PUB|SUB").props("dense outlined")
        admin = ui.switch(view.text("access.admin"))

        async def put() -> None:
            name = key.value.strip()
            values: dict[str, Any] = {
                "secret_key": secret.value or None,
                "admin": admin.value,
                "default_topic_perm": topics.value,
                "default_group_perm": groups.value,
                "topic_perms": [one.strip() for one in (exceptions.value or "").split(",") if one.strip()],
            }
            what = f"{name}: topics {topics.value}, groups {groups.value}, {exceptions.value or 'no exceptions'}"
            outcome = await view.act(
                "set account", f"{what}, admin {admin.value}", lambda: _each(masters, accounts.put, name, **values)
            )
            if outcome.done:
                await draw()

        async def delete() -> None:
            name = key.value.strip()
            if not await confirmed(view, name):
                return
            outcome = await view.act("delete account", name, lambda: _each(masters, accounts.delete, name))
            if outcome.done:
                await draw()

        ui.button(view.text("save"), on_click=put).bind_enabled_from(key, "value", bool)
        ui.button(view.text("delete"), on_click=delete).props("color=negative outline").bind_enabled_from(
            key, "value", bool
        )


async def _each(masters: Mapping[str, str], change: Any, name: str, **values: Any) -> None:
    for address in masters.values():
        await change(address, name, **values)

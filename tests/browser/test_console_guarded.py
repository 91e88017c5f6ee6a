"""A cluster with access control, and a console with logins: access and permissions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from page_measures import faint, too_wide

from tianzhou import sync
from waiting import until

PASSWORD = "correct horse battery"
ROOT = {"username": "root", "password": "root-secret"}
SERVE = (
    "--set", "authenticationEnabled=true", "--set", "authorizationEnabled=true",
    "--set", f"initAuthenticationUser={json.dumps(ROOT)}",
)  # fmt: skip


def accounts_file(folder: Path) -> Path:
    from tianzhou.console.accounts import FILE_NAME

    return folder / "tianzhou-console" / FILE_NAME


def save_accounts(folder: Path, *, without: str = "") -> None:
    from tianzhou.console import accounts

    roles = {"ada": accounts.ConsoleRole.ADMIN, "vic": accounts.ConsoleRole.VIEWER, "tom": accounts.ConsoleRole.ADMIN}
    made = {name: accounts.make_account(name, PASSWORD, role) for name, role in roles.items() if name != without}
    before = accounts.load_accounts(accounts_file(folder))
    accounts.save_accounts(accounts_file(folder), {name: before.get(name, one) for name, one in made.items()})


@pytest.fixture(scope="module")
def site(open_site: Any) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIANZHOU_ACCESS_KEY", ROOT["username"])
        patch.setenv("TIANZHOU_SECRET_KEY", ROOT["password"])
        with open_site(save_accounts, SERVE, ("--login",)) as found:
            yield found


def log_in(browser: Any, name: str, password: str = PASSWORD) -> Any:
    page = browser.page
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    return page


def enter(browser: Any, name: str, path: str) -> Any:
    """Log in without the browser, which gets the cookie of the session, and open a page."""
    from tianzhou.console.door import COOKIE

    url, form = browser.site.url, {"name": name, "password": PASSWORD, "to": path}
    answer = httpx.post(f"{url}/login", data=form, trust_env=False, timeout=60)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    cookie = {"name": COOKIE, "value": answer.cookies[COOKIE], "url": url, "httpOnly": True, "sameSite": "Strict"}
    browser.page.context.add_cookies([cookie])
    return browser.open(path)


def test_a_wrong_password_does_not_come_in_and_the_right_one_goes_where_it_wanted(browser: Any) -> None:
    page = browser.page
    page.goto(browser.site.url + "/topics/orders?x=1")
    assert page.url.endswith("/login?to=%2Ftopics%2Forders%3Fx%3D1")
    log_in(browser, "ada", "wrong horse battery")
    page.get_by_role("alert").get_by_text("The name or the password is wrong.").wait_for()
    assert browser.complaints.pop().endswith("403 (Forbidden)")
    log_in(browser, "ada")
    browser.arrives("/topics/orders?x=1")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login", wait_until="commit")
    page.goto(browser.site.url + "/cluster")
    assert "/login" in page.url


def test_a_slow_answer_to_logging_out_still_leads_to_the_log_in_page(browser: Any) -> None:
    page = enter(browser, "ada", "/groups")
    held: list[tuple[Any, Any]] = []
    page.route("**/logout", lambda route: held.append((route, route.fetch(max_redirects=0))))
    page.get_by_role("button", name="Log out").click(no_wait_after=True)
    # The session is over, and the page detects that (it checks every second) before the browser has the reply.
    page.wait_for_timeout(3_000)
    ((route, answer),) = held
    assert (answer.status, answer.headers["location"]) == (303, "/login")
    route.fulfill(response=answer)
    page.get_by_label("Password").wait_for(timeout=10_000)
    assert page.url == browser.site.url + "/login"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_log_in_page_is_legible_in_light_and_dark_and_on_a_telephone(browser: Any, scheme: str) -> None:
    page = browser.page
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(browser.site.url + "/login")
    log_in(browser, "ada", "wrong horse battery")
    page.get_by_role("alert").wait_for()
    assert browser.complaints.pop().endswith("403 (Forbidden)")
    assert faint(page) == []
    assert too_wide(page, 390) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


def test_a_viewer_sees_no_buttons_that_change_anything(browser: Any) -> None:
    enter(browser, "vic", "/topics")
    looks = {"Status", "Route", "Consumers", "Messages", "Progress", "Members", "Dead letters", "Doctor",
             "Lag by queue"}  # fmt: skip
    allowed = {"Menu", "Log out", "Show", "Examine", "Read again", "First page", "Previous page", "Next page",
               "Last page", "",
               "Lag by queue"}  # fmt: skip
    for path in ("/topics", "/topics/orders", "/groups", "/groups/billing", "/cluster", "/brokers/broker-a", "/ops",
                 "/producers", "/access?user=root", "/doctor", "/proof", "/limits", "/audit"):  # fmt: skip
        page = browser.open(path)
        named = page.get_by_role("button").evaluate_all(
            "buttons => buttons.map(one => one.getAttribute('aria-label') || one.innerText)"
        )
        words = {re.sub(r"[a-z_]+\n", "", name).strip().capitalize() for name in named}
        menus = {word for word in words if word.startswith("Operations of ")}
        for name in menus:
            page.get_by_role("button", name=name, exact=False).first.click()
            offered = {re.sub(r"[a-z_]+\n", "", one).strip() for one in page.get_by_role("menuitem").all_inner_texts()}
            assert offered <= looks, (path, name, offered)
            page.keyboard.press("Escape")
            page.get_by_role("menuitem").first.wait_for(state="detached")
        assert bool(menus) == (path in ("/topics", "/groups"))
        words -= menus
        assert words <= {one.capitalize() for one in allowed}, (path, words)


def test_a_session_ends_when_its_account_is_deleted(browser: Any) -> None:
    from playwright.sync_api import TimeoutError as NotThere

    page = enter(browser, "tom", "/groups")
    page.get_by_role("button", name="Add a consumer group").click()
    page.get_by_role("dialog").get_by_label("Consumer group").fill("not-any-more")
    create = page.get_by_role("dialog").get_by_role("button", name="Create")
    save_accounts(browser.site.folder, without="tom")
    # The page checks its session every few seconds, and may have left by itself.
    with suppress(NotThere):
        create.click(timeout=2_000)
    page.get_by_text(re.compile("the session has ended; log in again", re.IGNORECASE)).wait_for()
    with sync.Admin(browser.site.namesrv) as admin:
        assert "not-any-more" not in admin.groups.names()
    page.wait_for_url("**/login?ended=1&to=%2Fgroups", wait_until="commit")  # an open page shows no more data, either
    page.get_by_role("alert").get_by_text("The session has ended; log in again.").wait_for()


def test_users_and_policies_are_made_changed_and_deleted(browser: Any) -> None:
    page = enter(browser, "ada", "/access")
    page.get_by_text("Users and policies of RocketMQ 5.3 are on: broker-a").wait_for()
    page.get_by_label("User", exact=True).fill("alice")
    page.get_by_label("Password").fill("alice-secret")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("link", name="alice").first.click()
    browser.arrives("/access?user=alice")
    page.get_by_label("Resource").fill("Topic:orders*")
    page.get_by_label("Source addresses").last.fill("10.0.0.0/8")
    page.get_by_role("button", name="Set policy").click()
    page.get_by_role("cell", name="Topic:orders*").wait_for()
    with sync.Admin(browser.site.namesrv) as admin:
        (acl,) = admin.access.acls("alice")
        (entry,) = acl.policies[0].entries
        assert (entry.resource, entry.actions, entry.source_ips) == ("Topic:orders*", ["Pub"], ["10.0.0.0/8"])
        page.get_by_role("checkbox").last.click()
        page.get_by_role("button", name="Delete chosen").click()
        until(lambda: not any(policy.entries for one in admin.access.acls("alice") for policy in one.policies or ()))
        page = browser.open("/access?user=alice")
        page.get_by_role("button", name="Disable").click()
        page.get_by_role("dialog").get_by_role("button", name="Disable").click()
        until(lambda: admin.access.user("alice").user_status == "disable")
        page = browser.open("/access?user=alice")
        page.get_by_role("button", name="Delete user").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("textbox").fill("alice")
        dialog.get_by_role("button", name="Delete").click()
        until(lambda: admin.access.user("alice") is None)
    from tianzhou.console.audit import FILE_NAME

    log = (accounts_file(browser.site.folder).parent / FILE_NAME).read_text(encoding="utf-8")
    assert "create user" in log
    assert "alice-secret" not in log

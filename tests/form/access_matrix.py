"""Access decisions for each request, by our servers and by Apache's: the page docs/reference/access-matrix.md.

The decisions of ours come from `tianzhou.access.needs`, and tests/scenario/test_access_matrix.py proves them;
tests/interop/access_answers.py recorded those of Apache's. Print the page by
`PYTHONPATH=src:tests:tests/contract:tests/contract/access python tests/form/access_matrix.py >
docs/reference/access-matrix.md`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import access_cases as cases
import access_readings as readings
import access_tables as tables
from access_requests import ACCOUNTS, CLIENT, NAMESRV, NOBODY, REQUESTS, USERS, Asked

from tianzhou.access.needs import ACCOUNT, LOOKUPS, ROWS
from tianzhou.wire.codes import RequestCode

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "access-matrix.md"
RECORDED = ROOT / "tests" / "interop" / "access_answers.json"
KINDS = {"4.9.7": ACCOUNTS, "5.3.3": USERS}
"""The kind of access control of a version: `aclEnable` has no effect in 5.3.3, and 4.9.7 has no users."""
NOT_SERVED = "not served"
EVERYBODY, ANY_ACCOUNT, PERMITTED, OTHERS = "everybody", "any account", "permitted", "otherwise permitted"
"""The weakest accepted credentials; `OTHERS` where Apache's server requires other permissions than our row."""


def recorded() -> dict[str, dict[int, str]]:
    """Return the credentials that each version accepted in the recording, by request code."""
    text = json.loads(RECORDED.read_text(encoding="utf-8"))
    return {version: {int(code): who for code, who in found.items()} for version, found in text.items()}


def wanted(code: int, kind: str) -> str:
    """Return the credentials that the row of a code accepts, whether the code is served or not."""
    row = ROWS[code]
    return ANY_ACCOUNT if (row.plain if kind == ACCOUNTS else row.policy) == ACCOUNT else PERMITTED


def ours(request: Asked, kind: str) -> str:
    """Return the credentials that our servers accept."""
    if request.to in (CLIENT, NOBODY) or request.kind not in ("", kind):
        return NOT_SERVED
    if request.code in LOOKUPS:
        return EVERYBODY
    return wanted(request.code, kind)


def differences() -> Iterator[tuple[int, str]]:
    """Yield codes and versions of Apache's where both serve a request and accept different credentials."""
    answers = recorded()
    for request in REQUESTS:
        for version, kind in KINDS.items():
            both = {ours(request, kind), answers[version][request.code]}
            if len(both) > 1 and NOT_SERVED not in both:
                yield request.code, version


def page() -> str:
    """Return the text of docs/reference/access-matrix.md."""
    lines = [
        "# Who is let in with each request",
        "",
        "Every request code was sent with no credentials, with a wrong secret, as an account without permission, and",
        "as one that has what [the table of needs](access.md) names and no more. The cells say the least of these that",
        "access control let through: `everybody` (no credentials), `any account`, or `permitted`. But for look-ups at",
        "name servers ([below](#name-servers)) ours let nobody in without an account, and refuse each wrong secret.",
        "",
        "| | ours | Apache's |",
        "|---|---|---|",
        "| 4.x | `aclEnable`, accounts in `plain_acl.yml` | 4.9.7, the same file |",
        "| 5.3 | `authenticationEnabled`, `authorizationEnabled` | 5.3.3, the same users and policies |",
        "| ports | broker, fast port, name server, members of a DLedger group | broker, name server |",
        "| plain | all codes | all codes |",
        "| TLS | all codes, but for members | some codes |",
        "| TLS with a client's certificate | all codes, but for members | |",
        "| test | `scenario/test_access_matrix.py` | `interop/apache_servers/test_access_matrix_vs_apache.py` |",
        "",
        "A request goes to the server that serves its code. Every other port of ours answers any account that the",
        "code is not served there (3), as Apache's brokers do. Members of a group check each request by its row.",
        "`aclEnable` has no effect in 5.3.3. Apache's name servers check no access, and settings of users do not",
        "change this. For a code that is not served here, `otherwise permitted` means that Apache's server requires",
        "another permission than its row.",
        "",
        "The page is printed by `PYTHONPATH=src:tests:tests/contract:tests/contract/access python",
        "tests/form/access_matrix.py`.",
        "",
        "| code | name | asked of | 4.x: ours | 4.9.7 | 5.3: ours | 5.3.3 | why ours want more |",
        "|---|---|---|---|---|---|---|---|",
    ]
    answers, differ = recorded(), {code for code, _ in differences()}
    for request in sorted(REQUESTS, key=lambda one: one.code):
        code = request.code
        cells = [
            str(code),
            RequestCode(code).name,
            "name server" if request.to == NAMESRV else "broker",
            *(text for version, kind in KINDS.items() for text in (ours(request, kind), answers[version][code])),
            ROWS[code].differs if code in differ else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [*_name_servers(), *_white_lists(), *_files(), *_changes(), *_policies()]
    return "\n".join(lines) + "\n"


NAME_SERVERS = """
## Name servers

With access control a name server of ours answers look-ups ({codes}) to every
peer, as Apache's do: they say which topics and brokers there are, and change nothing. `requireSignedLookups=true`
answers them to accounts alone, by [the table of needs](access.md). All other codes need an account either way.

| client | by default | with `requireSignedLookups=true` |
|---|---|---|
| Java 4.9.7 and 5.3.3, all kinds | works | works |
| C++ and Node | works | works |
| Go 2.1.2: producers, push consumers | works | works |
| Go 2.1.2: pull consumer | works | has no route: it does not sign what it asks name servers |
| Go 2.1.2: `FetchAllTopicList` of its admin client | works | is refused: it is not signed |
| `mqadmin` without credentials | lists topics and brokers | is refused |
| a wrong secret, no credentials | the broker refuses, and says why | has no route: most clients report no topic |
| a user of 5.3 with Update, Create or Delete on a topic alone | works | works: any action gives the route |

What a tool does in two steps needs the same permission for both. `deleteTopic` needs Delete on the topic at the broker
(215) and at name servers (216, and 102 for the order of an ordered topic). `updateTopic -o true` needs Create at the
broker (17), and Create or Update for the order at name servers (100, 101).
"""
WHITE_LISTS = """
## Accounts that their address lets in

An account with a `whiteRemoteAddress` may do everything from there, as with Apache's 4.9.7: also what acts on messages
of other topics, which are ends of transactions (37), messages sent back (36) or viewed (33), and answers of the
broker's question about a transaction (39). A request code in 5.3's `authorizationWhitelist` needs no policy for the
topic of its message either.

Clients send the end of a transaction one-way. Apache's brokers do not answer one that they refuse. Ours log it and
answer it with the code and the text of the refusal: our producer logs an error, and Java's log a warning with the text
(`receive response, but not matched any request`). A message whose end is refused is not delivered.
"""


def _name_servers() -> list[str]:
    codes = ", ".join(f"{code} {RequestCode(code).name}" for code in sorted(LOOKUPS))
    return NAME_SERVERS.format(codes=codes).rstrip("\n").split("\n")


def _white_lists() -> list[str]:
    return WHITE_LISTS.rstrip("\n").split("\n")


def _files() -> list[str]:
    lines = [
        "",
        "## `plain_acl.yml`",
        "",
        f"{len(cases.FILES)} files and {len(cases.PATTERNS)} patterns of addresses were given to Apache's 4.9.7 and to",
        "ours. Ours read what Apache's read, refuse to start where Apache's do, and warn about each oddity with its",
        "line. The tests are `interop/apache_servers/test_access_rules_vs_apache.py`. These are stricter here:",
        "",
        "| file or pattern | why |",
        "|---|---|",
    ]
    stricter = {**tables.STRICTER_FILES, **{f"`{key}`": why for key, why in tables.STRICTER_PATTERNS.items()}}
    lines += [f"| {name} | {why} |" for name, why in stricter.items()]
    failing = ", ".join(f"`{pattern}`" for pattern, one in tables.patterns().items() if one["fails"])
    lines += [
        "",
        f"With some patterns ({failing}) Apache's start, and fail at each request. Ours do not start with one in the",
        "global white list, and leave out an account that has one. What ours warn about:",
        "",
        "| file | Apache's 4.9.7 | ours |",
        "|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(cases.FILES):
            home = Path(folder) / str(number)
            home.mkdir()
            own = readings.read_file(home, name)
            says = own["says"].replace("conf/plain_acl.yml: ", "").replace("|", "\\|")
            theirs = "starts" if tables.files()[name]["starts"] else "does not start"
            if says:
                lines.append(f"| {name} | {theirs} | {'' if own['starts'] else 'does not start: '}{says} |")
    return lines


def _changes() -> list[str]:
    lines = [
        "",
        "## Changes of rule files while the server runs",
        "",
        "Whether the account of the file before is still let in. A file whose rules stay is named in the log, by the",
        "metric `tianzhou_task_failing`, by `tianzhou status` and by `tianzhou doctor`.",
        "",
        "| change | Apache's 4.9.7 | ours | why |",
        "|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(cases.CHANGES):
            home = Path(folder) / str(number)
            home.mkdir()
            own = readings.after_change(home, name)
            words = ["let in" if one else "refused" for one in (tables.changes()[name], own)]
            lines.append(f"| {name} | {words[0]} | {words[1]} | {tables.SOONER_REVOKED.get(name, '')} |")
    return lines


def _policies() -> list[str]:
    lines = [
        "",
        "## Policies of 5.3 whose entries compete",
        "",
        "Entries that name the resource or a prefix of it decide first, then `Topic:*`, then `*`; within one of these",
        "three ranks an entry that denies goes before one that allows. Apache's 5.3.3 sorts entries by an order that",
        "contradicts itself: it takes the shorter of two prefixes, the entry that allows where another one denies the",
        "same resource, and of a name and a prefix the one that was made last (`either`). Ours refuse whatever",
        f"Apache's may refuse. The table has every pair of entries for `{cases.RESOURCE}` of which one allows and one",
        f"denies; the tests compare all {len(list(cases.policies()))} sets of up to three.",
        "",
        "| allows | denies | Apache's 5.3.3 | ours |",
        "|---|---|---|---|",
    ]
    recorded_decisions = tables.policies()
    for entries in cases.policies():
        by_decision = {decision: resource for resource, _, decision in (one.partition("=") for one in entries)}
        if len(entries) == len(by_decision) == 2:
            allows, denies = by_decision["Allow"], by_decision["Deny"]
            decision = recorded_decisions[" ".join(entries)]
            lines.append(f"| `{allows}` | `{denies}` | {decision} | {readings.decided(entries)} |")
    return lines


if __name__ == "__main__":
    print(page(), end="")

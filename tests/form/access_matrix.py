"""Who is let in with each request, here and by Apache's servers: the page docs/reference/access-matrix.md.

What ours do comes from `tianzhou.access.needs`, and tests/scenario/test_access_matrix.py proves it; what Apache's do
was recorded by tests/interop/access_answers.py. Print the page by
`PYTHONPATH=src:tests:tests/contract python tests/form/access_matrix.py > docs/reference/access-matrix.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from access_requests import ACCOUNTS, CLIENT, NAMESRV, NOBODY, REQUESTS, USERS, Asked

from tianzhou.access.needs import ACCOUNT, ROWS
from tianzhou.wire.codes import RequestCode

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "access-matrix.md"
RECORDED = ROOT / "tests" / "interop" / "access_answers.json"
KINDS = {"4.9.7": ACCOUNTS, "5.3.3": USERS}
"""The kind of access control of a version: `aclEnable` has no effect in 5.3.3, and 4.9.7 has no users."""
NOT_SERVED = "not served"
EVERYBODY, ANY_ACCOUNT, PERMITTED, OTHERS = "everybody", "any account", "permitted", "otherwise permitted"
"""The least credentials that are let in; `OTHERS` where what our row names is not what Apache's server wants."""


def recorded() -> dict[str, dict[int, str]]:
    """Whom each version let in when it was asked last, by request code."""
    text = json.loads(RECORDED.read_text(encoding="utf-8"))
    return {version: {int(code): who for code, who in found.items()} for version, found in text.items()}


def wanted(code: int, kind: str) -> str:
    """Whom the row of a code lets in, whether the code is served or not."""
    row = ROWS[code]
    return ANY_ACCOUNT if (row.plain if kind == ACCOUNTS else row.policy) == ACCOUNT else PERMITTED


def ours(request: Asked, kind: str) -> str:
    """Whom our servers let in."""
    if request.to in (CLIENT, NOBODY) or request.kind not in ("", kind):
        return NOT_SERVED
    return wanted(request.code, kind)


def differences() -> Iterator[tuple[int, str]]:
    """Codes and versions of Apache's where both serve a request and let in others."""
    answers = recorded()
    for request in REQUESTS:
        for version, kind in KINDS.items():
            both = {ours(request, kind), answers[version][request.code]}
            if len(both) > 1 and NOT_SERVED not in both:
                yield request.code, version


def page() -> str:
    """docs/reference/access-matrix.md."""
    lines = [
        "# Who is let in with each request",
        "",
        "Every request code was sent with no credentials, with a wrong secret, as an account without permission, and",
        "as one that has what [the table of needs](access.md) names and no more. The cells say the least of these that",
        "access control let through: `everybody` (no credentials), `any account`, or `permitted`. Ours let nobody",
        "in without an account, and refuse each wrong secret.",
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
        "A code is asked of the server that serves it. Every other port of ours tells any account that the code is not",
        "served there (3), as Apache's brokers do. Members take each request by its row. `aclEnable` has no effect in",
        "5.3.3. Apache's name servers ask nobody, and settings of users change nothing about that. With a code that is",
        "not served here `otherwise permitted` means that Apache's server wants something else than its row.",
        "",
        "The page is printed by `PYTHONPATH=src:tests:tests/contract python tests/form/access_matrix.py`.",
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
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")

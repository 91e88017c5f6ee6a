"""Every limit, its key, its default and the reply above it: docs/reference/limits.md.

Print the page by `PYTHONPATH=src python tests/form/limits_table.py > docs/reference/limits.md`.
"""

from __future__ import annotations

from tianzhou.limits import LIMITS, Limit

HEAD = """# Limits

Nothing a peer sends makes a server or a client grow without end. This page has every bound, printed from
`tianzhou/limits.py`; for each of them a test sends one more than is allowed. A key in `broker.conf`, `namesrv.conf` or
`--set` changes it, a client's is an option of its constructor; a limit without a key is fixed, because no other value
would work. How often a broker refused each stands in its runtime figures (`mqadmin brokerStatus`, `tianzhou status -o
json`) as `refused_` and its name; a name server has no such request, and says so in its log. What ten thousand hostile
connections cost a server is on a page of its own: [hostile crowds](hostile-crowds.md).
"""
SECTIONS = {
    "both": "Brokers and name servers",
    "broker": "Brokers",
    "name server": "Name servers",
    "client": "Clients",
}


def row(limit: Limit) -> str:
    key = f"{limit.name} (fixed)" if limit.fixed else f"`{limit.name}`"
    most = f"{limit.default:_}".replace("_", " ")
    return f"| {limit.bounds} | {key} | {most} {limit.unit} | {limit.answer} |"


def page() -> str:
    parts = [HEAD]
    for server, title in SECTIONS.items():
        rows = [row(limit) for limit in LIMITS.values() if limit.server == server]
        if rows:
            parts.append(
                f"\n## {title}\n\n| what | key | default | above it |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
            )
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")

"""The lines that are measured, the server of each, and the targets relative to Apache's broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from accounts import SIGNS


@dataclass(frozen=True, slots=True)
class Wanted:
    """A bound on one figure: a minimum or maximum ratio to Apache's; `absolute`: a bound on the figure itself."""

    figure: str
    least: float | None = None
    most: float | None = None
    absolute: bool = False

    def met(self, value: float) -> bool:
        """Whether a ratio (or the figure itself) is within the bound."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table.

    Args:
        name: name in `--lines`.
        title: title in the table.
        options: options of the load tool.
        server: one of `SERVERS`.
        before: options of a load tool run that ends before the measurement.
        wanted: the bounds.
        seconds: duration, if the line has its own.
    """

    name: str
    title: str
    options: str
    server: str = "plain"
    before: str = ""
    wanted: tuple[Wanted, ...] = ()
    seconds: int = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of a server for some lines.

    Args:
        flush: `async` or `sync`.
        copies: one of `replicas.COPIES`; empty for a single broker.
        warmed: factor on the warm-up time.
        segments: segments of 1 GiB in the store before the start (`stored.py`).
        free_gib: disk space in GiB that its lines need.
        once: whether to run in the first round only.
        short: whether to run with `--short`, too.
        access: one of `accounts.ACCESS`; empty for no access control. The load tool signs.
    """

    flush: str = "async"
    copies: str = ""
    access: str = ""
    warmed: int = 1
    segments: int = 0
    free_gib: int = 8
    once: bool = False
    short: bool = True


SERVERS: Final = {
    "plain": Setting(free_gib=12),
    "sync": Setting(flush="sync"),
    "pair": Setting(copies="sync_pair", warmed=2, free_gib=24),
    "apair": Setting(copies="async_pair", warmed=2, free_gib=24),
    "group": Setting(copies="group", warmed=3, free_gib=36),
    "topics": Setting(),
    "accounts": Setting(access="accounts"),
    "users": Setting(access="users"),
    "stored1g": Setting(segments=1),
    "stored100g": Setting(segments=100),
    "sustained": Setting(free_gib=16, once=True, short=False),
}

# Number of messages stored before pulls begin, so that every side reads the same amount.
PULLED: Final = "-m batch -n 32 -c 8 -w 4 -T PullTest -M 400000"
FIGURES: Final = {
    "msgs_per_s": "messages/s",
    "p50_us": "p50",
    "p99_us": "p99",
    "cpu_us_per_msg": "broker's CPU µs per message",
    "made_s": "seconds to make the topics and their queues",
    "start_s": "seconds to open port",
    "idle_anon_mb": "anonymous memory when idle, MB",
    "stored_mb_per_s": "MB/s stored",
    "disk_mb_per_s": "the disk's own MB/s, just before",
    "disk_share": "share of the disk's own",
    "behind_s": "seconds until the disk had all, afterwards",
}


def _puts(times: float, p99: float, cpu: float | None = None) -> tuple[Wanted, ...]:
    wanted = (Wanted("msgs_per_s", least=times), Wanted("p99_us", most=p99))
    return wanted if cpu is None else (*wanted, Wanted("cpu_us_per_msg", most=cpu))


def _pulls(times: float) -> tuple[Wanted, ...]:
    return Wanted("msgs_per_s", least=times), Wanted("cpu_us_per_msg", most=0.6)


START: Final = Line("start", "start", "", wanted=(Wanted("start_s", most=0.25), Wanted("idle_anon_mb", most=0.25)))
LINES: Final = {
    line.name: line
    for line in (
        START,
        Line("put1x1", "PUT 1 x 1", "-c 1 -w 1", wanted=(Wanted("p50_us", most=0.4), Wanted("p99_us", most=0.4))),
        Line("put64x1", "PUT 64 x 1", "-c 64 -w 1", wanted=_puts(2, 0.2, 0.4)),
        Line("put8x32", "PUT 8 x 32", "-c 8 -w 32", wanted=_puts(5, 0.2)),
        Line("put1x256", "PUT 1 x 256", "-c 1 -w 256", wanted=_puts(5, 0.2)),
        Line(
            "batch8x4",
            "batch of 32, 8 x 4",
            "-m batch -n 32 -c 8 -w 4",
            wanted=(Wanted("msgs_per_s", least=3), Wanted("cpu_us_per_msg", most=0.2)),
        ),
        Line("pull1x1", "PULL 32, 1 x 1", "-m pull -n 32 -c 1 -w 1 -T PullTest", before=PULLED, wanted=_pulls(1.5)),
        Line("pull8x1", "PULL 32, 8 x 1", "-m pull -n 32 -c 8 -w 1 -T PullTest", before=PULLED, wanted=_pulls(1.5)),
        Line("pull8x4", "PULL 32, 8 x 4", "-m pull -n 32 -c 8 -w 4 -T PullTest", before=PULLED, wanted=_pulls(1.2)),
        Line(
            "e2e10k",
            "end to end at 10 000/s",
            "-m e2e -r 10000 -T EndToEnd",
            before="-c 1 -w 1 -T EndToEnd -M 80",
            wanted=(Wanted("p50_us", most=0.3), Wanted("p99_us", most=2000, absolute=True)),
        ),
        Line("sync1x1", "SYNC_FLUSH, PUT 1 x 1", "-c 1 -w 1", "sync", wanted=_puts(2, 0.3)),
        Line("sync64x1", "SYNC_FLUSH, PUT 64 x 1", "-c 64 -w 1", "sync", wanted=_puts(2, 0.3)),
        Line("sync8x32", "SYNC_FLUSH, PUT 8 x 32", "-c 8 -w 32", "sync", wanted=_puts(4, 0.3)),
        *(
            Line(f"{server}{name}", f"{title}, {load}", options, server, wanted=wanted)
            for server, title in (
                ("pair", "SYNC_MASTER and slave"),
                ("apair", "ASYNC_MASTER and slave"),
                ("group", "DLedger group of three"),
            )
            for name, load, options, wanted in (
                ("64x1", "PUT 64 x 1", "-c 64 -w 1", _puts(2, 0.5)),
                ("8x32", "PUT 8 x 32", "-c 8 -w 32", _puts(2, 0.5)),
                ("batch", "batch of 32, 8 x 4", "-m batch -n 32 -c 8 -w 4", (Wanted("msgs_per_s", least=2),)),
            )
        ),
        *(
            Line(
                f"topics{count}",
                f"PUT 64 x 1 over {count:,} topics".replace(",", " "),
                f"-c 64 -w 1 -T Spread{count}n -k {count}",
                "topics",
                before=f"-c 8 -w 1 -T Spread{count}n -k {count} -M {count * 8}",
            )
            for count in (10, 100, 1000)
        ),
        Line("signed64x1", "signed, no access control, PUT 64 x 1", "-c 64 -w 1" + SIGNS),
        Line("accounts64x1", "aclEnable, PUT 64 x 1", "-c 64 -w 1" + SIGNS, "accounts"),
        Line("users64x1", "users and policies, PUT 64 x 1", "-c 64 -w 1" + SIGNS, "users"),
        Line("stored1g", "PUT 64 x 1, 1 GiB stored", "-c 64 -w 1", "stored1g"),
        Line("stored100g", "PUT 64 x 1, 100 GiB stored", "-c 64 -w 1", "stored100g"),
        Line("sustained", "PUT 8 x 32 for a minute", "-c 8 -w 32", "sustained", seconds=60),
    )
}
GROUPS: Final = ("put64x1", "put8x32", *(name for name, line in LINES.items() if SERVERS[line.server].copies))
"""Lines of the table of masters with slaves and of groups."""
FLAT: Final = 1.5
A_SLAVE: Final = 1.1
SIGNED: Final = 1 / 0.85
# Pairs of lines: the figure of the second relative to the first, and the maximum slowdown.
GROWTH: Final = (
    ("topics10", "topics1000", FLAT),
    ("stored1g", "stored100g", FLAT),
    ("put64x1", "apair64x1", A_SLAVE),
    ("put8x32", "apair8x32", A_SLAVE),
    # The load tool needs time to sign, too, so compare signed lines with each other to get the cost of the broker's
    # checks.
    ("put64x1", "signed64x1", SIGNED),
    ("signed64x1", "accounts64x1", SIGNED),
    ("signed64x1", "users64x1", SIGNED),
)


def chosen(names: str, *, short: bool) -> tuple[list[Line], list[str]]:
    """Return the lines of a comma list (empty: all with one broker and no access control), and the reasons for those
    left out.

    Raises:
        ValueError: a name is unknown.
    """
    asked = [name.strip() for name in names.split(",") if name.strip()] or [
        name for name, line in LINES.items() if not SERVERS[line.server].copies and not SERVERS[line.server].access
    ]
    unknown = [name for name in asked if name not in LINES]
    if unknown:
        raise ValueError(f"no line {', '.join(unknown)}; there are {', '.join(LINES)}")
    lines, left_out = [], []
    for name in asked:
        if short and not SERVERS[LINES[name].server].short and not names:
            left_out.append(f"{name}: takes a minute a side, not part of --short; ask for it with --lines {name}")
        else:
            lines.append(LINES[name])
    return lines, left_out

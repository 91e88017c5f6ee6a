"""Numbers of examples of hypothesis: one profile for each kind of run, and a part of it for costly properties.

No test states a number itself. A property uses the number of the profile. A property with expensive examples, each of
which opens a store or starts a server, uses a part of this number by `@costly`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUICK_EXAMPLES = 25
"""Examples of each property in `./test --quick`."""
COMMIT_EXAMPLES = 100
"""Examples of each property in `./test`."""
SLOW_EXAMPLES = 600
"""Examples of each property in `./test --slow`."""
FEWEST_EXAMPLES = 5


def register() -> None:
    """Register the profiles and load `usual`, the profile of runs of single files.

    `quick` and `commit` draw the same examples in each run, so that only a change causes a failure. `usual` and `slow`
    draw other examples each time. No profile has a deadline, so that a busy machine causes no failure.
    """
    anywhere = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    for name, examples, is_same in (
        ("quick", QUICK_EXAMPLES, True),
        ("commit", COMMIT_EXAMPLES, True),
        ("usual", COMMIT_EXAMPLES, False),
        ("slow", SLOW_EXAMPLES, False),
    ):
        settings.register_profile(name, anywhere, max_examples=examples, derandomize=is_same)
    settings.load_profile("usual")


def costly(part: float, *, fixtures: bool = False, profile: settings | None = None) -> settings:
    """Return settings of a property whose examples are expensive.

    Args:
        part: fraction of the profile's number of examples, above 0 and below 1.
        fixtures: whether all examples may share fixtures of the test, such as its folder.
        profile: name of the profile; by default the profile of this run.
    """
    whole = profile or settings.default
    assert whole is not None
    examples = max(FEWEST_EXAMPLES, round(whole.max_examples * part))
    checks = [*whole.suppress_health_check, *[HealthCheck.function_scoped_fixture] * fixtures]
    return settings(whole, max_examples=examples, suppress_health_check=checks)

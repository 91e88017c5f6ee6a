"""How many examples hypothesis tries a property with: profiles by the kind of run, and parts of them for costly ones.

No test states a number itself. A property takes the number of the profile; one whose examples are expensive, because
each opens a store or starts a server, takes a part of it by `@costly`.
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
    """Register the profiles and load the one of single files, `usual`.

    `quick` and `commit` draw the same examples in each run, because a failure shall come from the change and not from
    the run; `usual` and `slow` draw other examples each time. None has a deadline: a busy machine breaks no property.
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
        part: part of the profile's number of examples, above 0 and below 1.
        fixtures: whether all examples may share fixtures of the test, such as its folder.
        profile: the profile, by default the one of this run.
    """
    whole = profile or settings.default
    assert whole is not None
    examples = max(FEWEST_EXAMPLES, round(whole.max_examples * part))
    checks = [*whole.suppress_health_check, *[HealthCheck.function_scoped_fixture] * fixtures]
    return settings(whole, max_examples=examples, suppress_health_check=checks)

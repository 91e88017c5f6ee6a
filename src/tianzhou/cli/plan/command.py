"""`plan brokers|consumers`; options without a command are those of `plan brokers`."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperGroup

from tianzhou.cli.plan.brokers import brokers
from tianzhou.cli.plan.consumers import consumers

HELP_OPTIONS: Final = frozenset({"-h", "--help"})


class PlanGroup(TyperGroup):
    """The family `plan`. Options directly after `plan` belong to `brokers`.

    Before `plan consumers` existed, `tianzhou plan --rate 100000` was the whole command, and users' scripts still
    contain it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments as click does. Options before any command get the command `brokers`."""
        if args and args[0].startswith("-") and args[0] not in HELP_OPTIONS:
            args = ["brokers", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    help="Plan a load: brokers, consumers.",
    epilog="Example: tianzhou plan consumers --peak 5000 --cpu-ms 2 --io-ms 18 --cores 8",
    no_args_is_help=True,
    cls=PlanGroup,
)
app.command()(brokers)
app.command()(consumers)

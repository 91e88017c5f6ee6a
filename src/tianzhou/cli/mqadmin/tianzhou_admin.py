"""`tianzhou admin NAME …`, the same as `mqadmin NAME …`."""

from __future__ import annotations

import typer

from tianzhou.cli.output import Output, OutputOption, print_note, print_text


def admin(context: typer.Context, output: OutputOption = Output.text) -> None:
    """Sub-commands of Apache's mqadmin by their own names, flags and output columns.

    `tianzhou admin` lists them, `tianzhou admin help NAME` explains one.

    Example: tianzhou admin clusterList -n 127.0.0.1:9876
    """
    from tianzhou.cli.mqadmin.tool import run

    more = ["--json"] if context.args and output is Output.json else []
    run([*context.args, *more], print_text, print_note)

"""`pipeline cdc`, `merge` and `verify`: rows of a database to messages, back to a table, and a comparison of both."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.cli.output import Output, OutputOption, print_fields, print_json, print_line, print_rows
from tianzhou.cli.pipelines.archive_replay import ensure_target, ensure_topics
from tianzhou.cli.pipelines.clusters import PipelineCluster, of_cluster
from tianzhou.cli.pipelines.command import (
    CheckpointOption,
    ConfOption,
    DeliveryOption,
    FollowOption,
    app,
    delivery_of,
    on_spark,
    run_query,
)
from tianzhou.cli.progress import progress
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tianzhou.pipelines.binlog.comparing import Comparison
    from tianzhou.pipelines.binlog.database import Server
    from tianzhou.pipelines.topics import Topics

PASSWORD = "MYSQL_PWD"


@app.command()
@of_cluster
def cdc(
    database: Annotated[str, typer.Argument(metavar="USER@HOST[:PORT]", help="The database; password in MYSQL_PWD.")],
    table: Annotated[list[str], typer.Option("--table", help="schema.table; may be repeated.")],
    to: Annotated[str, typer.Option(help="Topic the changes are sent to.")],
    checkpoint: CheckpointOption,
    snapshot: Annotated[bool, typer.Option(help="Begin with the rows that are there already.")] = True,
    follow: FollowOption = False,
    delivery: DeliveryOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.text,
    *,
    cluster: PipelineCluster,
) -> None:
    """Send the changes of MySQL or MariaDB tables to a topic, in order by primary key.

    Example: tianzhou pipeline cdc repl@db:3306 --table shop.orders --to orders-cdc --checkpoint cdc --follow
    """
    user, host, port = database_of(database)
    delivered = delivery_of(delivery)
    ensure_target(to, cluster)

    def start(topics: Topics) -> StreamingQuery:
        from tianzhou.pipelines.binlog_source import capture

        return capture(
            topics,
            to,
            checkpoint,
            host=host,
            port=port,
            user=user,
            password=_password(),
            tables=table,
            snapshot=snapshot,
            follow=follow,
        )

    rows = run_query(start, "cdc", conf, cluster, delivered, "changes")
    print_fields({"changes": rows.sent, "to": to, **_schemas(_server(user, host, port), table)}, output)


def _password() -> str:
    return os.environ.get(PASSWORD, "")


def _server(user: str, host: str, port: int) -> Server:
    from tianzhou.pipelines.binlog.database import Server

    return Server(host, port, user, _password())


def _schemas(server: Server, names: Sequence[str]) -> dict[str, str]:
    """Return the columns of each table in the form of `merge --schema`, by name."""
    tables = server.captured([table_of(name) for name in names])
    return {f"schema of {table.full_name}": table.spark_schema for table in tables.values()}


def table_of(text: str) -> tuple[str, str]:
    """Parse `schema.table`.

    Raises:
        ConfigError: the text has another form.
    """
    schema, dot, name = text.partition(".")
    if not (schema and dot and name):
        raise ConfigError(f"{text}: expected schema.table")
    return schema, name


def database_of(text: str) -> tuple[str, str, int]:
    """Parse `user@host:port`.

    Raises:
        ConfigError: the text has another form.
    """
    user, at, place = text.rpartition("@")
    host, _, port = place.partition(":")
    if not (at and user and host and (port or "3306").isdecimal()):
        raise ConfigError(f"{text}: expected USER@HOST or USER@HOST:PORT; the password belongs into {PASSWORD}")
    return user, host, int(port or 3306)


@app.command()
@of_cluster
def merge(
    topic: Annotated[str, typer.Argument(help="Topic of the changes, as `pipeline cdc` sends them.")],
    to: Annotated[str, typer.Option(help="Folder of the table.")],
    table: Annotated[str, typer.Option(help="schema.table whose changes to take.")],
    schema: Annotated[str, typer.Option(help="Its columns, 'id INT, name STRING'.")],
    retention_hours: Annotated[
        int, typer.Option(help="Hours for which replaced files and the keys of deleted rows are kept.", min=1)
    ] = 168,
    most: Annotated[int, typer.Option(help="Most changes in a micro-batch.", min=1)] = 200_000,
    follow: FollowOption = False,
    conf: ConfOption = None,
    output: OutputOption = Output.text,
    *,
    cluster: PipelineCluster,
) -> None:
    """Merge the changes in a topic into a Delta table that equals the database's.

    Example: tianzhou pipeline merge orders-cdc --to orders --table shop.orders --schema 'id INT, total INT'
    """
    ensure_topics([topic], cluster)

    def work(spark: SparkSession) -> tuple[int, int]:
        from tianzhou.pipelines.merged_table import is_merged, merged
        from tianzhou.pipelines.merged_table import merge as start
        from tianzhou.pipelines.queries import Rows, run

        with progress("changes", None) as advance:
            rows = Rows(advance)
            there = cluster.topics(spark)
            run(
                lambda: start(
                    there,
                    topic,
                    to,
                    table=table,
                    schema=schema,
                    retention=dt.timedelta(hours=retention_hours),
                    most=most,
                    follow=follow,
                ),
                rows,
            )
        # If the topic has no messages, the table does not exist yet.
        return rows.count, merged(spark, to).count() if is_merged(to) else 0

    changes, count = on_spark("merge", conf, work)
    print_fields({"changes": changes, "rows_in_table": count, "to": to}, output)


@app.command()
def verify(
    table: Annotated[str, typer.Argument(help="schema.table in the database.")],
    database: Annotated[str, typer.Option(metavar="USER@HOST[:PORT]", help="The database; password in MYSQL_PWD.")],
    folder: Annotated[str, typer.Option("--in", help="Folder of the table that `pipeline merge` keeps.")],
    ranges: Annotated[int, typer.Option(help="Ranges that the keys are divided into.", min=1)] = 32,
    most_keys: Annotated[int, typer.Option(help="Most keys to name.", min=0)] = 100,
    conf: ConfOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Compare a merged table with the database's, row by row; ends with 1 when they differ.

    Example: tianzhou pipeline verify shop.orders --database repl@db:3306 --in orders
    """
    user, host, port = database_of(database)
    (captured,) = _server(user, host, port).captured([table_of(table)]).values()

    def work(spark: SparkSession) -> Comparison:
        from tianzhou.pipelines.binlog.comparing import compare
        from tianzhou.pipelines.binlog_source import BinlogSource
        from tianzhou.pipelines.merged_table import merged

        there = merged(spark, folder)
        spark.dataSource.register(BinlogSource)
        rows = (
            spark.read.format(BinlogSource.name())
            .options(host=host, port=port, user=user, password=_password(), tables=captured.full_name)
            .load()
        )
        return compare(captured, rows, there, ranges=ranges, most_keys=most_keys)

    _print_comparison(on_spark("verify", conf, work), output)


def _print_comparison(found: Comparison, output: Output) -> None:
    if output is Output.json:
        print_json(found.document())
    else:
        counts = ("rows_in_database", "rows_in_table", "ranges", "different_keys")
        fields = {name: getattr(found, name) for name in counts}
        for name in ("columns_only_in_database", "columns_only_in_table"):
            if getattr(found, name):
                fields[name] = ", ".join(getattr(found, name))
        print_fields(fields, output)
        if found.different_ranges:
            print_line("")
            columns = ("first key", "last key", "in database", "in table", "checksums")
            print_rows(
                columns,
                [
                    (one.first, one.last, one.rows_in_database, one.rows_in_table,
                     f"{one.checksum_in_database} {one.checksum_in_table}")
                    for one in found.different_ranges
                ],
                output,
            )  # fmt: skip
        if found.keys:
            print_line("")
            print_rows(
                ("key", "kind", "columns"), [(one.key, one.kind, ", ".join(one.columns)) for one in found.keys], output
            )
    if not found.is_equal:
        raise typer.Exit(1)

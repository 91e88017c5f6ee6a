"""Texts of the SQL page."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "page.sql": ("SQL", "SQL 查询"),
    "sql.words": (
        (
            "One SELECT (DuckDB) over the newest messages of each queue; at most {seconds} s and {rows} rows."
            " Times are those of the zone {zone}."
        ),
        "对每个队列最新的消息执行一条 SELECT（DuckDB 语法）；最长 {seconds} 秒，最多 {rows} 行。时区为 {zone}。",
    ),
    "sql.each": ("Newest of each queue", "每个队列最新条数"),
    "sql.run": ("Run", "执行"),
    "sql.tables": ("Tables", "表"),
    "sql.columns": (
        'A table for each topic; names with other signs than letters, digits and _ go in "quotes". Its columns:',
        "每个主题是一张表；名称含有字母、数字和 _ 以外的字符时请加双引号。列：",
    ),
    "sql.archive": ("archive: the Parquet files of the archive.", "archive：归档目录中的 Parquet 文件。"),
    "sql.result": ("{count} row ¦ {count} rows", "共 {count} 行"),
    "sql.read": ("Messages read: {topics}", "读取的消息数：{topics}"),
    "sql.part": ("{name}: {read} of {wanted}", "{name}：{read} / {wanted}"),
    "sql.cut.rows": ("There are more rows than may be shown.", "结果超出行数上限，已截断。"),
    "sql.cut.bytes": ("The result is larger than may be shown.", "结果超出大小上限，已截断。"),
    "sql.more": (
        "{shown} of {count} rows are shown; a download has all.",
        "显示 {shown} 行，共 {count} 行；下载可获取全部。",
    ),
    "sql.error": ("This cannot be answered", "查询失败"),
    "sql.cancelled": ("Cancelled.", "已取消。"),
}

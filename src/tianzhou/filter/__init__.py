"""Filters: the messages that a subscription selects. Pure."""

from tianzhou.filter.bloom import BloomData, BloomFilter
from tianzhou.filter.sql import COMPILED, SQL92, SqlFilter, check_whole, parse_sql
from tianzhou.filter.tags import ALL, TagFilter, parse_tags
from tianzhou.filter.values import IncomparableError

__all__ = [
    "ALL", "COMPILED", "SQL92", "BloomData", "BloomFilter", "IncomparableError", "SqlFilter", "TagFilter",
    "check_whole", "parse_sql", "parse_tags",
]  # fmt: skip

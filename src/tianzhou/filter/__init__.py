"""Which messages a subscription selects. Pure."""

from tianzhou.filter.tags import ALL, TagFilter, parse_tags

__all__ = ["ALL", "TagFilter", "parse_tags"]

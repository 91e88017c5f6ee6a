"""Producers and consumers on asyncio."""

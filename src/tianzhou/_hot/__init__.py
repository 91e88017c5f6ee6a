"""Hot functions, which carry the cost of a message, and the choice of their implementation.

There are two implementations with the same results: a compiled one, and one in Python with msgspec and struct. The
compiled one is used if it was built (an installation builds it where there is a C compiler) from exactly these sources.
`TIANZHOU_PURE=1` in the environment forces the Python one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tianzhou._hot import sources
from tianzhou._hot.frames import message_ids as message_ids
from tianzhou._hot.frames import send_reply as send_reply
from tianzhou._hot.pulls import pull_key as pull_key
from tianzhou._hot.signing import HmacStart as HmacStart

_twin = sources.compiled()
MODE: Final = "pure" if _twin is None else "compiled"
"""Active implementation, "compiled" or "pure"; shown when a server starts."""

if TYPE_CHECKING or MODE == "pure":
    from tianzhou._hot.client_sends import Awaited as Awaited
    from tianzhou._hot.client_sends import QuickSends as QuickSends
    from tianzhou._hot.client_sends import SendFrames as SendFrames
    from tianzhou._hot.client_sends import Sent as Sent
    from tianzhou._hot.client_sends import take_results as take_results
    from tianzhou._hot.cursors import IndexCursor as IndexCursor
    from tianzhou._hot.cursors import LogCursor as LogCursor
    from tianzhou._hot.cursors import QueueCursor as QueueCursor
    from tianzhou._hot.cursors import SendTarget as SendTarget
    from tianzhou._hot.deliveries import HandlerCalls as HandlerCalls
    from tianzhou._hot.deliveries import MessageReader as MessageReader
    from tianzhou._hot.entries import copy_run as copy_run
    from tianzhou._hot.entries import entry_run as entry_run
    from tianzhou._hot.entries import next_entries as next_entries
    from tianzhou._hot.entries import put_entries as put_entries
    from tianzhou._hot.entries import put_entry as put_entry
    from tianzhou._hot.frames import pull_reply as pull_reply
    from tianzhou._hot.frames import request_code as request_code
    from tianzhou._hot.frames import split as split
    from tianzhou._hot.frames import stored_reply as stored_reply
    from tianzhou._hot.identifiers import OpaqueCounter as OpaqueCounter
    from tianzhou._hot.identifiers import UniqueIdGenerator as UniqueIdGenerator
    from tianzhou._hot.properties import PropertyReader as PropertyReader
    from tianzhou._hot.pulls import PullCursor as PullCursor
    from tianzhou._hot.pulls import PullRun as PullRun
    from tianzhou._hot.pulls import ReadyStretch as ReadyStretch
    from tianzhou._hot.pulls import scan_pull as scan_pull
    from tianzhou._hot.reads import ReadPath as ReadPath
    from tianzhou._hot.reads import SharedReads as SharedReads
    from tianzhou._hot.records import BY_HAND as BY_HAND
    from tianzhou._hot.records import fill as fill
    from tianzhou._hot.records import gather as gather
    from tianzhou._hot.records import put_batch as put_batch
    from tianzhou._hot.records import put_plain as put_plain
    from tianzhou._hot.runs import next_run as next_run
    from tianzhou._hot.runs import take_rows as take_rows
    from tianzhou._hot.sends import SendRun as SendRun
else:
    BY_HAND, PropertyReader, fill, gather = _twin.BY_HAND, _twin.PropertyReader, _twin.fill, _twin.gather
    put_batch, put_plain, split = _twin.put_batch, _twin.put_plain, _twin.split
    request_code = _twin.request_code
    next_run, take_rows, stored_reply = _twin.next_run, _twin.take_rows, _twin.stored_reply
    put_entry, put_entries, next_entries = _twin.put_entry, _twin.put_entries, _twin.next_entries
    ReadPath, SharedReads = _twin.ReadPath, _twin.SharedReads
    SendRun, SendTarget, entry_run, copy_run = _twin.SendRun, _twin.SendTarget, _twin.entry_run, _twin.copy_run
    scan_pull, pull_reply = _twin.scan_pull, _twin.pull_reply
    LogCursor, QueueCursor, IndexCursor = _twin.LogCursor, _twin.QueueCursor, _twin.IndexCursor
    PullCursor, PullRun, ReadyStretch = _twin.PullCursor, _twin.PullRun, _twin.ReadyStretch
    Awaited, Sent, SendFrames, QuickSends = _twin.Awaited, _twin.Sent, _twin.SendFrames, _twin.QuickSends
    HandlerCalls, MessageReader = _twin.HandlerCalls, _twin.MessageReader
    take_results, OpaqueCounter, UniqueIdGenerator = _twin.take_results, _twin.OpaqueCounter, _twin.UniqueIdGenerator

if TYPE_CHECKING or _twin is None or not _twin.HAS_SHA1:
    from tianzhou._hot.signing import begin_hmac as begin_hmac
    from tianzhou._hot.signing import hmac_text as hmac_text
    from tianzhou._hot.signing import is_hmac as is_hmac
else:
    begin_hmac, hmac_text, is_hmac = _twin.begin_hmac, _twin.hmac_text, _twin.is_hmac

"""The Lua scripts of an outbox in Redis. Each checks that the producer still holds the stream, and is atomic.

The first key is the stream, the second the lease: a key with the name of the producer that holds the stream, which
expires when that producer stops renewing it. The first argument is the name of the calling producer, the second the
length of the lease in ms. A script returns `{0, holder}` when another producer holds the stream. A script acquires an
expired lease again, if no other producer has acquired it.
"""

from __future__ import annotations

from typing import Final

_CHECK: Final = """
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[1] then return {0, holder} end
"""
# PEXPIRE and XTRIM need no memory, so that a full Redis still renews leases and removes messages.
_LEASE: Final = """
if holder then redis.call('PEXPIRE', KEYS[2], ARGV[2]) else redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2]) end
"""
_HOLD: Final = _CHECK + _LEASE
OPEN: Final = (
    _HOLD
    + """
local length = redis.call('XLEN', KEYS[1])
local group = redis.call('GET', KEYS[3])
if length > 0 and group and group ~= ARGV[3] then redis.call('DEL', KEYS[2]) return {2, group, length} end
if group ~= ARGV[3] then redis.call('SET', KEYS[3], ARGV[3]) end
return {1, length}
"""
)
"""Acquires the stream for a producer. The third key has the messages' group, the third argument the producer's."""
RENEW: Final = _HOLD + "return {1}"
# A full Redis refuses the first command of a script that needs memory, unless the script has written before. So XADD
# comes before PEXPIRE.
APPEND: Final = (
    _CHECK
    + "for place = 3, #ARGV do redis.call('XADD', KEYS[1], '*', 'payload', ARGV[place]) end"
    + _LEASE
    + """
return {1, redis.call('XLEN', KEYS[1])}
"""
)
"""Appends the arguments from the third on, and returns the new length of the stream."""
PEEK: Final = (
    _HOLD
    + """
local found, size, from = {}, 0, '-'
while size < tonumber(ARGV[3]) and #found < 2 * tonumber(ARGV[4]) do
  local entries = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 16)
  if #entries == 0 then break end
  for _, entry in ipairs(entries) do
    if size >= tonumber(ARGV[3]) or #found >= 2 * tonumber(ARGV[4]) then break end
    found[#found + 1] = entry[1]
    found[#found + 1] = entry[2][2]
    size = size + #entry[2][2] + tonumber(ARGV[5])
    from = '(' .. entry[1]
  end
end
return {1, redis.call('XLEN', KEYS[1]), found}
"""
)
"""Returns ids and payloads of the first entries. Arguments: maximum bytes, maximum entries, overhead in bytes."""
REMOVE: Final = (
    _HOLD
    + """
redis.call('XTRIM', KEYS[1], 'MINID', ARGV[3])
return {1, redis.call('XLEN', KEYS[1])}
"""
)
"""Removes the entries below an id, and returns the new length of the stream."""
RELEASE: Final = "if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end return {1}"

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False, auto_pickle=False
"""The compiled twin of the hot functions: the same results as the pure one, without the Python objects in between.

The pure twin of a function documents it; what a function does not know it leaves to its twin, so both always agree.
What grows is an extension type of the name that its pure class has (`_cursors.pxi`). A map's memory is held for the
length of a call.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_CheckExact, PyByteArray_GET_SIZE
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp, memcpy, memset

from tianzhou._hot import frames as _frames
from tianzhou._hot import properties as _properties
from tianzhou._hot import records as _records
from tianzhou._hot import signing as _signing
from tianzhou._hot.headers import LANGUAGE_CODES, OTHER, Command, SendHeader, SendHeaderV2
from tianzhou._hot.cursors import NewRecord

cdef extern from "slots.h":
    const char *SOURCE_TEXT "TIANZHOU_SOURCE"
    Py_ssize_t tz_offset(object)
    PyObject *tz_peek(object, Py_ssize_t)
    void tz_set(object, Py_ssize_t, object)
    int64_t tz_i64(PyObject *, int *)
    int64_t tz_i32(PyObject *, int *)
    uint32_t tz_get32(const uint8_t *)
    uint64_t tz_get64(const uint8_t *)
    uint8_t *tz_put32(uint8_t *, uint32_t)
    uint8_t *tz_put64(uint8_t *, uint64_t)
    bint tz_plain(const uint8_t *, Py_ssize_t)
    uint32_t tz_hash(uint32_t, const uint8_t *, Py_ssize_t)
    bint tz_is_record(const uint8_t *, int32_t, int64_t)
    void tz_put_unit(uint8_t *, int64_t, int64_t, int64_t)
    bint tz_add_keys(Entries *, uint32_t, const uint8_t *, Py_ssize_t, bint, int64_t)
    bint tz_put_entry(uint8_t *, int64_t, int64_t, const Entries *, int, int64_t, int64_t)
    ctypedef struct Entries "TzEntries":
        int count
        uint32_t *hashes
        int64_t *places
    uint8_t *tz_put(uint8_t *, PyObject *)
    void tz_fence()
    object PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *)
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL
    bint tz_ascii(object)
    const uint8_t *tz_find(const uint8_t *, Py_ssize_t, const char *, Py_ssize_t)
    Py_ssize_t tz_signed(const uint8_t *, Py_ssize_t, uint8_t *, Py_ssize_t)

cdef extern from "layout.h":  # printed from tianzhou.records.layout
    enum:
        AT_MAGIC "TZ_AT_MAGIC", AT_BODY_CRC "TZ_AT_BODY_CRC", AT_QUEUE_ID "TZ_AT_QUEUE_ID"
        AT_QUEUE_OFFSET "TZ_AT_QUEUE_OFFSET", AT_PHYSICAL_OFFSET "TZ_AT_PHYSICAL_OFFSET", AT_SYS_FLAG "TZ_AT_SYS_FLAG"
        AT_STORE_TIMESTAMP "TZ_AT_STORE_TIMESTAMP", AT_BODY_SIZE "TZ_AT_BODY_SIZE"
        HEAD_SIZE "TZ_HEAD_SIZE", OVERHEAD "TZ_OVERHEAD", UP_TO_PLACE "TZ_UP_TO_PLACE", BLANK_SIZE "TZ_BLANK_SIZE"
        MAGIC_V1 "TZ_MAGIC_V1", TRANSACTION_BITS "TZ_TRANSACTION_BITS", PREPARED "TZ_PREPARED", ROLLBACK "TZ_ROLLBACK"
        HOST_BITS "TZ_HOST_BITS", INNER_BATCH "TZ_INNER_BATCH", INNER_BATCH_BITS "TZ_INNER_BATCH_BITS"

cdef enum:
    BLOCK_BITS = 20  # as the pure twin has them
    GRAIN_BITS = 6

SOURCE = SOURCE_TEXT.decode()  # digest of the sources this was compiled from; `tianzhou._hot` compares it
DEBUG = False  # whether it was built to check its invariants
try:
    assert False
except AssertionError:
    DEBUG = True
BY_HAND = 1  # so many records the dispatcher does itself when `fill` stops at one that is not ordinary

ctypedef const uint8_t *Place


# Attributes of messages, by their place in the object

cdef Py_ssize_t slot(kind, name) except -1:
    """Where objects of a class keep an attribute."""
    at = tz_offset(getattr(kind, name))
    if at < 0:
        raise ImportError(f"{kind.__name__}.{name} is no slot")
    return at


cdef inline int64_t whole(value, int *odd) noexcept:
    """A whole number of 64 bits; anything else raises the flag."""
    return tz_i64(<PyObject *>value, odd)


cdef inline int64_t whole32(value, int *odd) noexcept:
    return tz_i32(<PyObject *>value, odd)


# Frames

cdef dict _BY_CODE = _frames.BY_CODE, _FIRST_FIELD_AT = _frames.FIRST_FIELD_AT


cdef object decode_hot(Place p, Py_ssize_t size, Place stop):
    """The command of a hot kind whose header of `size` bytes begins at `p` and whose body ends at `stop`, or None."""
    if size < 12 or memcmp(p, b'{"code":', 8) != 0:
        return None
    kind = tz_get32(p + 8)
    decode, at = _BY_CODE.get(kind), _FIRST_FIELD_AT.get(kind)
    if decode is None and at is not None and <Py_ssize_t>at <= size:
        decode = _frames.BY_FIRST_FIELD.get(tz_get64(p - 8 + <Py_ssize_t>at))
    if decode is None:
        return None
    try:
        found = decode(PyBytes_FromStringAndSize(<const char *>p, size))
    except (ValueError, RecursionError):
        return None
    body = PyBytes_FromStringAndSize(<const char *>p + size, stop - p - size)
    signed = signed_content(p, size) if tz_find(p, size, b'"Signature"', 11) != NULL else b""
    return Command(found.code, found.opaque, found.flag, LANGUAGE_CODES.get(found.language, OTHER), found.version,
                   found.remark, {}, body, 0, found.header, signed)


cdef object signed_content(Place p, Py_ssize_t size):
    """As the pure twin has it; headers whose first field is not `extFields`, or with rare spellings, are left to it."""
    cdef char content[4096]
    cdef Py_ssize_t found = tz_signed(p, size, <uint8_t *>content, sizeof(content))
    if found >= 0:
        return PyBytes_FromStringAndSize(content, found)
    return _frames.signed_content(PyBytes_FromStringAndSize(<const char *>p, size))


cdef int64_t code_at(Place p, Py_ssize_t left) noexcept:
    """The code of the request whose frame begins at `p`, of which `left` bytes were read; -1 as the pure twin has it."""
    cdef int64_t code = 0
    cdef Py_ssize_t at = 16, most = min(left, 24)
    if left < 20 or memcmp(p + 8, b'{"code":', 8) != 0:
        return -1
    while at < most and 48 <= p[at] <= 57:
        code = 10 * code + p[at] - 48
        at += 1
    return code if 16 < at < most and p[at] == 44 else -1


def request_code(buffer, Py_ssize_t start, Py_ssize_t end):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return code_at(<Place>view.buf + start, end - start) if 0 <= start and end <= view.len else -1
    finally:
        PyBuffer_Release(&view)


def split(buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t max_frame, decode):
    cdef Py_buffer view
    cdef Place p
    cdef int64_t length
    cdef uint32_t word
    cdef list commands = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while 0 <= start and end - start >= 20 and end <= view.len:
            p = <Place>view.buf + start
            length = <int32_t>tz_get32(p)
            if length < 4 or length + 4 > max_frame:
                break
            if length + 4 > end - start:
                return commands, start
            word = tz_get32(p + 4)
            command = decode_hot(p + 8, word, p + 4 + length) if word <= 0xFFFFFF and word + 4 <= length else None
            if command is None:
                break
            commands.append(command)
            start += 4 + length
    finally:
        PyBuffer_Release(&view)
    if start != end:
        more, start = _frames.split(buffer, start, end, max_frame, decode)
        commands += more
    return commands, start


# Replies

cdef tuple _replied_for = (None, None, None)
cdef bytes _reply = b""


def stored_reply(opaque, id_head, place, queue_id, queue_offset, transaction_id, region, trace_on):
    global _replied_for, _reply
    cdef char frame[2048]
    cdef int size
    if _replied_for[0] is not region or _replied_for[1] is not trace_on or _replied_for[2] is not id_head:
        text = _frames.send_reply("%lld", id_head + "%016llX", "%lld", "%lld", "T", region, trace_on)[8:]
        plain = text.count(b"%") == 4 and text.count(b'"T"') == 1 and b"\0" not in text and len(text) < 1000
        _replied_for, _reply = (region, trace_on, id_head), text.replace(b'"T"', b'"%s"') if plain else b""
    if not _reply or not tz_ascii(transaction_id) or len(transaction_id) > 900 or not transaction_id.isalnum():
        return _frames.stored_reply(opaque, id_head, place, queue_id, queue_offset, transaction_id, region, trace_on)
    size = snprintf(
        frame + 8, 2040, PyBytes_AS_STRING(_reply), <long long>queue_id, PyUnicode_AsUTF8AndSize(transaction_id, NULL),
        <long long>place, <long long>queue_offset, <long long>opaque)
    tz_put32(tz_put32(<uint8_t *>frame, <uint32_t>(size + 4)), <uint32_t>size)
    return PyBytes_FromStringAndSize(frame, size + 8)


include "_cursors.pxi"
include "_storing.pxi"
include "_signing.pxi"
include "_framing.pxi"
include "_sending.pxi"
include "_pulling.pxi"
include "_walking.pxi"
include "_client_sends.pxi"
include "_reading.pxi"
include "_deliveries.pxi"

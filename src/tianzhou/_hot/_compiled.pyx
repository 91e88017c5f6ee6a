# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False, auto_pickle=False
"""The compiled twin of the hot functions: the same results as the pure one, without the Python objects in between.

What a function here does not know it leaves to the pure twin, so that both always give the same values and errors.
Header structs, records and tails are the classes of `headers` and `tails`; their attributes are read and written by
their place in the object, which is looked up when this module is imported. Reply texts are cut from what the pure
twin writes. The memory of a map is held for the length of a call, never longer.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from tianzhou._hot import frames as _frames
from tianzhou._hot import properties as _properties
from tianzhou._hot import records as _records
from tianzhou._hot.headers import LANGUAGE_CODES, OTHER, Command, SendHeader, SendHeaderV2
from tianzhou._hot.tails import IndexTail, LogTail, NewRecord, QueueTail

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
    void tz_fence()
    uint8_t *tz_put(uint8_t *, PyObject *)
    object PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *)
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL
    bint tz_ascii(object)
    bint PyObject_TypeCheck(object, type)

SOURCE = SOURCE_TEXT.decode()
"""Digest of the sources this was compiled from; `tianzhou._hot` compares it."""
BY_HAND = 1
"""How many records the dispatcher does itself when `fill` stops at one that is not ordinary."""

ctypedef const uint8_t *Place


# Attributes, by their place in the object

cdef enum:  # in the order of the table below
    C_CODE, C_OPAQUE, C_FLAG, C_VERSION, C_REMARK, C_HEADER, C_LANGUAGE, C_FIELDS, C_BODY,
    F_CODE, F_OPAQUE, F_FLAG, F_VERSION, F_REMARK, F_HEADER,
    R_TOPIC, R_QUEUE_ID, R_FLAG, R_BORN, R_RECONSUMED, R_SYS_FLAG, R_PROPERTIES, R_BODY, R_HOST, R_PORT, R_PREPARED,
    R_TAGS, R_KEYS, R_UNIQUE,
    V2_TOPIC, V2_QUEUE_ID, V2_FLAG, V2_BORN, V2_RECONSUMED, V2_SYS_FLAG, V2_PROPERTIES, V2_BATCH,
    V1_TOPIC, V1_QUEUE_ID, V1_FLAG, V1_BORN, V1_RECONSUMED, V1_SYS_FLAG, V1_PROPERTIES, V1_BATCH,
    L_MAP, L_CHECK, L_OVERHEAD, L_BITS, L_CRC, L_BASE, L_POSITION, L_HOST,
    Q_MAP, Q_POSITION, Q_RESERVED, Q_TOPIC, Q_FIELD, Q_ARRIVED, Q_DELAYED, Q_DIRTY, Q_MAGIC, Q_MAX, Q_PHYSICAL, Q_NEXT,
    Q_PLAIN,
    I_MAP, I_ENTRIES, I_RESERVED, I_TOUCHED, I_BEGIN, I_CAPACITY, I_COUNT, I_END, I_SLOTS, I_STORED, I_USED,
    ATTRIBUTES

_SENT = "topic queue_id flag born_timestamp reconsume_times sys_flag properties "
_ATTRIBUTES = (
    (Command, "code opaque flag version remark header language fields body"),
    (_frames.FRAMES[0], "code opaque flag version remark header"),
    (NewRecord, _SENT + "body born_host born_port prepared_transaction_offset tags_code keys uniq_key"),
    (SendHeaderV2, _SENT + "batch_text"),
    (SendHeader, _SENT + "batch_text"),
    (LogTail, "_map _check _overhead _sys_bits appends_crc base position store_host_field"),
    (QueueTail, "_map _position _reserved topic topic_field arrived delayed dirty magic max_offset max_physical next_offset"
                " plain"),
    (IndexTail, "_map _entries _reserved _touched begin_timestamp capacity count end_offset slots end_timestamp slot_count"),
)
cdef Py_ssize_t AT[ATTRIBUTES]
cdef int _step
for _step, _place in enumerate([slot(kind, name) for kind, names in _ATTRIBUTES for name in names.split()]):
    AT[_step] = _place


cdef Py_ssize_t slot(kind, name) except -1:
    """Where objects of a class keep an attribute."""
    at = tz_offset(getattr(kind, name))
    if at < 0:
        raise ImportError(f"{kind.__name__}.{name} is no slot")
    return at


cdef inline PyObject *of(owner, int which) noexcept:
    return tz_peek(owner, AT[which])


cdef inline int64_t whole(owner, int which, int *odd) noexcept:
    return tz_i64(tz_peek(owner, AT[which]), odd)


# Frames

cdef dict _BY_CODE = _frames.BY_CODE, _FIRST_FIELD_AT = _frames.FIRST_FIELD_AT
cdef object _command = Command(0).__copy__


cdef object usual(Place p, Py_ssize_t size, Place stop):
    """The command of a hot kind whose header of `size` bytes begins at `p` and whose body ends at `stop`, or None."""
    if size < 12 or memcmp(p, b'{"code":', 8) != 0:
        return None
    kind = tz_get32(p + 8)
    decode = _BY_CODE.get(kind)
    if decode is None:
        at = _FIRST_FIELD_AT.get(kind)
        if at is None or <Py_ssize_t>at > size:
            return None
        decode = _frames.BY_FIRST_FIELD.get(tz_get64(p - 8 + <Py_ssize_t>at))
        if decode is None:
            return None
    try:
        found = decode(PyBytes_FromStringAndSize(<const char *>p, size))
    except (ValueError, RecursionError):
        return None
    command = _command()
    cdef int step
    for step in range(6):
        tz_set(command, AT[C_CODE + step], <object>of(found, F_CODE + step))
    tz_set(command, AT[C_LANGUAGE], LANGUAGE_CODES.get(found.language, OTHER))
    tz_set(command, AT[C_FIELDS], {})
    tz_set(command, AT[C_BODY], PyBytes_FromStringAndSize(<const char *>p + size, stop - p - size))
    return command


def split(buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t max_frame, decode):
    """See `tianzhou._hot.frames.split`."""
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
            command = usual(p + 8, word, p + 4 + length) if word <= 0xFFFFFF and word + 4 <= length else None
            if command is None:
                commands += _frames.split(buffer, start, start + 4 + length, max_frame, decode)[0]
            else:
                commands.append(command)
            start += 4 + length
    finally:
        PyBuffer_Release(&view)
    if start != end:
        more, start = _frames.split(buffer, start, end, max_frame, decode)
        commands += more
    return commands, start


# Replies

cdef object _sent_for = None
cdef tuple _sent = ()


cdef uint8_t *add_number(uint8_t *p, int64_t value) noexcept:
    cdef uint8_t digits[20]
    cdef int at = 20
    cdef uint64_t rest = <uint64_t>value if value >= 0 else 0 - <uint64_t>value
    p[0] = c"-"
    p += value < 0
    while rest or at == 20:
        at -= 1
        digits[at] = <uint8_t>(c"0" + rest % 10)
        rest //= 10
    memcpy(p, digits + at, 20 - at)
    return p + 20 - at


def stored_reply(opaque, id_head, place, queue_id, queue_offset, transaction_id, region, trace_on):
    """See `tianzhou._hot.frames.stored_reply`."""
    global _sent_for, _sent
    cdef uint8_t frame[2048]
    cdef uint8_t *p = frame + 8
    cdef Py_ssize_t id_size = 0, size = 0
    cdef uint64_t rest = place
    cdef int digit
    if _sent_for is None or _sent_for[0] is not region or _sent_for[1] is not trace_on:
        # What stands between the values.
        text = _frames.send_reply("\0", "\0", "\0", "\0", "T", region, trace_on)[8:]
        _sent_for, _sent = (region, trace_on), tuple(text.replace(b"T", b"\0", 1).split(b"\0"))
    if (not tz_ascii(transaction_id) or len(_sent) != 6 or len(id_head) + len(transaction_id) + len(region) * 6 > 1500
            or not transaction_id.isalnum()):
        return _frames.stored_reply(opaque, id_head, place, queue_id, queue_offset, transaction_id, region, trace_on)
    id_text, unique = PyUnicode_AsUTF8AndSize(id_head, &id_size), PyUnicode_AsUTF8AndSize(transaction_id, &size)
    p = add_number(tz_put(p, <PyObject *>_sent[0]), queue_id)
    p = tz_put(p, <PyObject *>_sent[1])
    memcpy(p, unique, size)
    p = tz_put(p + size, <PyObject *>_sent[2])
    memcpy(p, id_text, id_size)
    p += id_size
    for digit in range(16):
        p[digit] = b"0123456789ABCDEF"[rest >> (60 - 4 * digit) & 15]
    p = add_number(tz_put(p + 16, <PyObject *>_sent[3]), queue_offset)
    p = tz_put(add_number(tz_put(p, <PyObject *>_sent[4]), opaque), <PyObject *>_sent[5])
    tz_put32(tz_put32(frame, <uint32_t>(p - frame - 4)), <uint32_t>(p - frame - 8))
    return PyBytes_FromStringAndSize(<char *>frame, p - frame)


def pull_reply(opaque, code, remark, following, low, high, suggested, group_flag, topic_flag, parts):
    """See `tianzhou._hot.frames.pull_reply`."""
    cdef Found found = parts if type(parts) is Found else None
    rest = parts if found is None else ()
    head = _frames.pull_reply(opaque, code, remark, following, low, high, suggested, group_flag, topic_flag, rest)
    if found is None:
        return head
    cdef Py_buffer view
    cdef Py_ssize_t number
    cdef int64_t *at = <int64_t *>PyBytes_AS_STRING(found.places)
    reply = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(head) + found.total)
    cdef uint8_t *p = tz_put(<uint8_t *>PyBytes_AS_STRING(reply), <PyObject *>head)
    tz_put32(<uint8_t *>PyBytes_AS_STRING(reply), <uint32_t>(PyBytes_GET_SIZE(reply) - 4))
    memset(&view, 0, sizeof(view))
    held = None
    for number, segment in enumerate(found.views):
        if segment is not held:
            PyBuffer_Release(&view)
            PyObject_GetBuffer(segment, &view, PyBUF_SIMPLE)
            held = segment
        memcpy(p, <Place>view.buf + at[2 * number], at[2 * number + 1])
        p += at[2 * number + 1]
    PyBuffer_Release(&view)
    return reply


include "_storing.pxi"

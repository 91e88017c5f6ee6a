# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
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
from libc.string cimport memchr, memcmp, memcpy

from tianzhou._hot import frames as _frames
from tianzhou._hot import properties as _properties
from tianzhou._hot import records as _records
from tianzhou._hot.headers import LANGUAGE_CODES, Command, PullHeader, PullReplyHeader, SendHeader, SendHeaderV2
from tianzhou._hot.headers import SendReplyHeader, layout_of
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


cdef Py_ssize_t slot(cls, name) except -1:
    """Where objects of a class keep an attribute."""
    at = tz_offset(getattr(cls, name))
    if at < 0:
        raise ImportError(f"{cls.__name__}.{name} is no slot")
    return at


# Frames: the usual JSON header, scanned

cdef enum:
    TEXT, INT32, INT64, SWITCH, IGNORED
    MOST_FIELDS = 24
    KEPT = 64
    SCRATCH = 40000

cdef struct Field:
    const char *name
    Py_ssize_t size, at, kept
    int kind
    bint optional
    char last[KEPT]

cdef bint PLAIN[256]  # bytes that stand for themselves in a JSON text
cdef char scratch[SCRATCH]
cdef int _byte
for _byte in range(256):
    PLAIN[_byte] = _byte >= 32 and _byte != c'"' and _byte != c"\\"


cdef class Layout:
    """The fields of a JSON object and where they go in a struct."""

    cdef Field fields[MOST_FIELDS]
    cdef int count
    cdef uint32_t required
    cdef object copy, template
    cdef list names, texts

    def __init__(self, kind, rows, template):
        self.template, self.copy = template, kind.__copy__
        self.count, self.required = len(rows), 0
        self.names = [name.encode() for _, name, _, _ in rows]
        self.texts = [None] * self.count
        if self.count > MOST_FIELDS:
            raise ImportError(f"{kind.__name__} has {self.count} fields; raise MOST_FIELDS")
        cdef Field *field
        for number, (attribute, _, wanted, needed) in enumerate(rows):
            field = &self.fields[number]
            field.name, field.size = self.names[number], len(self.names[number])
            field.kind, field.optional, field.kept = "silb-".index(wanted), not needed, -1
            field.at = slot(kind, attribute)
            self.required |= <uint32_t>needed << number

    cdef Place walk(self, target, Place p, Place end):
        """Set fields from the members of an object, the first name of which begins at `p`; the place of its closing
        brace, NULL when something is odd."""
        cdef uint32_t seen = 0
        cdef int step, number, guess = 0
        cdef Place name
        while True:
            name = p
            p = <Place>memchr(p, c'"', end - p)
            if p == NULL or end - p < 4 or p[1] != c":":
                return NULL
            for step in range(self.count):
                number = (guess + step) % self.count  # most senders keep one order
                if self.fields[number].size == p - name and not memcmp(self.fields[number].name, name, p - name):
                    break
            else:
                return NULL
            if seen >> number & 1:
                return NULL
            seen |= <uint32_t>1 << number
            guess = number + 1
            p = self.member(target, number, p + 2, end)
            if p == NULL or end - p < 1:
                return NULL
            if p[0] == c"}":
                return p if seen & self.required == self.required else NULL
            if end - p < 2 or p[0] != c"," or p[1] != c'"':
                return NULL
            p += 2

    cdef Place member(self, target, int number, Place p, Place end):
        """Set a field from its value, which begins at `p`; where it ends, NULL when it is odd."""
        cdef Field *field = &self.fields[number]
        cdef int64_t value = 0
        cdef Place start
        cdef bint quoted = p[0] == c'"'
        p += quoted
        start = p
        if field.kind == INT32 or field.kind == INT64:
            p = whole_number(p, end, &value)
            if p == NULL or end - p < 1 or (quoted and p[0] != c'"') or (field.kind == INT32 and value != <int32_t>value):
                return NULL
            tz_set(target, field.at, value)
            return p + quoted
        if not quoted:
            return NULL
        while p < end and PLAIN[p[0]]:
            p += 1
        if p >= end:
            return NULL
        if p[0] == c"\\":
            found = escaped(&start, end) if field.kind == TEXT else None
            p = start - 1
        elif p[0] != c'"' or (field.optional and p - start == 4 and start[0] | 32 == c"n"):
            return NULL  # what becomes of "null" is left to those who know
        else:
            found = self.text(field, number, start, p - start)
        if found is None or (field.kind == SWITCH and found != "true" and found != "false"):
            return NULL
        if field.kind != IGNORED:
            tz_set(target, field.at, found)
        return p + 1

    cdef object text(self, Field *field, int number, Place start, Py_ssize_t size):
        """A text as it stands; what a field said last time is not made anew. None when it is no UTF-8."""
        if field.kept == size and memcmp(field.last, start, size) == 0:
            return self.texts[number]
        try:
            found = PyUnicode_DecodeUTF8(<const char *>start, size, NULL)
        except UnicodeDecodeError:
            return None
        if size <= KEPT:
            memcpy(field.last, start, size)
            field.kept, self.texts[number] = size, found
        return found


cdef Place whole_number(Place p, Place end, int64_t *value) noexcept:
    """Read a number as everybody writes it; NULL for one that is written in any other way, or is very long."""
    cdef bint negative = p < end and p[0] == c"-"
    cdef int64_t found = 0
    p += negative
    cdef Place first = p
    while p < end and c"0" <= p[0] <= c"9" and p - first < 18:
        found = found * 10 + (p[0] - c"0")
        p += 1
    if p == first or (first[0] == c"0" and (p - first > 1 or negative)):
        return NULL
    value[0] = -found if negative else found
    return p


cdef object escaped(Place *cursor, Place end):
    """The text whose content begins at the cursor, which is moved behind its closing quote; None when it holds other
    escapes than those of control characters, quotes and backslashes."""
    cdef Place p = cursor[0]
    cdef Py_ssize_t size = 0
    cdef int code
    while p < end and size < SCRATCH:
        code = p[0]
        if code == c'"':
            cursor[0] = p + 1
            try:
                return PyUnicode_DecodeUTF8(scratch, size, NULL)
            except UnicodeDecodeError:
                return None
        if not PLAIN[code]:
            if code != c"\\" or end - p < 6:
                return None
            code = p[1]
            p += 1
            if code == c"u":
                if p[1] != c"0" or p[2] != c"0" or (p[3] != c"0" and p[3] != c"1"):
                    return None
                code = p[4] - c"0" if c"0" <= p[4] <= c"9" else (p[4] | 32) - c"a" + 10
                if not 0 <= code < 16 or (code > 9 and not c"a" <= p[4] | 32 <= c"f"):
                    return None
                code += 16 * (p[3] - c"0")
                p += 4
            elif code != c'"' and code != c"\\":
                return None
        scratch[size] = <char>code
        size += 1
        p += 1
    return None


cdef Layout layout_for(kind):
    rows = layout_of(kind)
    return Layout(kind, rows, kind(**{attribute: 0 for attribute, _, _, needed in rows if needed}))


cdef dict _REQUESTS = {}
cdef Layout _SEND_V2 = layout_for(SendHeaderV2)
cdef Layout _SEND = layout_for(SendHeader)
cdef Layout _PULL = layout_for(PullHeader)
cdef Layout _SEND_REPLY = layout_for(SendReplyHeader)
cdef Layout _PULL_REPLY = layout_for(PullReplyHeader)
_REQUESTS = {310: _SEND_V2, 320: _SEND_V2, 325: _SEND_V2, 10: _SEND, 324: _SEND, 11: _PULL, 361: _PULL}
cdef Layout _COMMAND = Layout(
    Command,
    [("flag", "flag", "i", False), ("language", "language", "s", False), ("opaque", "opaque", "i", False),
     ("remark", "remark", "s", False), ("remark", "serializeTypeCurrentRPC", "-", False),
     ("version", "version", "i", False)],
    Command(0, 0, 0, "JAVA", 0),
)
cdef Py_ssize_t _CODE = slot(Command, "code"), _LANGUAGE = slot(Command, "language"), _BODY = slot(Command, "body")
cdef Py_ssize_t _HEADER = slot(Command, "header"), _FIELDS = slot(Command, "fields")


cdef object scan(Place p, Place end, Place stop):
    """The command whose JSON header is [p, end) and whose body ends at `stop`; None when it is not a usual one."""
    cdef Place body = end
    cdef Layout layout = None
    cdef int64_t code = 0
    if end - p < 48 or memcmp(p, b'{"code":', 8) != 0:
        return None
    p = whole_number(p + 8, end, &code)
    if p == NULL or end - p < 24 or memcmp(p, b',"extFields":{"', 15) != 0:
        return None
    p += 15
    if code == 0 and memcmp(p, b'queueId"', 8) == 0:
        layout = _SEND_REPLY
    elif (code == 0 or 19 <= code <= 21) and memcmp(p, b"suggestW", 8) == 0:
        layout = _PULL_REPLY
    else:
        layout = _REQUESTS.get(code)
    if layout is None:
        return None
    header = layout.copy(layout.template)
    p = layout.walk(header, p, end)
    if p == NULL or end - p < 4 or p[1] != c"," or p[2] != c'"':
        return None
    command = _COMMAND.copy(_COMMAND.template)
    if _COMMAND.walk(command, p + 3, end) != end - 1:
        return None
    language = LANGUAGE_CODES.get(<object>tz_peek(command, _LANGUAGE))
    if language is None:
        return None
    tz_set(command, _CODE, code)
    tz_set(command, _LANGUAGE, language)
    tz_set(command, _FIELDS, {})
    tz_set(command, _HEADER, header)
    tz_set(command, _BODY, PyBytes_FromStringAndSize(<const char *>body, stop - body))
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
            command = scan(p + 8, p + 8 + word, p + 4 + length) if word <= 0xFFFFFF and word + 4 <= length else None
            if command is None:
                commands += _frames.split(buffer, start, start + 4 + length, max_frame, decode)[0]
            else:
                commands.append(command)
            start += 4 + length
    finally:
        PyBuffer_Release(&view)
    more, start = _frames.split(buffer, start, end, max_frame, decode)
    return commands + more, start


# The reply to a send, by template

cdef object _sent_for = None
cdef tuple _sent = ()


cdef uint8_t *add_number(uint8_t *p, int64_t value) noexcept:
    cdef uint8_t digits[20]
    cdef int at = 20
    cdef uint64_t rest = <uint64_t>value if value >= 0 else 0 - <uint64_t>value
    if value < 0:
        p[0] = c"-"
        p += 1
    while True:
        at -= 1
        digits[at] = <uint8_t>(c"0" + rest % 10)
        rest //= 10
        if rest == 0:
            break
    memcpy(p, digits + at, 20 - at)
    return p + 20 - at


cdef bint alphanumeric(const char *text, Py_ssize_t size) noexcept:
    cdef Py_ssize_t at
    for at in range(size):
        if not (c"0" <= text[at] <= c"9" or c"a" <= text[at] | 32 <= c"z"):
            return False
    return size > 0


def send_reply(opaque, msg_id, queue_id, queue_offset, transaction_id, region, trace_on):
    """See `tianzhou._hot.frames.send_reply`."""
    global _sent_for, _sent
    cdef uint8_t frame[2048]
    cdef uint8_t *p = frame + 8
    cdef Py_ssize_t id_size = 0, size = 0
    cdef const char *id_text = PyUnicode_AsUTF8AndSize(msg_id, &id_size)
    cdef const char *text = NULL
    if _sent_for is None or _sent_for[0] is not region or _sent_for[1] is not trace_on:
        # What stands between the values.
        whole = _frames.send_reply("\0", "\0", "\0", "\0", "T", region, trace_on)[8:]
        _sent_for, _sent = (region, trace_on), tuple(whole.replace(b"T", b"\0", 1).split(b"\0"))
    if tz_ascii(transaction_id):
        text = PyUnicode_AsUTF8AndSize(transaction_id, &size)
    if text == NULL or len(_sent) != 6 or id_size + size + len(region) * 6 > 1500 or not alphanumeric(text, size):
        return _frames.send_reply(opaque, msg_id, queue_id, queue_offset, transaction_id, region, trace_on)
    p = add_number(tz_put(p, <PyObject *>_sent[0]), queue_id)
    p = tz_put(p, <PyObject *>_sent[1])
    memcpy(p, text, size)
    p = tz_put(p + size, <PyObject *>_sent[2])
    memcpy(p, id_text, id_size)
    p = add_number(tz_put(p + id_size, <PyObject *>_sent[3]), queue_offset)
    p = tz_put(add_number(tz_put(p, <PyObject *>_sent[4]), opaque), <PyObject *>_sent[5])
    tz_put32(tz_put32(frame, <uint32_t>(p - frame - 4)), <uint32_t>(p - frame - 8))
    return PyBytes_FromStringAndSize(<char *>frame, p - frame)


# Records into a mapped segment

cdef Py_ssize_t R_QUEUE_ID = slot(NewRecord, "queue_id"), R_BODY = slot(NewRecord, "body")
cdef Py_ssize_t R_PROPERTIES = slot(NewRecord, "properties"), R_FLAG = slot(NewRecord, "flag")
cdef Py_ssize_t R_SYS_FLAG = slot(NewRecord, "sys_flag"), R_BORN = slot(NewRecord, "born_timestamp")
cdef Py_ssize_t R_HOST = slot(NewRecord, "born_host"), R_PORT = slot(NewRecord, "born_port")
cdef Py_ssize_t R_RECONSUMED = slot(NewRecord, "reconsume_times")
cdef Py_ssize_t R_PREPARED = slot(NewRecord, "prepared_transaction_offset")
cdef Py_ssize_t R_TAGS = slot(NewRecord, "tags_code"), R_KEYS = slot(NewRecord, "keys"), R_UNIQUE = slot(NewRecord, "uniq_key")
cdef Py_ssize_t L_MAP = slot(LogTail, "_map"), L_CHECK = slot(LogTail, "_check"), L_OVERHEAD = slot(LogTail, "_overhead")
cdef Py_ssize_t L_BITS = slot(LogTail, "_sys_bits"), L_CRC = slot(LogTail, "appends_crc"), L_BASE = slot(LogTail, "base")
cdef Py_ssize_t L_POSITION = slot(LogTail, "position"), L_HOST = slot(LogTail, "store_host_field")
cdef Py_ssize_t Q_MAP = slot(QueueTail, "_map"), Q_POSITION = slot(QueueTail, "_position"), Q_TOPIC = slot(QueueTail, "topic")
cdef Py_ssize_t Q_RESERVED = slot(QueueTail, "_reserved"), Q_ARRIVED = slot(QueueTail, "arrived")
cdef Py_ssize_t Q_DELAYED = slot(QueueTail, "delayed"), Q_DIRTY = slot(QueueTail, "dirty"), Q_MAGIC = slot(QueueTail, "magic")
cdef Py_ssize_t Q_MAX = slot(QueueTail, "max_offset"), Q_PHYSICAL = slot(QueueTail, "max_physical")
cdef Py_ssize_t Q_NEXT = slot(QueueTail, "next_offset"), Q_PLAIN = slot(QueueTail, "plain")
cdef Py_ssize_t Q_FIELD = slot(QueueTail, "topic_field")
cdef object _crc32 = _records.crc32


cdef bint store(
    memory, int64_t at, int64_t size, int64_t physical, int64_t magic, topic_field, int64_t queue_offset,
    int64_t sys_flag, int64_t stored, store_host, record,
) except -1:
    """Write a record; False, and nothing is written, when it is none as `NewRecord` says or does not fill `size`."""
    cdef Py_buffer view
    cdef uint8_t *p
    cdef int odd = 0
    cdef PyObject *body = tz_peek(record, R_BODY)
    cdef PyObject *properties = tz_peek(record, R_PROPERTIES)
    cdef PyObject *host = tz_peek(record, R_HOST)
    if not (PyBytes_CheckExact(<object>body) and PyBytes_CheckExact(<object>properties) and PyBytes_CheckExact(<object>host)
            and PyBytes_CheckExact(topic_field) and PyBytes_CheckExact(store_host)):
        return False
    cdef int64_t queue_id = tz_i32(tz_peek(record, R_QUEUE_ID), &odd), flag = tz_i32(tz_peek(record, R_FLAG), &odd)
    cdef int64_t born = tz_i64(tz_peek(record, R_BORN), &odd), port = tz_i32(tz_peek(record, R_PORT), &odd)
    cdef int64_t reconsumed = tz_i32(tz_peek(record, R_RECONSUMED), &odd)
    cdef int64_t prepared = tz_i64(tz_peek(record, R_PREPARED), &odd)
    cdef int64_t length = PyBytes_GET_SIZE(<object>body), more = PyBytes_GET_SIZE(<object>properties)
    cdef int64_t needed = length + more + PyBytes_GET_SIZE(topic_field) + 78
    needed += PyBytes_GET_SIZE(<object>host) + PyBytes_GET_SIZE(store_host)
    odd |= PyBytes_GET_SIZE(<object>host) not in (4, 16) or PyBytes_GET_SIZE(store_host) not in (8, 20)
    if odd or needed != size or more > 32767 or sys_flag != <int32_t>sys_flag or magic != <int32_t>magic:
        return False
    crc = _crc32(<object>body)
    PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE)
    if 0 <= at <= view.len - size:
        p = <uint8_t *>view.buf + at
        p = tz_put32(tz_put32(tz_put32(p, <uint32_t>size), <uint32_t>magic), <uint32_t>crc & 0x7FFFFFFF)
        p = tz_put32(tz_put32(p, <uint32_t>queue_id), <uint32_t>flag)
        p = tz_put32(tz_put64(tz_put64(p, queue_offset), physical), <uint32_t>sys_flag)
        p = tz_put32(tz_put(tz_put64(p, born), host), <uint32_t>port)
        p = tz_put(tz_put64(p, stored), <PyObject *>store_host)
        p = tz_put32(tz_put64(tz_put32(p, <uint32_t>reconsumed), prepared), <uint32_t>length)
        p = tz_put(tz_put(p, body), <PyObject *>topic_field)
        p[0], p[1] = <uint8_t>(more >> 8), <uint8_t>more
        tz_put(p + 2, properties)
        odd = -1
    PyBuffer_Release(&view)
    return odd == -1


def put_record(
    target, position, size, physical_offset, magic, topic_field, queue_offset, sys_flag, store_timestamp,
    store_host_field, record,
):
    """See `tianzhou._hot.records.put_record`."""
    if type(record) is not NewRecord or not store(
        target, position, size, physical_offset, magic, topic_field, queue_offset, sys_flag, store_timestamp,
        store_host_field, record,
    ):
        _records.put_record(
            target, position, size, physical_offset, magic, topic_field, queue_offset, sys_flag, store_timestamp,
            store_host_field, record,
        )


def put_usual(log, queue, record, int64_t stored, pending):
    """See `tianzhou._hot.records.put_usual`."""
    cdef int odd = 0
    if type(record) is not NewRecord or not PyObject_TypeCheck(log, LogTail) or not PyObject_TypeCheck(queue, QueueTail):
        return -1
    cdef PyObject *body = tz_peek(record, R_BODY)
    cdef PyObject *properties = tz_peek(record, R_PROPERTIES)
    cdef PyObject *host = tz_peek(record, R_HOST)
    cdef PyObject *topic_field = tz_peek(queue, Q_FIELD)
    cdef int64_t sys_flag = tz_i32(tz_peek(record, R_SYS_FLAG), &odd), position = tz_i64(tz_peek(log, L_POSITION), &odd)
    if odd or sys_flag & 0x84:  # inner batches, halves, what was rolled back
        return -1
    if not (PyBytes_CheckExact(<object>body) and PyBytes_CheckExact(<object>properties) and PyBytes_CheckExact(<object>host)):
        return -1
    if PyBytes_GET_SIZE(<object>host) != 4 or <object>tz_peek(queue, Q_DELAYED) or <object>tz_peek(log, L_CRC):
        return -1
    if memchr(PyBytes_AS_STRING(<object>properties), 0, PyBytes_GET_SIZE(<object>properties)) != NULL:
        return -1
    cdef int64_t size = tz_i64(tz_peek(log, L_OVERHEAD), &odd) + PyBytes_GET_SIZE(<object>topic_field)
    size += PyBytes_GET_SIZE(<object>body) + PyBytes_GET_SIZE(<object>properties)
    cdef int64_t physical = tz_i64(tz_peek(log, L_BASE), &odd) + position
    cdef int64_t offset = tz_i64(tz_peek(queue, Q_NEXT), &odd), check = tz_i64(tz_peek(log, L_CHECK), &odd)
    if odd or position + size > check or <object>tz_peek(log, L_MAP) is None:
        return -1
    sys_flag = sys_flag & ~0x30 | tz_i32(tz_peek(log, L_BITS), &odd)
    place = physical
    number = offset
    if not store(<object>tz_peek(log, L_MAP), position, size, physical, <object>tz_peek(queue, Q_MAGIC),
                 <object>topic_field, offset, sys_flag, stored, <object>tz_peek(log, L_HOST), record):
        return -1
    tz_set(log, L_POSITION, position + size)
    tz_set(queue, Q_NEXT, offset + 1)
    pending.append((queue, number, place, size, <object>tz_peek(record, R_TAGS), stored, sys_flag & 0xC,
                    <object>tz_peek(record, R_UNIQUE), <object>tz_peek(record, R_KEYS)))
    return place


def gather(const uint8_t[:] units, segments, int64_t segment_size, int64_t log_end, tag_codes, accept, limits):
    """See `tianzhou._hot.records.gather`."""
    cdef int64_t memory_bound, count_in_memory, bytes_in_memory, count_on_disk, bytes_on_disk
    cdef int64_t physical, tags, at, number, held = -1, begin = 0, total = 0, last = 0, found = 0, scanned = 0
    cdef int64_t log_begin = segments[0].start if segments else log_end
    cdef int32_t size
    cdef Py_ssize_t unit = 0
    cdef bint gone = False
    cdef Place p
    cdef const uint8_t[:] data = None
    cdef list parts = []
    cdef Py_ssize_t count = len(segments)
    memory_bound, count_in_memory, bytes_in_memory, count_on_disk, bytes_on_disk = limits
    view = None
    while unit + 20 <= units.shape[0]:
        p = &units[unit]
        physical, size, tags = <int64_t>tz_get64(p), <int32_t>tz_get32(p + 8), <int64_t>tz_get64(p + 12)
        if found:
            if log_end - physical <= memory_bound:
                if found >= count_in_memory or total + size > bytes_in_memory:
                    return parts, total, scanned, last, gone
            elif found >= count_on_disk or total + size > bytes_on_disk:
                return parts, total, scanned, last, gone
        scanned += 1
        unit += 20
        if tag_codes is not None and tags > -0x80000001LL and tags not in tag_codes:
            continue
        at = physical - log_begin
        if tags == 0x7FFFFFFF7FFFFFFF or at < 0 or physical + size > log_end or size > segment_size:
            gone = gone or not found
            continue
        number = at // segment_size
        if number >= count:
            break
        if number != held:
            segment = segments[number]
            view, begin, held = segment.view, segment.start, number
            data = view
        at = physical - begin
        if at > segment_size - 36:
            gone = gone or not found
            continue
        if not 0 <= at <= data.shape[0] - 36:
            break
        p = &data[at]
        number = <int32_t>tz_get32(p + 4)
        if (<int32_t>tz_get32(p) != size or <int64_t>tz_get64(p + 28) != physical
                or (number != -626843481 and number != -626843477)):
            gone = gone or not found
            continue
        record = view[at : at + size]
        if accept is not None and not accept(record):
            continue
        parts.append(record)
        found += 1
        total += size
        last = physical
    else:
        return parts, total, scanned, last, gone
    # The arguments contradict each other.
    return _records.gather(units.base, segments, segment_size, log_end, tag_codes, accept, limits)


# Properties of a message to be stored

cdef class PropertyReader:
    """See `tianzhou._hot.properties.PropertyReader`."""

    cdef object pure
    cdef bytes tail
    cdef list special

    def __init__(self, special, tail, tags_code):
        self.pure = _properties.PropertyReader(special, tail, tags_code).read
        self.tail, self.special = tail, [name.encode() for name in special]

    def read(self, text):
        """See `tianzhou._hot.properties.PropertyReader.read`."""
        cdef Py_ssize_t size = 0
        cdef Place p, end, name, value
        cdef Place unique = NULL, keys = NULL
        cdef Py_ssize_t unique_size = 0, keys_size = 0
        cdef uint32_t tags = 0
        cdef bint waits = True
        if not tz_ascii(text):
            return self.pure(text)
        p = <Place>PyUnicode_AsUTF8AndSize(text, &size)
        end = p + size
        while p < end:
            name = p
            p = <Place>memchr(name, 2, end - name)
            if p == NULL:
                p = end
            if p > name:
                value = <Place>memchr(name, 1, p - name)
                if value == NULL:
                    return None
                size = value - name
                value += 1
                if size == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
                    unique, unique_size = value, p - value
                elif size == 4 and memcmp(name, b"KEYS", 4) == 0:
                    keys, keys_size = value, p - value
                elif size == 4 and memcmp(name, b"TAGS", 4) == 0:
                    tags = polynomial(0, value, p - value)
                elif size == 4 and memcmp(name, b"WAIT", 4) == 0:
                    waits = p - value != 5 or memcmp(value, b"false", 5) != 0
                else:
                    for known in self.special:
                        if PyBytes_GET_SIZE(known) == size and memcmp(PyBytes_AS_STRING(known), name, size) == 0:
                            return None
            p += 1
        if unique_size == 0:
            return None
        p = <Place>PyUnicode_AsUTF8AndSize(text, &size)
        cdef bint ended = p[size - 1] == 2
        stored = PyBytes_FromStringAndSize(NULL, size + (not ended) + PyBytes_GET_SIZE(self.tail))
        cdef char *target = PyBytes_AS_STRING(stored)
        memcpy(target, p, size)
        target[size] = 2
        memcpy(target + size + (not ended), PyBytes_AS_STRING(self.tail), PyBytes_GET_SIZE(self.tail))
        return (
            stored, PyUnicode_DecodeUTF8(<const char *>unique, unique_size, NULL),
            PyUnicode_DecodeUTF8(<const char *>keys, keys_size, NULL), <int32_t>tags, waits,
        )


cdef uint32_t polynomial(uint32_t value, Place text, Py_ssize_t size) noexcept:
    """Java's hash of a text, going on from that of what stands before it."""
    cdef Py_ssize_t at
    for at in range(size):
        value = 31 * value + text[at]
    return value


# Dispatch: queue units and index entries

cdef enum:
    MOST_KEYS = 16

cdef Py_ssize_t I_MAP = slot(IndexTail, "_map"), I_ENTRIES = slot(IndexTail, "_entries")
cdef Py_ssize_t I_RESERVED = slot(IndexTail, "_reserved"), I_TOUCHED = slot(IndexTail, "_touched")
cdef Py_ssize_t I_BEGIN = slot(IndexTail, "begin_timestamp"), I_CAPACITY = slot(IndexTail, "capacity")
cdef Py_ssize_t I_COUNT = slot(IndexTail, "count"), I_END = slot(IndexTail, "end_offset"), I_SLOTS = slot(IndexTail, "slots")
cdef Py_ssize_t I_STORED = slot(IndexTail, "end_timestamp"), I_USED = slot(IndexTail, "slot_count")


cdef int key_hashes(topic, unique, keys, uint32_t *hashes) except -2:
    """Hashes of a record's index entries in order, and how many; -1 when someone else has to see to it."""
    cdef Py_ssize_t size = 0, upto
    cdef uint32_t head, found
    cdef int count = 0
    cdef Place p, end
    if not (tz_ascii(topic) and tz_ascii(unique) and tz_ascii(keys)):
        return -1
    p = <Place>PyUnicode_AsUTF8AndSize(topic, &size)
    head = 31 * polynomial(0, p, size) + c"#"
    for text in (unique, keys):
        p = <Place>PyUnicode_AsUTF8AndSize(text, &size)
        end = p + size
        while p < end:
            upto = end - p
            if text is keys and memchr(p, c" ", upto) != NULL:
                upto = <Place>memchr(p, c" ", upto) - p
            if upto:
                if count == MOST_KEYS:
                    return -1
                found = polynomial(head, p, upto)
                hashes[count] = found if found < 0x80000000U else (0 - found) & 0x7FFFFFFF
                count += 1
            p += upto + 1
    return count


cdef bint index_record(file, uint32_t *hashes, int count, int64_t physical, int64_t stored, bint write) except -1:
    """Add a record's entries to an index file; without `write` only see to it that nothing is in the way."""
    cdef int odd = 0, step
    cdef int64_t at = tz_i64(tz_peek(file, I_COUNT), &odd), entries = tz_i64(tz_peek(file, I_ENTRIES), &odd)
    cdef int64_t slots = tz_i64(tz_peek(file, I_SLOTS), &odd), begin = tz_i64(tz_peek(file, I_BEGIN), &odd)
    cdef int64_t used = tz_i64(tz_peek(file, I_USED), &odd), seconds = (stored - begin) // 1000, place, previous
    cdef Py_buffer view
    cdef uint8_t *p
    if odd or tz_peek(file, I_MAP) == NULL or slots <= 0:
        return False
    if not write:
        if at <= 1 or begin <= 0 or at + count > tz_i64(tz_peek(file, I_CAPACITY), &odd):
            return False
        if physical <= tz_i64(tz_peek(file, I_END), &odd):
            return False
        touched = <object>tz_peek(file, I_TOUCHED)
        for step in range(count):
            place = 40 + 4 * (hashes[step] % slots)
            if not touched[place >> 12]:
                file._touch(place)
        if entries + 20 * (at + count) > tz_i64(tz_peek(file, I_RESERVED), &odd):
            return False
        return not odd
    seconds = 0 if seconds < 0 else min(seconds, 0x7FFFFFFF)
    PyObject_GetBuffer(<object>tz_peek(file, I_MAP), &view, PyBUF_WRITABLE)
    odd = entries < 40 + 4 * slots or entries + 20 * (at + count) > view.len
    for step in range(0 if odd else count):
        p = <uint8_t *>view.buf + 40 + 4 * (hashes[step] % slots)
        previous = <int32_t>tz_get32(p)
        if previous <= 0 or previous > at:
            previous = 0
            used += 1
        tz_put32(p, <uint32_t>at)
        p = tz_put64(tz_put32(<uint8_t *>view.buf + entries + 20 * at, hashes[step]), physical)
        tz_put32(tz_put32(p, <uint32_t>seconds), <uint32_t>previous)
        at += 1
    PyBuffer_Release(&view)
    if odd:
        raise ValueError("an index file is smaller than it says")
    tz_set(file, I_COUNT, at)
    tz_set(file, I_USED, used)
    tz_set(file, I_END, physical)
    tz_set(file, I_STORED, stored)
    return True


def fill(pending, list dirty, bint indexed, newest, limit, Py_ssize_t most):
    """See `tianzhou._hot.records.fill`."""
    cdef uint32_t hashes[MOST_KEYS]
    cdef int odd = 0, count = 0
    cdef Py_ssize_t done = 0
    cdef int64_t upto = 0x7FFFFFFFFFFFFFFF if limit is None else limit
    cdef int64_t offset, physical, size, tags, stored = 0, kind, at, reached = 0
    cdef Py_buffer view
    while done < most and pending:
        queue, number, place, length, code, when, bits, unique, keys = pending[0]
        offset, physical, size, tags, kind = number, place, length, code, bits
        if physical + size > upto or not PyObject_TypeCheck(queue, QueueTail) or not <object>tz_peek(queue, Q_PLAIN):
            break
        at = tz_i64(tz_peek(queue, Q_POSITION), &odd)
        if (odd or at < 0 or kind == 4 or kind == 0xC or offset != tz_i64(tz_peek(queue, Q_MAX), &odd)
                or at + 20 > tz_i64(tz_peek(queue, Q_RESERVED), &odd) or <object>tz_peek(queue, Q_MAP) is None
                or physical < tz_i64(tz_peek(queue, Q_PHYSICAL), &odd)):
            break
        count = key_hashes(<object>tz_peek(queue, Q_TOPIC), unique, keys, hashes) if indexed else 0
        try:
            if count < 0 or (count and (not PyObject_TypeCheck(newest, IndexTail)
                                        or not index_record(newest, hashes, count, physical, when, False))):
                break
        except OSError:
            break  # it comes again, in its place
        PyObject_GetBuffer(<object>tz_peek(queue, Q_MAP), &view, PyBUF_WRITABLE)
        if at <= view.len - 20:
            tz_put64(tz_put32(tz_put64(<uint8_t *>view.buf + at, physical), <uint32_t>size), tags)
        PyBuffer_Release(&view)
        tz_set(queue, Q_POSITION, at + 20)
        tz_set(queue, Q_MAX, offset + 1)
        tz_set(queue, Q_PHYSICAL, physical + size)
        if not <object>tz_peek(queue, Q_DIRTY):
            tz_set(queue, Q_DIRTY, True)
            dirty.append(queue)
        if count:
            index_record(newest, hashes, count, physical, when, True)
        pending.popleft()
        if <object>tz_peek(queue, Q_ARRIVED) is not None:
            (<object>tz_peek(queue, Q_ARRIVED)).advance(offset + 1)
        done += 1
        reached, stored = physical + size, when
    return done, reached, stored

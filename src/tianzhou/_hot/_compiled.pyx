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
    if start != end:
        more, start = _frames.split(buffer, start, end, max_frame, decode)
        commands += more
    return commands, start


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


cdef object sent(opaque, id_head, int64_t place, queue_id, queue_offset, transaction_id, region, trace_on):
    """The reply to a send; None when it is not a usual one. `place` is the rest of the message id, -1 when it has none."""
    global _sent_for, _sent
    cdef uint8_t frame[2048]
    cdef uint8_t *p = frame + 8
    cdef Py_ssize_t id_size = 0, size = 0
    cdef const char *id_text = PyUnicode_AsUTF8AndSize(id_head, &id_size)
    cdef const char *text = NULL
    cdef int digit
    if _sent_for is None or _sent_for[0] is not region or _sent_for[1] is not trace_on:
        # What stands between the values.
        whole = _frames.send_reply("\0", "\0", "\0", "\0", "T", region, trace_on)[8:]
        _sent_for, _sent = (region, trace_on), tuple(whole.replace(b"T", b"\0", 1).split(b"\0"))
    if tz_ascii(transaction_id):
        text = PyUnicode_AsUTF8AndSize(transaction_id, &size)
    if text == NULL or len(_sent) != 6 or id_size + size + len(region) * 6 > 1500 or not alphanumeric(text, size):
        return None
    p = add_number(tz_put(p, <PyObject *>_sent[0]), queue_id)
    p = tz_put(p, <PyObject *>_sent[1])
    memcpy(p, text, size)
    p = tz_put(p + size, <PyObject *>_sent[2])
    memcpy(p, id_text, id_size)
    p += id_size
    if place >= 0:
        for digit in range(16):
            p[digit] = b"0123456789ABCDEF"[place >> (60 - 4 * digit) & 15]
        p += 16
    p = add_number(tz_put(p, <PyObject *>_sent[3]), queue_offset)
    p = tz_put(add_number(tz_put(p, <PyObject *>_sent[4]), opaque), <PyObject *>_sent[5])
    tz_put32(tz_put32(frame, <uint32_t>(p - frame - 4)), <uint32_t>(p - frame - 8))
    return PyBytes_FromStringAndSize(<char *>frame, p - frame)


def send_reply(opaque, msg_id, queue_id, queue_offset, transaction_id, region, trace_on):
    """See `tianzhou._hot.frames.send_reply`."""
    reply = sent(opaque, msg_id, -1, queue_id, queue_offset, transaction_id, region, trace_on)
    if reply is None:
        return _frames.send_reply(opaque, msg_id, queue_id, queue_offset, transaction_id, region, trace_on)
    return reply


def stored_reply(opaque, id_head, place, queue_id, queue_offset, transaction_id, region, trace_on):
    """See `tianzhou._hot.frames.stored_reply`."""
    reply = sent(opaque, id_head, place, queue_id, queue_offset, transaction_id, region, trace_on)
    if reply is None:
        return _frames.stored_reply(opaque, id_head, place, queue_id, queue_offset, transaction_id, region, trace_on)
    return reply


include "_storing.pxi"

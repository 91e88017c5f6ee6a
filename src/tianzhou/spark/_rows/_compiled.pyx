# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""Usual records to the buffers of Arrow columns.

What `tianzhou.spark.columns` makes of the same bytes with NumPy and Arrow is what this makes, or nothing: with the first
record that is not usual `fill` gives up, and the batch is made there. Not usual are inner batches, packed bodies,
IPv6 addresses, properties that are no UTF-8 or have a name twice, whatever is damaged, and what a queue says otherwise.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from "rows.h":
    const char *SOURCE_TEXT "TIANZHOU_SOURCE"
    uint16_t tz_get16(const uint8_t *) nogil
    uint32_t tz_get32(const uint8_t *) nogil
    uint64_t tz_get64(const uint8_t *) nogil
    bint tz_ascii(const uint8_t *, size_t) nogil
    object PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *)

SOURCE = SOURCE_TEXT.decode()
"""Digest of the sources this was compiled from; `tianzhou.spark._rows` compares it."""

ctypedef const uint8_t *Place

cdef enum:
    # A record with IPv4 addresses (store.md §3.2).
    QUEUE_ID = 12, QUEUE_OFFSET = 20, PHYSICAL = 28, SYS_FLAG = 36, BORN_TIME = 40, BORN_HOST = 48, STORE_TIME = 56
    STORE_HOST = 64, RECONSUMED = 72, BODY_SIZE = 84, BODY = 88
    SMALLEST = 91
    COMPRESSED = 0x1, NOT_USUAL = 0xF0  # IPv6 addresses and inner batches
    HOST_TEXT = 27, ID_TEXT = 32
    MOST_PAIRS = 64
    LARGEST = 0x7FFFFFFF

cdef uint32_t MAGIC_V1 = 0xDAA320A7, MAGIC_V2 = 0xDAA320AB

# Columns, by their bits in `wanted` and their places in what `fill` returns.
cdef enum:
    C_OFFSET, C_PHYSICAL, C_BORN, C_STORED, C_RECONSUMED, C_FLAGS
    C_ID, C_TAGS, C_KEYS, C_BORN_HOST, C_STORE_HOST, C_BODY, C_PROPERTIES
    COLUMNS
    TEXTS = C_BODY - C_ID + 1

NAMES = ("queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp", "reconsumeTimes", "sysFlag",
         "msgId", "tags", "keys", "bornHost", "storeHost", "body", "properties")

cdef struct Row:
    Place start, properties
    int32_t body_size, properties_size

cdef struct Text:
    int32_t *edges
    uint8_t *content
    uint8_t *valid
    int32_t used
    Py_ssize_t missing

cdef struct Host:
    uint64_t value
    uint8_t text[HOST_TEXT]
    int32_t size


cdef Place locate(Place p, int64_t size, Row *row) noexcept nogil:
    """Find the parts of a record of at most so many bytes; where its topic begins, NULL when it is not usual."""
    cdef uint32_t magic = tz_get32(p + 4)
    cdef int wide = magic == MAGIC_V2
    cdef int64_t body_size = <int32_t>tz_get32(p + BODY_SIZE)
    cdef Place end = p + size
    cdef Place topic
    if (magic != MAGIC_V1 and not wide) or tz_get32(p + SYS_FLAG) & NOT_USUAL:
        return NULL
    if body_size < 0 or body_size > size - SMALLEST - wide:
        return NULL
    topic = p + BODY + body_size + 1 + wide
    row.start = p
    row.body_size = <int32_t>body_size
    row.properties = topic + (tz_get16(topic - 2) if wide else (topic - 1)[0]) + 2
    if row.properties > end or tz_get16(row.properties - 2) != end - row.properties:
        return NULL
    row.properties_size = <int32_t>(end - row.properties)
    return topic


cdef inline void add(Text *text, Py_ssize_t row, Place value, int32_t size) noexcept nogil:
    """Put a value behind those that are there; `NULL` for none."""
    if value == NULL:
        text.missing += 1
        text.valid[row >> 3] &= ~(1 << (row & 7))
    else:
        memcpy(text.content + text.used, value, size)
        text.used += size
    text.edges[row + 1] = text.used


cdef int32_t number(uint8_t *target, uint32_t value) noexcept nogil:
    """A whole number as decimal text; how long it is."""
    cdef uint8_t[10] digits
    cdef int32_t count = 0, step
    while True:
        digits[count] = c"0" + value % 10
        count += 1
        value //= 10
        if not value:
            break
    for step in range(count):
        target[step] = digits[count - 1 - step]
    return count


cdef inline void add_host(Text *text, Py_ssize_t row, Place p, Host *last) noexcept nogil:
    """Put an address and port of 8 bytes as `ip:port`; most are the one before."""
    cdef uint64_t value = tz_get64(p)
    cdef int32_t port = <int32_t>value, at = 0
    cdef int step
    if value != last.value or not last.size:
        for step in range(4):
            at += number(last.text + at, p[step])
            last.text[at] = c"." if step < 3 else c":"
            at += 1
        if port < 0:
            last.text[at] = c"-"
            at += 1
        at += number(last.text + at, <uint32_t>port if port >= 0 else 0 - <uint32_t>port)
        last.value, last.size = value, at
    add(text, row, last.text, last.size)


cdef void add_made_id(Text *text, Py_ssize_t row, Place start) noexcept nogil:
    """Put the offset id of a record (store.md §0.6)."""
    cdef uint8_t[ID_TEXT] made
    cdef int step
    cdef uint8_t byte
    for step in range(16):
        byte = start[STORE_HOST + step] if step < 8 else start[PHYSICAL + step - 8]
        made[2 * step] = b"0123456789ABCDEF"[byte >> 4]
        made[2 * step + 1] = b"0123456789ABCDEF"[byte & 15]
    add(text, row, made, ID_TEXT)


cdef class Buffers:
    """What becomes the buffers of Arrow arrays: bytes, so that they need no one who gives them back."""

    cdef list made

    def __cinit__(self):
        self.made = []

    cdef void *take(self, int64_t size) except NULL:
        made = PyBytes_FromStringAndSize(NULL, size if size else 1)
        self.made.append(made)
        return PyBytes_AS_STRING(made)

    cdef int text(self, Text *text, Py_ssize_t rows, int64_t most) except -1:
        text.edges = <int32_t *>self.take(4 * (rows + 1))
        text.content = <uint8_t *>self.take(most)
        text.valid = <uint8_t *>self.take((rows + 7) // 8)
        memset(text.valid, 0xFF, (rows + 7) // 8)
        text.edges[0], text.used, text.missing = 0, 0, 0
        return 0


def fill(data, const int64_t[::1] starts, const int64_t[::1] sizes, const int64_t[::1] offsets, int64_t position,
         int32_t queue_id, bytes topic, int64_t low, int64_t high, uint32_t wanted):
    """The buffers of the columns of usual records; None when one of them is not.

    Args:
        data: a buffer.
        starts: where each record begins in it; None when they are one behind the other and fill it.
        sizes: how long each is, beside `starts`.
        offsets: the queue offset each says it has, beside `starts`; they have to be of the topic and queue, and to say
            that they are where they are.
        position: where `data` begins in the commit log, beside `starts`.
        queue_id: see `offsets`.
        topic: see `offsets`.
        low: first queue offset that is wanted.
        high: the one behind the last.
        wanted: a bit for each column of `NAMES`.

    Returns:
        How many rows there are, and for each column that is wanted, in the order of `NAMES`: its values, or, of text:
        edges, content, which are there and how many are not; of the properties: their edges, and how many there are,
        followed by edges, content, edges and content of names and values.
    """
    cdef Py_buffer view
    cdef Row *rows = NULL
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        most = view.len // SMALLEST if starts is None else starts.shape[0]
        if starts is not None and (sizes.shape[0] < starts.shape[0] or offsets.shape[0] < starts.shape[0]):
            return None
        rows = <Row *>PyMem_Malloc((most + 1) * sizeof(Row))
        if rows == NULL:
            raise MemoryError
        return filled(&view, rows, most, starts, sizes, offsets, position, queue_id, topic, low, high, wanted)
    finally:
        PyMem_Free(rows)
        PyBuffer_Release(&view)


cdef filled(Py_buffer *view, Row *rows, Py_ssize_t most, const int64_t[::1] starts, const int64_t[::1] sizes,
            const int64_t[::1] offsets, int64_t position, int32_t queue_id, bytes topic, int64_t low, int64_t high, uint32_t wanted):
    cdef Place begin = <Place>view.buf, named, p
    cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(topic)
    cdef int64_t at = 0, size, offset, body_bytes = 0, property_bytes = 0
    cdef Py_ssize_t row, count = 0, number = 0
    cdef Row *one
    while number < most if starts is not None else at < view.len:
        if starts is not None:
            at, size = starts[number], sizes[number]
            if at < 0 or at > view.len:
                return None
        else:
            size = <int32_t>tz_get32(begin + at) if view.len - at >= SMALLEST else 0
        p = begin + at
        if size < SMALLEST or size > view.len - at or <int32_t>tz_get32(p) != size:
            return None
        one = &rows[count]
        named = locate(p, size, one)
        offset = <int64_t>tz_get64(p + QUEUE_OFFSET)
        if named == NULL or (wanted >> C_BODY & 1 and tz_get32(p + SYS_FLAG) & COMPRESSED):
            return None
        if starts is not None:
            if (offset != offsets[number] or <int32_t>tz_get32(p + QUEUE_ID) != queue_id
                    or <int64_t>tz_get64(p + PHYSICAL) != position + at
                    or one.properties - 2 - named != topic_size or memcmp(named, PyBytes_AS_STRING(topic), topic_size)):
                return None
            number += 1
        else:
            at += size
        if low <= offset < high:
            body_bytes += one.body_size
            property_bytes += one.properties_size
            count += 1
    if body_bytes + property_bytes + <int64_t>ID_TEXT * count > LARGEST:
        return None

    cdef Buffers buffers = Buffers()
    cdef Text[TEXTS] texts
    cdef Text keys, values
    cdef int64_t[5] bounds
    cdef int64_t *longs[4]
    cdef int32_t *ints[2]
    cdef int32_t *edges = NULL
    cdef int column
    cdef bint paired = wanted >> C_PROPERTIES & 1, look = wanted >> C_ID & 7 or paired
    cdef list columns = []
    for column in range(C_ID):
        if wanted >> column & 1:
            if column < C_RECONSUMED:
                longs[column] = <int64_t *>buffers.take(8 * count)
            else:
                ints[column - C_RECONSUMED] = <int32_t *>buffers.take(4 * count)
            columns.append(buffers.made.pop())
    bounds[0] = property_bytes + ID_TEXT * count
    bounds[1] = bounds[2] = property_bytes
    bounds[3] = bounds[4] = HOST_TEXT * count
    for column in range(C_ID, C_PROPERTIES):
        if wanted >> column & 1:
            buffers.text(&texts[column - C_ID], count, body_bytes if column == C_BODY else bounds[column - C_ID])
    # A pair has a byte at least on both sides of a separator, and all but a message's last one are terminated.
    cdef int64_t most_pairs = (property_bytes + count) // 4
    if paired:
        edges = <int32_t *>buffers.take(4 * (count + 1))
        edges[0] = 0
        buffers.text(&keys, most_pairs, property_bytes)
        buffers.text(&values, most_pairs, property_bytes)

    cdef Host born, stored
    born.size = stored.size = 0
    cdef Place end, ending, middle
    cdef Place[3] found  # msgId, tags, keys
    cdef int32_t[3] lengths
    cdef int32_t pairs = 0, first, length, other
    for row in range(count):
        one = &rows[row]
        p = one.start
        if wanted >> C_OFFSET & 1:
            longs[0][row] = <int64_t>tz_get64(p + QUEUE_OFFSET)
        if wanted >> C_PHYSICAL & 1:
            longs[1][row] = <int64_t>tz_get64(p + PHYSICAL)
        if wanted >> C_BORN & 1:
            longs[2][row] = <int64_t>(1000 * tz_get64(p + BORN_TIME))
        if wanted >> C_STORED & 1:
            longs[3][row] = <int64_t>(1000 * tz_get64(p + STORE_TIME))
        if wanted >> C_RECONSUMED & 1:
            ints[0][row] = <int32_t>tz_get32(p + RECONSUMED)
        if wanted >> C_FLAGS & 1:
            ints[1][row] = <int32_t>tz_get32(p + SYS_FLAG)
        if wanted >> C_BORN_HOST & 1:
            add_host(&texts[C_BORN_HOST - C_ID], row, p + BORN_HOST, &born)
        if wanted >> C_STORE_HOST & 1:
            add_host(&texts[C_STORE_HOST - C_ID], row, p + STORE_HOST, &stored)
        if wanted >> C_BODY & 1:
            add(&texts[C_BODY - C_ID], row, p + BODY, one.body_size)
        if not look:
            continue
        p, end = one.properties, one.properties + one.properties_size
        if not tz_ascii(p, one.properties_size):
            try:
                PyUnicode_DecodeUTF8(<const char *>p, one.properties_size, NULL)
            except UnicodeDecodeError:
                return None
        found[0] = found[1] = found[2] = NULL
        first = pairs
        while p < end:
            ending = <Place>memchr(p, 2, end - p)
            if ending == NULL:
                ending = end
            middle = <Place>memchr(p, 1, ending - p)
            if middle != NULL and middle > p and middle + 1 < ending:
                length = <int32_t>(middle - p)
                if length == 4 and memcmp(p, b"TAGS", 4) == 0:
                    found[1], lengths[1] = middle + 1, <int32_t>(ending - middle - 1)
                elif length == 4 and memcmp(p, b"KEYS", 4) == 0:
                    found[2], lengths[2] = middle + 1, <int32_t>(ending - middle - 1)
                elif length == 8 and memcmp(p, b"UNIQ_KEY", 8) == 0:
                    found[0], lengths[0] = middle + 1, <int32_t>(ending - middle - 1)
                if paired:
                    for other in range(first, pairs):
                        if (keys.edges[other + 1] - keys.edges[other] == length
                                and memcmp(keys.content + keys.edges[other], p, length) == 0):
                            return None
                    if pairs - first == MOST_PAIRS:
                        return None
                    add(&keys, pairs, p, length)
                    add(&values, pairs, middle + 1, <int32_t>(ending - middle - 1))
                    pairs += 1
            p = ending + 1
        if paired:
            edges[row + 1] = pairs
        if wanted >> C_ID & 1:
            if found[0] != NULL:
                add(&texts[0], row, found[0], lengths[0])
            else:
                add_made_id(&texts[0], row, one.start)
        if wanted >> C_TAGS & 1:
            add(&texts[1], row, found[1], lengths[1])
        if wanted >> C_KEYS & 1:
            add(&texts[2], row, found[2], lengths[2])

    made = iter(buffers.made)
    for column in range(TEXTS):
        if wanted >> (C_ID + column) & 1:
            columns.append((next(made), next(made), next(made), texts[column].used, texts[column].missing))
    if paired:
        ends, names, texts_of_names, _, contents, texts_of_values, _ = made
        columns.append((ends, pairs, names, texts_of_names, keys.used, contents, texts_of_values, values.used))
    return count, columns

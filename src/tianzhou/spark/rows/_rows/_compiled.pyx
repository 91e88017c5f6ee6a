# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""Plain records to the buffers of Arrow columns.

What `tianzhou.spark.rows.columns` makes of the same bytes with NumPy and Arrow is what this makes, or nothing: with the first
record that is not plain `fill` gives up, and the batch is made there. Not plain are inner batches, packed bodies,
IPv6 addresses, times outside the years 1 to 9999, producers' times too far ahead of the brokers', properties that
are no UTF-8 or have a name twice, damaged records, and records that are not what their queue says.
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
    int64_t MIN_TIME "TZ_MIN_TIME_MS", MAX_TIME "TZ_MAX_TIME_MS"
    bint tz_ascii(const uint8_t *, size_t) nogil
    object PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *)
    Py_ssize_t Py_REFCNT(object)

SOURCE = SOURCE_TEXT.decode()
"""Digest of the sources this was compiled from; `tianzhou.spark.rows._rows` compares it."""

ctypedef const uint8_t *Place

cdef extern from "layout.h":  # printed from tianzhou.records.layout; a record with IPv4 addresses
    enum:
        MAGIC_AT "TZ_AT_MAGIC", QUEUE_ID "TZ_AT_QUEUE_ID", QUEUE_OFFSET "TZ_AT_QUEUE_OFFSET"
        PHYSICAL "TZ_AT_PHYSICAL_OFFSET", SYS_FLAG "TZ_AT_SYS_FLAG", BORN_TIME "TZ_AT_BORN_TIMESTAMP"
        BORN_HOST "TZ_AT_BORN_HOST", STORE_TIME "TZ_AT_STORE_TIMESTAMP", STORE_HOST "TZ_AT_STORE_HOST"
        RECONSUMED "TZ_AT_RECONSUME_TIMES", BODY_SIZE "TZ_AT_BODY_SIZE", BODY "TZ_HEAD_SIZE", SMALLEST "TZ_OVERHEAD"
        MAGIC_V1 "TZ_MAGIC_V1", MAGIC_V2 "TZ_MAGIC_V2", HOST_BITS "TZ_HOST_BITS", INNER_BATCH_BITS "TZ_INNER_BATCH_BITS"

cdef enum:
    COMPRESSED = 0x1
    HOST_TEXT = 27, ID_TEXT = 32
    MOST_PAIRS = 64
    LARGEST = 0x7FFFFFFF

# Columns, by their bits in `wanted` and their places in what `fill` returns.
cdef enum:
    C_OFFSET, C_PHYSICAL, C_BORN, C_STORED, C_RECONSUMED, C_FLAGS
    C_ID, C_TAGS, C_KEYS, C_BORN_HOST, C_STORE_HOST, C_BODY, C_PROPERTIES
    COLUMNS
    TEXTS = C_BODY - C_ID + 1
    TIMED = 1 << C_BORN | 1 << C_STORED | 1 << C_PROPERTIES

NAMES = ("queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp", "reconsumeTimes", "sysFlag",
         "msgId", "tags", "keys", "bornHost", "storeHost", "body", "properties")

cdef struct Row:
    Place start, properties
    int32_t body_size, properties_size


cdef inline bint is_date(Place p) noexcept nogil:
    """Whether the time at a place, in ms, lies in the years 1 to 9999 of every time zone."""
    cdef int64_t time = <int64_t>tz_get64(p)
    return MIN_TIME <= time <= MAX_TIME


cdef inline bint is_ahead(Place p, int64_t most) noexcept nogil:
    """Whether the producer's time of a record, in ms, is later than the broker's by more than `most`; both are dates."""
    return <int64_t>tz_get64(p + BORN_TIME) - <int64_t>tz_get64(p + STORE_TIME) > most


cdef Place locate(Place p, int64_t size, uint32_t wanted, int64_t ahead, Row *row) noexcept nogil:
    """Find the parts of a record of so many bytes; where its topic begins, NULL when it is not plain."""
    cdef int32_t magic = <int32_t>tz_get32(p + MAGIC_AT)
    cdef int wide = magic == MAGIC_V2
    cdef int64_t body_size = <int32_t>tz_get32(p + BODY_SIZE)
    cdef Place end = p + size
    cdef Place topic
    cdef uint32_t flags = tz_get32(p + SYS_FLAG)
    if (magic != MAGIC_V1 and not wide) or <int32_t>tz_get32(p) != size:
        return NULL
    if flags & (HOST_BITS | INNER_BATCH_BITS) or (flags & COMPRESSED and wanted >> C_BODY & 1):
        return NULL
    if wanted & TIMED and (not (is_date(p + BORN_TIME) and is_date(p + STORE_TIME)) or is_ahead(p, ahead)):
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


include "_texts.pxi"


def fill(data, const int64_t[::1] starts, const int64_t[::1] sizes, const int64_t[::1] offsets, int64_t position,
         int32_t queue_id, bytes topic, int64_t low, int64_t high, uint32_t wanted, int64_t ahead):
    """The buffers of the columns of plain records; None when one of them is not plain.

    Args:
        data: a buffer; without `starts` a list of buffers, each of which holds whole records one behind the other.
        starts: where each record begins in it.
        sizes: how long each is, beside `starts`.
        offsets: the queue offset each says it has, beside `starts`; they have to be of the topic and queue, and to say
            that they are where they are.
        position: where `data` begins in the commit log, beside `starts`.
        queue_id: see `offsets`.
        topic: see `offsets`.
        low: first queue offset that is wanted.
        high: the one behind the last.
        wanted: a bit for each column of `NAMES`.
        ahead: milliseconds by which the producer's time may be later than the broker's.

    Returns:
        How many rows there are, and for each column that is wanted, in the order of `NAMES`: its values, or, of text:
        edges, content, which are there and how many are not; of the properties: their edges, and how many there are,
        followed by edges, content and its length of names and of values.
    """
    cdef Py_buffer view
    cdef Py_ssize_t most
    cdef Row *rows
    if starts is None:
        return of_parts(data, low, high, wanted, ahead)
    most = starts.shape[0]
    if sizes.shape[0] < most or offsets.shape[0] < most:
        return None
    rows = <Row *>PyMem_Malloc((most + 1) * sizeof(Row))
    if rows == NULL:
        raise MemoryError
    try:
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if not are_there(&view, rows, starts, sizes, offsets, position, queue_id, topic, wanted, ahead):
                return None
            return filled(rows, most, wanted)
        finally:
            PyBuffer_Release(&view)
    finally:
        PyMem_Free(rows)


cdef of_parts(list parts, int64_t low, int64_t high, uint32_t wanted, int64_t ahead):
    """The columns of whole records, one behind the other in each of some buffers."""
    cdef Py_ssize_t held = 0, count = 0, most = 0
    cdef Row *rows = NULL
    cdef Py_buffer *views = <Py_buffer *>PyMem_Malloc((len(parts) + 1) * sizeof(Py_buffer))
    if views == NULL:
        raise MemoryError
    try:
        for part in parts:
            PyObject_GetBuffer(part, &views[held], PyBUF_SIMPLE)
            most += views[held].len // SMALLEST
            held += 1
        rows = <Row *>PyMem_Malloc((most + 1) * sizeof(Row))
        if rows == NULL:
            raise MemoryError
        for most in range(held):
            count = walk(<Place>views[most].buf, views[most].len, rows, count, low, high, wanted, ahead)
            if count < 0:
                return None
        return filled(rows, count, wanted)
    finally:
        PyMem_Free(rows)
        while held:
            held -= 1
            PyBuffer_Release(&views[held])
        PyMem_Free(views)


cdef Py_ssize_t walk(Place p, int64_t left, Row *rows, Py_ssize_t count, int64_t low, int64_t high,
                     uint32_t wanted, int64_t ahead) noexcept nogil:
    """Add the records one behind the other that are in the range; how many there are now, -1 where one is not plain."""
    cdef int64_t size
    while left:
        size = <int32_t>tz_get32(p) if left >= SMALLEST else 0
        if size < SMALLEST or size > left or locate(p, size, wanted, ahead, &rows[count]) == NULL:
            return -1
        if low <= <int64_t>tz_get64(p + QUEUE_OFFSET) < high:
            count += 1
        p += size
        left -= size
    return count


cdef bint are_there(Py_buffer *view, Row *rows, const int64_t[::1] starts, const int64_t[::1] sizes,
                    const int64_t[::1] offsets, int64_t position, int32_t queue_id, bytes topic, uint32_t wanted,
                    int64_t ahead):
    """Find the records at some places; whether all are plain, and what the queue says they are."""
    cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(topic), row
    cdef int64_t at, size
    cdef Place p, named
    for row in range(starts.shape[0]):
        at, size = starts[row], sizes[row]
        if at < 0 or at > view.len or size < SMALLEST or size > view.len - at:
            return False
        p = <Place>view.buf + at
        named = locate(p, size, wanted, ahead, &rows[row])
        if (named == NULL or <int32_t>tz_get32(p + QUEUE_ID) != queue_id
                or <int64_t>tz_get64(p + QUEUE_OFFSET) != offsets[row]
                or <int64_t>tz_get64(p + PHYSICAL) != position + at
                or rows[row].properties - 2 - named != topic_size
                or memcmp(named, PyBytes_AS_STRING(topic), topic_size)):
            return False
    return True


cdef filled(Row *rows, Py_ssize_t count, uint32_t wanted):
    """The columns of records that were found."""
    cdef Place p
    cdef int64_t body_bytes = 0, property_bytes = 0
    cdef Py_ssize_t row
    cdef Row *one
    for row in range(count):
        body_bytes += rows[row].body_size
        property_bytes += rows[row].properties_size
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

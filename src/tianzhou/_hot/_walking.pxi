# Included by _compiled.pyx: runs of ordinary records out of a segment, and what queues get of them.

cdef struct Trail:  # the entry before: its index, -1 for any, and its term
    int64_t index, term


def next_run(view, int64_t position, int64_t base, int64_t stop, Py_ssize_t most, bint check_crc):
    return walk_records(view, position, base, stop, most, check_crc, NULL)


cdef tuple walk_records(
        view, int64_t position, int64_t base, int64_t stop, Py_ssize_t most, bint check_crc, Trail *trail):
    """As `next_run`; with a trail, the records stand in entries."""
    cdef Py_buffer data
    cdef Place p, rest
    cdef Place name = NULL  # of the topic before, whose object is taken again
    cdef int64_t size, body_size, topic_size, properties_size, name_size = -1, last, stored, at, newest = 0
    cdef int64_t head = 0 if trail == NULL else ENTRY_HEAD, index = 0, term = 0
    cdef list rows = []
    cdef Window body = Window()
    topic = ""
    PyObject_GetBuffer(view, &data, PyBUF_SIMPLE)
    try:
        last = data.len - BLANK_SIZE
        stop = min(last - OVERHEAD + 1, stop)
        while 0 <= position and position + head < stop and len(rows) < most:
            p = <Place>data.buf + position
            if head:
                size = entry_size(p, data.len - position)
                index, term = <int64_t>tz_get64(p + AT_INDEX), <int64_t>tz_get64(p + AT_TERM)
                if (size == 0 or size > last - position or <int64_t>tz_get64(p + AT_POS) != base + position
                        or (trail.index != -1 and index != trail.index + 1) or term < trail.term
                        or (rows and term != trail.term) or <int32_t>tz_get32(p + head) != size - head):
                    break
                p += head
            at = position + head
            size, body_size = <int32_t>tz_get32(p), <int32_t>tz_get32(p + AT_BODY_SIZE)
            if (<int32_t>tz_get32(p + AT_MAGIC) != MAGIC_V1 or <int64_t>tz_get64(p + AT_PHYSICAL_OFFSET) != base + at
                    or tz_get32(p + AT_SYS_FLAG) & HOST_BITS
                    or not 0 <= body_size <= size - OVERHEAD or size > last - at):
                break
            rest = p + HEAD_SIZE + body_size + 1
            topic_size = (rest - 1)[0]
            properties_size = size - OVERHEAD - body_size - topic_size
            if properties_size < 0:
                break
            rest += topic_size + 2
            if (rest - 2)[0] << 8 | (rest - 1)[0] != properties_size or memchr(rest, 0, properties_size) != NULL:
                break
            if check_crc and body_size:
                body.at, body.size = <void *>(p + HEAD_SIZE), body_size
                if <int64_t>(<uint32_t>_crc32(body) & 0x7FFFFFFF) != <int32_t>tz_get32(p + AT_BODY_CRC):
                    break
            if topic_size != name_size or memcmp(rest - 2 - topic_size, name, topic_size) != 0:
                name, name_size = rest - 2 - topic_size, topic_size
                if memchr(name, 0, topic_size) != NULL:
                    break
                try:
                    topic = PyUnicode_DecodeUTF8(<const char *>name, topic_size, NULL)
                except UnicodeDecodeError:
                    break
            stored = <int64_t>tz_get64(p + AT_STORE_TIMESTAMP)
            newest = max(newest, stored)
            rows.append((
                base + at, size, topic, <int32_t>tz_get32(p + AT_QUEUE_ID), <int64_t>tz_get64(p + AT_QUEUE_OFFSET),
                <int32_t>tz_get32(p + AT_SYS_FLAG), stored, PyBytes_FromStringAndSize(<const char *>rest, properties_size)))
            position = at + size
            if head:
                trail.index, trail.term = index, term
    finally:
        PyBuffer_Release(&data)
    return rows, position, newest


def take_rows(list rows, Py_ssize_t at, dict table, pending, tags_code):
    cdef Values found
    cdef Py_ssize_t step
    cdef tuple row
    cdef bint ascii
    cdef QueueCursor queue
    append = pending.append
    while at < len(rows):
        row = <tuple>rows[at]
        queues = table.get(row[2])
        cursor = None if queues is None else (<dict?>queues).get(row[3])
        if not isinstance(cursor, QueueCursor):
            break
        queue, properties = <QueueCursor>cursor, row[7]
        if not 0 <= <int64_t>row[4] < INT64_MAX:
            break
        if (not queue.plain or queue.delayed
                or <int64_t>row[5] & (TRANSACTION_BITS | INNER_BATCH_BITS) or not PyBytes_CheckExact(properties)
                or not find_values(<Place>PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties), _NAMES, &found)):
            break
        ascii = True
        for step in range(found.size[2]):
            ascii = ascii and found.at[2][step] < 128
        if not ascii:
            break
        queue.next_offset = row[4] + 1
        append((queue, row[4], row[0], row[1], <int32_t>tz_hash(0, found.at[2], found.size[2]), row[6], 0,
                PyUnicode_DecodeUTF8(<const char *>found.at[0], found.size[0], "replace"),
                PyUnicode_DecodeUTF8(<const char *>found.at[1], found.size[1], "replace")))
        at += 1
    return at

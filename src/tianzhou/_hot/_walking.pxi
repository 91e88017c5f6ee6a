# Included by _compiled.pyx: runs of ordinary records out of a segment.

def next_run(view, int64_t position, int64_t base, int64_t stop, Py_ssize_t most, bint check_crc):
    cdef Py_buffer data
    cdef Place p, rest
    cdef Place name = NULL  # of the topic before, whose object is taken again
    cdef int64_t size, body_size, topic_size, properties_size, name_size = -1, last, stored, newest = 0
    cdef list rows = []
    cdef Window body = Window()
    topic = ""
    PyObject_GetBuffer(view, &data, PyBUF_SIMPLE)
    try:
        last = data.len - BLANK_SIZE
        stop = min(last - OVERHEAD + 1, stop)
        while 0 <= position < stop and len(rows) < most:
            p = <Place>data.buf + position
            size, body_size = <int32_t>tz_get32(p), <int32_t>tz_get32(p + AT_BODY_SIZE)
            if (<int32_t>tz_get32(p + AT_MAGIC) != MAGIC_V1 or <int64_t>tz_get64(p + AT_PHYSICAL_OFFSET) != base + position
                    or tz_get32(p + AT_SYS_FLAG) & HOST_BITS
                    or not 0 <= body_size <= size - OVERHEAD or size > last - position):
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
                base + position, size, topic, <int32_t>tz_get32(p + AT_QUEUE_ID), <int64_t>tz_get64(p + AT_QUEUE_OFFSET),
                <int32_t>tz_get32(p + AT_SYS_FLAG), stored, PyBytes_FromStringAndSize(<const char *>rest, properties_size)))
            position += size
    finally:
        PyBuffer_Release(&data)
    return rows, position, newest

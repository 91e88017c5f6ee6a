# Included by _compiled.pyx: pulls recognised without making commands of them (docs/adr/0022-runs.md).

cdef extern from "pulls.h":
    ctypedef struct Pull "TzPull":
        Place texts[4]
        Py_ssize_t sizes[4]
        int64_t queue_id, most, sys_flag, sub_version, suspend, opaque, offset, commit
    bint tz_scan_pull(Place, Py_ssize_t, Pull *)

cdef enum:
    PULL_NUMBERS = 28  # bytes of the numbers of a pull's key


def scan_pull(buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t most_frame):
    cdef Py_buffer view
    cdef Place p
    cdef Pull pull
    cdef int64_t length = 0
    cdef Py_ssize_t size = PULL_NUMBERS
    cdef uint8_t *q
    cdef int text
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not (0 <= start and end - start >= 20 and end <= view.len):
            return None
        p = <Place>view.buf + start
        length = <int32_t>tz_get32(p)
        if (length < 20 or length + 4 > end - start or length + 4 > most_frame or tz_get32(p + 4) + 4 != length
                or not tz_scan_pull(p + 8, length - 4, &pull)):
            return None
        for text in range(4):
            size += (1 if pull.texts[text] == NULL else pull.sizes[text]) + 1
        key = PyBytes_FromStringAndSize(NULL, size)
        q = <uint8_t *>PyBytes_AS_STRING(key)
        for text in range(4):
            if pull.texts[text] == NULL:
                q[0] = 1
                q += 1
            else:
                memcpy(q, pull.texts[text], pull.sizes[text])
                q += pull.sizes[text]
            q[0] = 0
            q += 1
        q = tz_put32(tz_put32(tz_put32(q, <uint32_t>pull.queue_id), <uint32_t>pull.most), <uint32_t>pull.sys_flag)
        tz_put64(tz_put64(q, <uint64_t>pull.sub_version), <uint64_t>pull.suspend)
        return start + 4 + length, key, pull.opaque, pull.offset, pull.commit
    finally:
        PyBuffer_Release(&view)


cdef bytes _pulled = _frames.pull_reply("%lld", 0, "FOUND", *["%lld"] * 6, b"")[0][8:]


def pull_reply(opaque, code, remark, next_offset, min_offset, max_offset, suggested, group_flag, topic_flag, records):
    cdef char frame[1024]
    cdef int size
    if code != 0 or remark != "FOUND":
        return _frames.pull_reply(
            opaque, code, remark, next_offset, min_offset, max_offset, suggested, group_flag, topic_flag, records)
    size = snprintf(
        frame + 8, 1016, PyBytes_AS_STRING(_pulled), <long long>suggested, <long long>group_flag, <long long>next_offset,
        <long long>max_offset, <long long>min_offset, <long long>topic_flag, <long long>opaque)
    tz_put32(tz_put32(<uint8_t *>frame, <uint32_t>(4 + size + len(records))), <uint32_t>size)
    return PyBytes_FromStringAndSize(frame, size + 8), records

# Included by _compiled.pyx: entries of a DLedger log (broker.md 19.5).

cdef enum:  # as tianzhou.records.entry has them
    ENTRY_MAGIC = 1
    ENTRY_HEAD = 48
    ENTRY_UNIT = 32
    ENTRY_END = 8
    AT_ENTRY_SIZE = 4
    AT_INDEX = 8
    AT_TERM = 16
    AT_POS = 24
    AT_ENTRY_BODY = 44


cdef inline int64_t entry_size(Place p, int64_t room) noexcept:
    """Bytes of the entry that begins here, as far as its header says by itself; 0 when none does."""
    cdef int64_t size
    if room < ENTRY_HEAD or tz_get32(p) != ENTRY_MAGIC:
        return 0
    size = <int32_t>tz_get32(p + AT_ENTRY_SIZE)
    if (size <= ENTRY_HEAD or <int32_t>tz_get32(p + AT_ENTRY_BODY) != size - ENTRY_HEAD
            or <int64_t>(tz_get64(p + AT_INDEX) | tz_get64(p + AT_TERM) | tz_get64(p + AT_POS)) < 0):
        return 0
    return size


cdef inline void put_index_unit(uint8_t *p, int64_t place, int64_t size, int64_t index, int64_t term) noexcept:
    p = tz_put32(tz_put64(tz_put32(p, ENTRY_MAGIC), <uint64_t>place), <uint32_t>size)
    tz_put64(tz_put64(p, <uint64_t>index), <uint64_t>term)


cdef void frame(Framing *framing, uint8_t *record, int64_t size, int64_t place) noexcept:
    """Write the header before a record that is there, and the unit; the next ones are those of the next entry."""
    cdef uint8_t *p = record - ENTRY_HEAD
    tz_fence()  # who dies in between leaves no entry
    p = tz_put32(tz_put32(p, ENTRY_MAGIC), <uint32_t>(size + ENTRY_HEAD))
    p = tz_put64(tz_put64(tz_put64(p, <uint64_t>framing.index), <uint64_t>framing.term), <uint64_t>(place - ENTRY_HEAD))
    memset(p, 0, 12)
    tz_put32(p + 12, <uint32_t>size)
    put_index_unit(framing.unit, place - ENTRY_HEAD, size + ENTRY_HEAD, framing.index, framing.term)
    framing.index += 1
    framing.unit += ENTRY_UNIT


def put_entry(log, queue, record, int64_t stored, pending, result, units, int64_t unit_at, int64_t index, int64_t term):
    cdef Py_buffer view
    cdef Framing framing
    PyObject_GetBuffer(units, &view, PyBUF_WRITABLE)
    try:
        if not 0 <= unit_at <= view.len - ENTRY_UNIT:
            return None
        framing.size, framing.index, framing.term, framing.unit = ENTRY_HEAD, index, term, <uint8_t *>view.buf + unit_at
        return put_one(log, queue, record, stored, pending, result, &framing)
    finally:
        PyBuffer_Release(&view)


def put_entries(
        log, queue, record, batch, int64_t most, int64_t stored, pending, result, units, int64_t unit_at,
        int64_t most_units, int64_t index, int64_t term):
    cdef Py_buffer view
    cdef Framing framing
    PyObject_GetBuffer(units, &view, PyBUF_WRITABLE)
    answer = None
    try:
        if not 0 <= unit_at <= view.len:
            return None
        framing.size, framing.index, framing.term, framing.unit = ENTRY_HEAD, index, term, <uint8_t *>view.buf + unit_at
        answer = put_many(log, queue, record, batch, most, stored, pending, result, &framing,
                          min(most_units, (view.len - unit_at) // ENTRY_UNIT))
        return answer
    finally:
        if answer is None and framing.unit > <uint8_t *>view.buf + unit_at:
            memset(<uint8_t *>view.buf + unit_at, 0, framing.unit - <uint8_t *>view.buf - unit_at)
        PyBuffer_Release(&view)


cdef Py_ssize_t follow(Place p, int64_t room, Py_ssize_t most, int64_t *size, int64_t *last) noexcept:
    """As `entry_run`, for entries that lie in memory from `p` on."""
    cdef Py_ssize_t count = 0
    cdef int64_t one, index = 0, term = 0, pos = 0
    size[0] = last[0] = 0
    while count < most:
        one = entry_size(p, room - size[0])
        if one == 0 or one > room - size[0]:
            break
        if count and (<int64_t>tz_get64(p + AT_INDEX) != index or <int64_t>tz_get64(p + AT_TERM) != term
                      or <int64_t>tz_get64(p + AT_POS) != pos):
            break
        index, term = <int64_t>tz_get64(p + AT_INDEX) + 1, <int64_t>tz_get64(p + AT_TERM)
        pos = <int64_t>tz_get64(p + AT_POS) + one
        last[0] = size[0]
        size[0] += one
        p += one
        count += 1
    return count


def entry_run(data, int64_t at, Py_ssize_t most):
    cdef Py_buffer view
    cdef int64_t size = 0, last = 0
    cdef Py_ssize_t count = 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if 0 <= at <= view.len:
            count = follow(<Place>view.buf + at, view.len - at, most, &size, &last)
    finally:
        PyBuffer_Release(&view)
    return count, size, at + last


def copy_run(data, int64_t at, target, int64_t position, int64_t stop, units, int64_t unit_at, Py_ssize_t most):
    cdef Py_buffer source, segment, file
    cdef int64_t one, last, size = 0
    cdef Py_ssize_t count = 0, found
    cdef Place p
    cdef uint8_t *q
    PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
    PyObject_GetBuffer(target, &segment, PyBUF_WRITABLE)
    PyObject_GetBuffer(units, &file, PyBUF_WRITABLE)
    try:
        if 0 <= at <= source.len and position >= 0 and unit_at >= 0:
            stop = min(stop, segment.len)
            p, q = <Place>source.buf + at, <uint8_t *>segment.buf + position
            found = follow(p, source.len - at, most, &size, &last)
            size = 0
            while count < found:
                one = <int32_t>tz_get32(p + AT_ENTRY_SIZE)
                if position + size + one > stop or unit_at + ENTRY_UNIT > file.len:
                    break
                memcpy(q + ENTRY_HEAD, p + ENTRY_HEAD, one - ENTRY_HEAD)
                tz_fence()
                memcpy(q, p, ENTRY_HEAD)
                put_index_unit(<uint8_t *>file.buf + unit_at, <int64_t>tz_get64(p + AT_POS), one,
                               <int64_t>tz_get64(p + AT_INDEX), <int64_t>tz_get64(p + AT_TERM))
                p += one
                q += one
                size += one
                unit_at += ENTRY_UNIT
                count += 1
    finally:
        PyBuffer_Release(&source)
        PyBuffer_Release(&segment)
        PyBuffer_Release(&file)
    return count, size


def next_entries(
        view, int64_t position, int64_t base, int64_t stop, Py_ssize_t most, bint check_crc, int64_t index, int64_t term):
    cdef Trail trail
    trail.index, trail.term = index, term
    rows, behind, newest = walk_records(view, position, base, stop, most, check_crc, &trail)
    return rows, behind, newest, trail.index, trail.term

# Values of a text column one behind the other, and the memory they are put into.

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


_kept = []
"""Memory of the batches before: pages that the system has to find again cost more than what is written into them."""

cdef int64_t _kept_bytes = 0

cdef enum:
    MOST_KEPT = 64 << 20
    ROUNDED = 4 << 10


cdef class Buffers:
    """What becomes the buffers of Arrow arrays: bytes, whose memory is taken again when nobody has them any more."""

    cdef list made

    def __cinit__(self):
        self.made = []

    cdef void *take(self, int64_t size) except NULL:
        global _kept_bytes
        cdef int64_t length
        for made in _kept:
            length = PyBytes_GET_SIZE(made)
            if size <= length <= 2 * size + ROUNDED and Py_REFCNT(made) == 2:  # the list's and this one
                break
        else:
            length = (size // ROUNDED + 1) * ROUNDED
            made = PyBytes_FromStringAndSize(NULL, length)
            _kept.append(made)
            _kept_bytes += length
            while _kept_bytes > MOST_KEPT:
                _kept_bytes -= PyBytes_GET_SIZE(_kept.pop(0))
        self.made.append(made)
        return PyBytes_AS_STRING(made)

    cdef int text(self, Text *text, Py_ssize_t rows, int64_t most) except -1:
        text.edges = <int32_t *>self.take(4 * (rows + 1))
        text.content = <uint8_t *>self.take(most)
        text.valid = <uint8_t *>self.take((rows + 7) // 8)
        memset(text.valid, 0xFF, (rows + 7) // 8)
        text.edges[0], text.used, text.missing = 0, 0, 0
        return 0

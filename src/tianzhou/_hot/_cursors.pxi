# Included by _compiled.pyx: the ends that grow, and what is appended to them; `cursors` describes the attributes.

cdef class LogCursor:
    cdef public object _map
    cdef public int64_t _check, _overhead, _sys_bits, base, end_term, next_index, position, term
    cdef public bint appends_crc
    cdef public bytes store_host_field


cdef class QueueCursor:
    cdef public object _map, arrived
    cdef public int64_t _position, _reserved, magic, max_offset, max_physical, next_offset
    cdef public bint delayed, dirty, plain
    cdef public str topic
    cdef public bytes topic_field


cdef class IndexCursor:
    cdef public object _map
    cdef public int64_t _entries, _reserved, begin_offset, begin_timestamp, capacity, count, end_offset, end_timestamp
    cdef public int64_t slot_count, slots
    cdef public bytearray _touched


cdef class SendTarget:
    cdef public int64_t flags, limit
    cdef public list counts, sizes

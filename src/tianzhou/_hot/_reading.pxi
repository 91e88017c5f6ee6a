# Included by _compiled.pyx: from a read of a connection to the fast path that serves it, and from its replies to the transport.

cdef enum:
    READ_SIZE = 65536  # as the pure twin has it

cdef double _NEVER = float("inf")


cdef class SharedReads:
    cdef public object budget, busy_poll, monotonic, window
    cdef public dict fast_paths
    cdef public OpaqueCounter opaques
    cdef public bytearray scratch
    cdef public double next_mark
    cdef public bint turn_full, unread_full


cdef class ReadPath:
    cdef public dict _awaited
    cdef public list _backlog
    cdef public SharedReads _group
    cdef public object _transport
    cdef public int64_t _reserved
    cdef public bint closed
    cdef public double last_read, last_write, silent_since

    def get_buffer(self, sizehint):
        cdef SharedReads group = self._group
        if self._reserved or group.turn_full or <int64_t>group.budget.read_size != READ_SIZE:
            return self._room()
        return group.window

    def buffer_updated(self, Py_ssize_t nbytes):
        cdef SharedReads group = self._group
        cdef double written = self.last_write, now = group.monotonic()
        cdef list replies = []
        self.last_read = now
        if ((not group.fast_paths and not self._awaited) or now >= group.next_mark or group.turn_full or group.unread_full
                or self._reserved or self._backlog or self.closed or nbytes >= READ_SIZE):
            self._take_read(nbytes, written, None, None)
            return
        if self._awaited:
            after, count = take_results(self._awaited, group.scratch, 0, nbytes)
            group.opaques.in_flight -= <int64_t>count
        else:
            serve = group.fast_paths.get(code_at(<Place>PyByteArray_AS_STRING(group.scratch), nbytes))
            after = 0
            if serve is not None:
                after, replies = serve(self, group.scratch, 0, nbytes)
        if <Py_ssize_t>after != nbytes:
            self._take_read(nbytes, written, after, replies)
            return
        if self.closed:
            return
        self.silent_since = _NEVER
        if len(replies) == 1 and len(replies[0]) < READ_SIZE:
            self.last_write = group.monotonic()
            self._transport.write(replies[0])
        elif replies:
            self._write(replies, sum([len(reply) for reply in replies]))
        if group.busy_poll is not None:
            group.busy_poll.requested(self, now - written if self.last_write > written else _NEVER)

# Included by _compiled.pyx: the sends of a read of a connection, stored by one call (docs/adr/0022-runs.md).

cdef extern from "sends.h":
    ctypedef struct Send "TzSend":
        Place topic, properties, access_key, signature
        Py_ssize_t topic_size, properties_size, access_key_size, signature_size
        int64_t queue_id, sys_flag, born, flag, reconsumed, code, opaque, command_flag
        int batch
    bint tz_scan_send(Place, Py_ssize_t, Send *)
    Py_ssize_t tz_unescape(Place, Py_ssize_t, uint8_t *, Py_ssize_t)
    bint tz_alnum(Place, Py_ssize_t)
    uint8_t *tz_put_number(uint8_t *, int64_t)
    uint8_t *tz_put_hex(uint8_t *, uint64_t)

cdef enum:
    MOST_PROPERTIES = 32767
    MOST_UNIQUE = 900
    MOST_SIGNED = 65536  # bytes of what is signed of a header
    REPLY_NUMBERS = 100  # bytes that the numbers of a reply take at most
    ONEWAY = 2


cdef int64_t unit_place(QueueCursor queue, int64_t offset, int64_t physical) except -2:
    """Where the unit of a queue's next record goes; -1 when someone else has to see to it."""
    cdef int64_t at = queue._position
    if (at < 0 or offset != queue.max_offset or at + 20 > queue._reserved
            or queue._map is None or at + 20 > len(queue._map)
            or physical < queue.max_physical):
        return -1
    return at


cdef int64_t begin_entries(Framing *framing, Py_buffer *units, LogCursor log, room) except -1:
    """Take down where entries and their units go, until `units` is released; how many there is room for."""
    file, unit_at, most = room
    cdef int64_t at = unit_at
    PyObject_GetBuffer(file, units, PyBUF_WRITABLE)
    if not 0 <= at <= units.len:
        raise ValueError(f"units at {at} of a file of {units.len} bytes")
    framing.size, framing.index, framing.term = ENTRY_HEAD, log.next_index, log.term
    framing.unit = <uint8_t *>units.buf + at
    return min(<int64_t>most, (units.len - at) // ENTRY_UNIT)


cdef void note_entries(LogCursor log, const Framing *framing) noexcept:
    """Let a log know that it has the entries that were framed."""
    log.next_index, log.end_term = framing.index, framing.term


cdef tuple pieces_around(bytes reply, tuple marks):
    """What stands around the numbers and texts of a reply; empty when that cannot be said."""
    if not all([reply.count(mark) == 1 for mark in marks]):
        return ()
    pieces = []
    for mark in marks:
        before, reply = reply.split(mark)
        pieces.append(before + mark[: mark.find(b"{")] if b"{" in mark else before + b'"')
        reply = mark[mark.find(b"}") + 1 :] + reply if b"{" in mark else b'"' + reply
    return (*pieces, reply)


cdef class SendRun:
    cdef list names
    cdef bytes tail, id_head
    cdef bytes shared, shared_tail  # properties of the batches that are ordinary, and what is stored of them
    cdef tuple pieces, batch_pieces
    cdef Py_ssize_t fixed, batch_fixed
    cdef uint8_t *text
    cdef uint8_t *content
    cdef uint8_t *replies
    cdef Py_ssize_t room

    def __cinit__(self, special, tail, tags_code, id_head, region, trace_on):
        reply = _frames.send_reply("{o}", id_head + "{p}", "{q}", "{n}", "T", region, trace_on)[8:]
        self.names, self.tail, self.pieces = _NAMES + [name.encode() for name in special], tail, ()
        if len(tail) <= MOST_PROPERTIES:
            self.pieces = pieces_around(reply, (b'"{q}"', b'"T"', b'{p}"', b'"{n}"', b":{o},"))
        reply = _frames.send_reply("{o}", "{m}", "{q}", "{n}", None, region, trace_on)[8:]
        self.batch_pieces = pieces_around(reply, (b'"{q}"', b'"{m}"', b'"{n}"', b":{o},"))
        self.id_head, self.shared, self.shared_tail = id_head.encode(), None, b""
        self.fixed = 8 + sum([len(piece) for piece in self.pieces]) + REPLY_NUMBERS
        self.batch_fixed = 8 + sum([len(piece) for piece in self.batch_pieces]) + REPLY_NUMBERS
        self.text = <uint8_t *>PyMem_Malloc(MOST_PROPERTIES)
        self.content = <uint8_t *>PyMem_Malloc(MOST_SIGNED)
        self.replies, self.room = NULL, 0
        if self.text == NULL or self.content == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.text)
        PyMem_Free(self.content)
        PyMem_Free(self.replies)

    cdef bint has_room(self, Py_ssize_t size) except -1:
        if size > self.room:
            grown = <uint8_t *>PyMem_Realloc(self.replies, 2 * size)
            if grown == NULL:
                raise MemoryError
            self.replies, self.room = grown, 2 * size
        return True

    def take_batches(self, str properties, bytes tail):
        self.shared, self.shared_tail = properties.encode("utf-8", "surrogatepass"), tail

    cdef uint8_t *piece(self, uint8_t *p, int number):
        return tz_put(p, <PyObject *><bytes>self.pieces[number])

    cdef uint8_t *reply(self, uint8_t *start, Send *send, Values *found, int64_t place, int64_t offset):
        """Write the reply to a message; where the next one goes."""
        cdef uint8_t *p = tz_put_number(self.piece(start + 8, 0), send.queue_id)
        p = self.piece(p, 1)
        memcpy(p, found.at[0], found.size[0])
        p = tz_put_hex(self.piece(p + found.size[0], 2), <uint64_t>place)
        p = tz_put_number(self.piece(tz_put_number(self.piece(p, 3), offset), 4), send.opaque)
        p = self.piece(p, 5)
        tz_put32(tz_put32(start, <uint32_t>(p - start - 4)), <uint32_t>(p - start - 8))
        return p

    cdef uint8_t *batch_reply(self, uint8_t *start, Send *send, list places, int64_t offset):
        """Write the reply to a batch; where the next one goes."""
        cdef tuple pieces = self.batch_pieces
        cdef uint8_t *p = tz_put_number(tz_put(start + 8, <PyObject *><bytes>pieces[0]), send.queue_id)
        cdef bint further = False
        p = tz_put(p, <PyObject *><bytes>pieces[1])
        for place in places:
            if further:
                p[0] = c","
            p = tz_put_hex(tz_put(p + further, <PyObject *>self.id_head), <uint64_t><int64_t>place)
            further = True
        p = tz_put_number(tz_put(p, <PyObject *><bytes>pieces[2]), offset)
        p = tz_put(tz_put_number(tz_put(p, <PyObject *><bytes>pieces[3]), send.opaque), <PyObject *><bytes>pieces[4])
        tz_put32(tz_put32(start, <uint32_t>(p - start - 4)), <uint32_t>(p - start - 8))
        return p

    def store(
            self, buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t most_frame, Py_ssize_t most_body, log, dict table,
            dict targets, host, int port, int64_t stored, pending, list dirty, index, bint settles,
            accounts=None, entries_at=None):
        cdef Put put
        cdef Send send
        cdef Values found
        cdef Entries entries
        cdef uint8_t one[20]
        cdef Py_buffer source, segment, units
        cdef Place p, topic = NULL, account = NULL
        cdef uint8_t *q
        cdef uint8_t *out
        cdef Py_ssize_t length, word, topic_size = 0, account_size = 0, own, more, replied = 0
        cdef int64_t size, limit = 0, flags = 0, place, unit_at, code_of_account = 0
        cdef int32_t code
        cdef uint32_t head
        cdef int count = 0, shown = 0
        cdef bint gap, indexed, direct = index is not None
        cdef list waited = [], awaited = [], counts = None, sizes = None
        cdef dict queues = None
        cdef bytes begun_hmac = None
        cdef Window body = Window()
        cdef Framing framing, before
        cdef int64_t units_left = 0
        cdef QueueCursor queue
        cdef SendTarget target = None
        cdef list parts, places
        framing.size, framing.unit, entries.count = 0, NULL, 0
        memset(&units, 0, sizeof(units))
        if not self.pieces or not begin_log(&put, log, host, stored) or (accounts is not None and not HAS_SHA1):
            return start, b"", 0, 0, waited, awaited
        indexed, newest = index if direct else (False, None)
        put.port, put.prepared = port, 0
        map_of_log = (<LogCursor>log)._map
        PyObject_GetBuffer(buffer, &source, PyBUF_SIMPLE)
        PyObject_GetBuffer(map_of_log, &segment, PyBUF_WRITABLE)
        try:
            if entries_at is not None:
                units_left = begin_entries(&framing, &units, <LogCursor>log, entries_at)
            end, put.room = min(end, source.len), min(put.room, segment.len)
            while 0 <= start and end - start >= 20 and put.position >= 0:
                p = <Place>source.buf + start
                length, word = <int32_t>tz_get32(p), tz_get32(p + 4)
                if (length < 4 or length + 4 > min(most_frame, end - start) or word > 0xFFFFFF or word + 4 >= length
                        or not tz_scan_send(p + 8, word, &send) or (length - 4 - word > most_body and not send.batch)
                        or send.command_flag & ~ONEWAY or send.sys_flag & (INNER_BATCH_BITS | TRANSACTION_BITS)):
                    break
                if topic == NULL or topic_size != send.topic_size or memcmp(topic, send.topic, topic_size) != 0:
                    name = PyUnicode_DecodeUTF8(<const char *>send.topic, send.topic_size, NULL)
                    admitted, queues = targets.get(name), table.get(name)
                    if queues is None or not isinstance(admitted, SendTarget):
                        break
                    target = <SendTarget>admitted
                    limit, flags = target.limit, target.flags
                    counts, sizes = target.counts, target.sizes
                    topic, topic_size, limit = send.topic, send.topic_size, min(limit, len(counts), len(sizes))
                    code_of_account = 0
                if not 0 <= send.queue_id < limit:
                    break
                cursor = queues.get(send.queue_id)
                if not begin_queue(&put, cursor) or not (<QueueCursor>cursor).plain:
                    break
                queue = <QueueCursor>cursor
                own = tz_unescape(send.properties, send.properties_size, self.text, MOST_PROPERTIES)
                put.queue_id, put.born, put.reconsumed = send.queue_id, send.born, send.reconsumed
                if own < 0:
                    break
                if accounts is not None:
                    if (code_of_account != send.code or account_size != send.access_key_size
                            or memcmp(account, send.access_key, account_size) != 0):
                        if send.access_key_size == 0:
                            break
                        begun_hmac = accounts(
                            send.code, PyUnicode_DecodeUTF8(<const char *>send.access_key, send.access_key_size, NULL),
                            PyUnicode_DecodeUTF8(<const char *>topic, topic_size, NULL))
                        if begun_hmac is None:
                            break
                        code_of_account, account, account_size = send.code, send.access_key, send.access_key_size
                    if (tz_find(self.text, own, b"INNER_MULTI_DISPATCH", 20) != NULL
                            or (send.batch and tz_find(p + 8 + word, length - 4 - word, b"INNER_MULTI_DISPATCH", 20) != NULL)
                            or not is_signed(begun(begun_hmac), p + 8, word, send.signature, send.signature_size,
                                             p + 8 + word, length - 4 - word, self.content, MOST_SIGNED)):
                        break
                if send.batch:
                    if (self.shared is None or own != PyBytes_GET_SIZE(self.shared)
                            or memcmp(self.text, PyBytes_AS_STRING(self.shared), own) != 0 or not self.batch_pieces
                            or not find_values(self.text, own, self.names, &found) or found.size[0]
                            or (settles and found.size[3] == 5 and memcmp(found.at[3], b"false", 5) == 0)):
                        break
                    parts, places, size = [], [], put.position
                    put.sys_flag, before = send.sys_flag & ~HOST_BITS | put.host_bits, framing
                    if not write_batch(&put, queue, &segment, p + 8 + word, length - 4 - word, self.shared_tail, most_body,
                                       &framing, units_left, parts, places):
                        put.position = size
                        if framing.size:
                            memset(before.unit, 0, framing.unit - before.unit)
                        framing = before
                        break
                    try:
                        self.has_room(replied + self.batch_fixed + len(places) * (PyBytes_GET_SIZE(self.id_head) + 17))
                    except MemoryError:
                        memset(<uint8_t *>segment.buf + size, 0, put.position - size)
                        if framing.size:
                            memset(before.unit, 0, framing.unit - before.unit)
                        raise
                    (<LogCursor>log).position = put.position
                    if framing.size:
                        units_left -= len(places)
                        note_entries(<LogCursor>log, &framing)
                    queue.next_offset = put.offset
                    pending.extend(parts)
                    direct = False
                    counts[send.queue_id] += len(places)
                    sizes[send.queue_id] += put.position - size
                    if not send.command_flag & ONEWAY:
                        out = self.replies + replied
                        replied += self.batch_reply(out, &send, places, put.offset - len(places)) - out
                        if settles:
                            awaited.append((target, send.queue_id))
                    start += 4 + length
                    count += 1
                    continue
                if (own == 0 or not find_values(self.text, own, self.names, &found) or found.size[0] == 0
                        or (settles and found.size[3] == 5 and memcmp(found.at[3], b"false", 5) == 0)):
                    break
                gap = self.text[own - 1] != 2
                more, place = own + gap + PyBytes_GET_SIZE(self.tail), put.base + put.position + framing.size
                size = put.overhead + length - 4 - word + more
                if (more > MOST_PROPERTIES or put.position + framing.size + size > put.room or found.size[0] > MOST_UNIQUE
                        or (framing.size and units_left == 0) or not tz_alnum(found.at[0], found.size[0])):
                    break
                # Whatever cannot be dispatched at once waits its turn, and so does everything behind it.
                unit_at = unit_place(queue, put.offset, place) if direct else -1
                direct = unit_at >= 0
                if direct and indexed:
                    entries.count = 0
                    head = 31 * tz_hash(0, send.topic, topic_size) + c"#"
                    direct = (tz_add_keys(&entries, head, found.at[0], found.size[0], False, place)
                              and tz_add_keys(&entries, head, found.at[1], found.size[1], True, place)
                              and index_entries(newest, &entries, stored, False))
                self.has_room(replied + self.fixed + found.size[0])
                put.sys_flag = (send.sys_flag | flags) & ~HOST_BITS | put.host_bits
                body.at, body.size = <void *>(p + 8 + word), length - 4 - word
                put.position += framing.size
                q = write(&put, <uint8_t *>segment.buf + put.position, size, <uint32_t>send.flag, _crc32(body),
                          <Place>body.at, body.size, more)
                memcpy(q, self.text, own)
                if gap:
                    q[own] = 2
                memcpy(q + own + gap, PyBytes_AS_STRING(self.tail), PyBytes_GET_SIZE(self.tail))
                assert q + more == <uint8_t *>segment.buf + put.position + size
                if framing.size:
                    frame(&framing, <uint8_t *>segment.buf + put.position, size, place)
                    units_left -= 1
                    note_entries(<LogCursor>log, &framing)
                put.position += size
                (<LogCursor>log).position = put.position
                queue.next_offset = put.offset + 1
                code = <int32_t>tz_hash(0, found.at[2], found.size[2])
                if direct:
                    tz_put_unit(one, place, size, code)
                    put_units(queue, unit_at, one, 1, put.offset + 1, put.base + put.position, dirty)
                    if indexed:
                        index_entries(newest, &entries, stored, True)
                    if queue.arrived is not None:
                        waited.append(queue)
                    shown += 1
                else:
                    pending.append((queue, put.offset, place, size, code, stored, 0,
                                    PyUnicode_DecodeUTF8(<const char *>found.at[0], found.size[0], NULL),
                                    PyUnicode_DecodeUTF8(<const char *>found.at[1], found.size[1], NULL)))
                counts[send.queue_id] += 1
                sizes[send.queue_id] += size
                if not send.command_flag & ONEWAY:
                    out = self.replies + replied
                    replied += self.reply(out, &send, &found, place, put.offset) - out
                    if settles:
                        awaited.append((target, send.queue_id))
                start += 4 + length
                count += 1
            assert replied <= self.room and shown <= count
            if shown and indexed:
                put_index_header(newest)
        finally:
            PyBuffer_Release(&units)
            PyBuffer_Release(&segment)
            PyBuffer_Release(&source)
        return start, PyBytes_FromStringAndSize(<const char *>self.replies, replied) if replied else b"", count, shown, waited, awaited

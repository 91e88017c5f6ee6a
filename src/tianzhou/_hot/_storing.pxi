# Included by _compiled.pyx: the hot functions of the store.

# Properties of messages to be stored

cdef struct Values:
    Place at[4]  # value of UNIQ_KEY, KEYS, TAGS, WAIT; NULL when there is none
    Py_ssize_t size[4]

cdef list _NAMES = [b"UNIQ_KEY", b"KEYS", b"TAGS", b"WAIT"]
cdef object _crc32 = _records.full_crc32


cdef bint find_values(Place p, Py_ssize_t size, list names, Values *found) except -1:
    """Find the values of the first four names in a property string; False when it is malformed, or has one of them
    twice or any of the further names."""
    cdef Place end = p + size, name, value
    cdef Py_ssize_t number
    memset(found, 0, sizeof(Values))
    while p < end:
        name = p
        p = <Place>memchr(name, 2, end - name)
        if p == NULL:
            p = end
        if p > name:
            value = <Place>memchr(name, 1, p - name)
            if value == NULL:
                return False
            for number in range(len(names)):
                known = names[number]
                if PyBytes_GET_SIZE(known) == value - name and memcmp(PyBytes_AS_STRING(known), name, value - name) == 0:
                    if number > 3 or found.at[number] != NULL:
                        return False
                    found.at[number], found.size[number] = value + 1, p - value - 1
                    break
        p += 1
    return True


cdef class PropertyReader:
    cdef object pure
    cdef list names, tails

    def __init__(self, special, tail, tags_code):
        self.pure = _properties.PropertyReader(special, tail, tags_code)
        self.names, self.tails = _NAMES + [name.encode() for name in special], [b"\x02" + tail, tail]

    def record(self, header, body, host, port, int64_t flags):
        cdef int odd = 0
        cdef Values found
        cdef Py_ssize_t size = 0
        if (type(header) is not SendHeaderV2 and type(header) is not SendHeader) or not PyBytes_CheckExact(body):
            return self.pure.record(header, body, host, port, flags)
        text = header.properties
        cdef int64_t sys_flag = whole32(header.sys_flag, &odd)
        cdef Place p = <Place>PyUnicode_AsUTF8AndSize(text, &size) if tz_ascii(text) else NULL
        if (odd or sys_flag & INNER_BATCH_BITS or PyBytes_GET_SIZE(body) == 0 or p == NULL
                or header.batch_text == "true"
                or not find_values(p, size, self.names, &found) or found.size[0] == 0):
            return self.pure.record(header, body, host, port, flags)
        properties = PyBytes_FromStringAndSize(<const char *>p, size) + self.tails[p[size - 1] == 2]
        record = NewRecord(
            header.topic, header.queue_id, body, properties, header.flag, sys_flag | flags, header.born_timestamp, host, port,
            header.reconsume_times, 0, <int32_t>tz_hash(0, found.at[2], found.size[2]),
            PyUnicode_DecodeUTF8(<const char *>found.at[1], found.size[1], NULL),
            PyUnicode_DecodeUTF8(<const char *>found.at[0], found.size[0], NULL))
        return record, found.size[3] != 5 or memcmp(found.at[3], b"false", 5) != 0


# Records into a mapped segment

cdef struct Put:  # what the records of a put have in common, and where the next one goes
    PyObject *host
    PyObject *store_host
    PyObject *topic_field
    int64_t magic, queue_id, sys_flag, born, port, stored, reconsumed, prepared, overhead, base, position, room, offset
    int64_t host_bits, fixed  # of system flags; of a record's size beside its topic, body and properties


cdef struct Framing:  # entry headers and units of a DLedger log; `size` 0 without
    int64_t size, index, term
    uint8_t *unit


cdef bint begin_log(Put *put, cursor, host, int64_t stored) except -1:
    """Take down where the log ends and from whom records come; False when those are not plain."""
    if not isinstance(cursor, LogCursor) or not PyBytes_CheckExact(host) or PyBytes_GET_SIZE(host) != 4:
        return False
    cdef LogCursor log = <LogCursor>cursor
    if log.appends_crc or log._map is None or log.store_host_field is None:
        return False
    put.host, put.store_host, put.stored = <PyObject *>host, <PyObject *>log.store_host_field, stored
    put.base, put.position, put.room = log.base, log.position, log._check
    put.fixed, put.host_bits = log._overhead, log._sys_bits
    # A store host is of 4 or 16 bytes.
    return put.fixed == OVERHEAD - 9 + PyBytes_GET_SIZE(log.store_host_field)


cdef bint begin_queue(Put *put, cursor) except -1:
    """Take down where a queue ends; False when its records are not plain."""
    if not isinstance(cursor, QueueCursor):
        return False
    cdef QueueCursor queue = <QueueCursor>cursor
    if queue.topic_field is None or queue.delayed:
        return False
    put.topic_field = <PyObject *>queue.topic_field
    put.overhead = put.fixed + PyBytes_GET_SIZE(queue.topic_field)
    put.offset, put.magic = queue.next_offset, queue.magic
    return True


cdef bint begin(Put *put, log, queue, record, int64_t stored) except -1:
    """Take down what a put is about; False when its messages are not plain."""
    cdef int odd = 0
    if (type(record) is not NewRecord or not begin_log(put, log, record.born_host, stored)
            or not begin_queue(put, queue)):
        return False
    put.born = whole(record.born_timestamp, &odd)
    put.prepared = whole(record.prepared_transaction_offset, &odd)
    put.queue_id, put.port = whole32(record.queue_id, &odd), whole32(record.born_port, &odd)
    put.reconsumed, put.sys_flag = whole32(record.reconsume_times, &odd), whole32(record.sys_flag, &odd)
    # Inner batches, halves and what was rolled back are not counted as others are.
    odd |= put.sys_flag & (PREPARED | INNER_BATCH)
    put.sys_flag = put.sys_flag & ~HOST_BITS | put.host_bits
    return not odd


cdef uint8_t *write(Put *put, uint8_t *p, int64_t size, uint32_t flag, crc, Place body, int64_t length, int64_t more):
    """Write the next record but for its properties, which are `more` bytes; where they go."""
    p = tz_put32(tz_put32(tz_put32(p, <uint32_t>size), <uint32_t>put.magic), <uint32_t>crc & 0x7FFFFFFF)
    p = tz_put32(tz_put32(p, <uint32_t>put.queue_id), flag)
    p = tz_put32(tz_put64(tz_put64(p, put.offset), put.base + put.position), <uint32_t>put.sys_flag)
    p = tz_put32(tz_put(tz_put64(p, put.born), put.host), <uint32_t>put.port)
    p = tz_put32(tz_put(tz_put64(p, put.stored), put.store_host), <uint32_t>put.reconsumed)
    p = tz_put32(tz_put64(p, put.prepared), <uint32_t>length)
    memcpy(p, body, length)
    p = tz_put(p + length, put.topic_field)
    p[0], p[1] = <uint8_t>(more >> 8), <uint8_t>more
    return p + 2


cdef object done(Put *put, LogCursor log, QueueCursor queue, result, place, offset, places):
    """Move the ends behind what was written; the answer."""
    log.position = put.position
    queue.next_offset = put.offset
    return type(result)(result.status, place, offset, put.stored, put.base + put.position, places)


def put_plain(log, queue, record, int64_t stored, pending, result):
    cdef Framing framing
    framing.size = 0
    return put_one(log, queue, record, stored, pending, result, &framing)


cdef inline object put_one(log, queue, record, int64_t stored, pending, result, Framing *framing):
    cdef Put put
    cdef Py_buffer view
    cdef uint8_t *p
    cdef int odd = 0
    if not begin(&put, log, queue, record, stored):
        return None
    body, properties = record.body, record.properties
    cdef int64_t flag = whole32(record.flag, &odd)
    if odd or not PyBytes_CheckExact(body) or not PyBytes_CheckExact(properties):
        return None
    cdef int64_t more = PyBytes_GET_SIZE(properties), size = put.overhead + PyBytes_GET_SIZE(body) + more
    cdef int64_t needed = framing.size + size
    if put.position + needed > put.room or more > 32767 or memchr(PyBytes_AS_STRING(properties), 0, more) != NULL:
        return None
    PyObject_GetBuffer((<LogCursor>log)._map, &view, PyBUF_WRITABLE)
    try:
        if put.position < 0 or put.position + needed > view.len:
            return None
        put.position += framing.size
        p = write(&put, <uint8_t *>view.buf + put.position, size, <uint32_t>flag, _crc32(body),
                  <Place>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), more)
        tz_put(p, <PyObject *>properties)
        assert p + more == <uint8_t *>view.buf + put.position + size
        if framing.size:
            frame(framing, <uint8_t *>view.buf + put.position, size, put.base + put.position)
    finally:
        PyBuffer_Release(&view)
    place, offset = put.base + put.position, put.offset
    pending.append((queue, offset, place, size, record.tags_code, stored, put.sys_flag & TRANSACTION_BITS,
                    record.uniq_key, record.keys))
    put.position += size
    put.offset += 1
    return done(&put, log, queue, result, place, offset, ())


cdef class Window:
    """Memory that a function of Python reads while it is called."""

    cdef void *at
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.at, self.size, 1, flags)


cdef enum:
    PIECE = 32  # so many messages of a batch are dispatched together
    LONGEST = 8192  # properties with which a message of a batch is still plain


def put_batch(log, queue, record, batch, int64_t most, int64_t stored, pending, result):
    cdef Framing framing
    framing.size = 0
    return put_many(log, queue, record, batch, most, stored, pending, result, &framing, 0)


cdef inline object put_many(
        log, queue, record, batch, int64_t most, int64_t stored, pending, result, Framing *framing, int64_t most_units):
    cdef Put put
    cdef Py_buffer view
    cdef list pieces = [], places = []
    tail = record.properties
    if not PyBytes_CheckExact(batch) or not PyBytes_CheckExact(tail) or not begin(&put, log, queue, record, stored):
        return None
    cdef int64_t first = put.offset
    PyObject_GetBuffer((<LogCursor>log)._map, &view, PyBUF_WRITABLE)
    try:
        if not write_batch(&put, queue, &view, <Place>PyBytes_AS_STRING(batch), PyBytes_GET_SIZE(batch), tail, most, framing,
                           most_units, pieces, places):
            return None
    finally:
        PyBuffer_Release(&view)
    pending.extend(pieces)
    return done(&put, log, queue, result, places[0], first, tuple(places))


cdef bint write_batch(
        Put *put, queue, Py_buffer *view, Place p, Py_ssize_t batch_size, bytes tail, int64_t most, Framing *framing,
        int64_t most_units, list pieces, list places) except -1:
    """Write the records of a batch, and what is to be dispatched of them; False when it holds anything but plain ones.

    Nothing of it is left in the segment then, as nobody may take what was begun for stored.
    """
    cdef Values shared, found
    cdef Values *chosen
    cdef Place end = p + batch_size
    cdef uint8_t *q
    cdef uint8_t units[20 * PIECE]
    cdef uint8_t texts[2 * LONGEST]
    cdef int64_t length, own, gap, size, needed, head, bodies = 0, more = PyBytes_GET_SIZE(tail), start = put.position
    cdef int which, count = 0, used = 0
    cdef bint whole_batch = False
    cdef Window body = Window()
    q = <uint8_t *>PyBytes_AS_STRING(tail)
    if start < 0 or put.sys_flag & 0x8 or not tz_plain(q, more) or not find_values(q, more, _NAMES, &shared):
        return False
    try:
        while p < end:
            length = <int32_t>tz_get32(p + 16) if end - p >= 22 else -1
            if not 0 <= length <= end - p - 22:
                return False
            own = p[20 + length] << 8 | p[21 + length]
            size = 22 + length + own
            if size > end - p or (tz_get32(p) != 0 and tz_get32(p) != size):
                return False
            gap = own > 0 and more > 0 and p[size - 1] != 2
            needed = put.overhead + length + own + gap + more
            head = framing.size
            bodies += length
            if (own + gap + more > LONGEST - 2 or not tz_plain(p + size - own, own)
                    or not find_values(p + size - own, own, _NAMES, &found) or bodies > most
                    or put.position + head + needed > min(put.room, view.len)
                    or (head and len(places) >= most_units)):
                return False
            put.position += head
            body.at, body.size = <void *>(p + 20), length
            q = write(put, <uint8_t *>view.buf + put.position, needed, tz_get32(p + 12), _crc32(body), p + 20, length,
                      own + gap + more)
            memcpy(q, p + size - own, own)
            if gap:
                q[own] = 2
            memcpy(q + own + gap, PyBytes_AS_STRING(tail), more)
            assert q + own + gap + more == <uint8_t *>view.buf + put.position + needed
            if head:
                frame(framing, <uint8_t *>view.buf + put.position, needed, put.base + put.position)
            for which in range(3):  # what all have in common comes last, and counts
                chosen = &shared if shared.size[which] else &found
                if which < 2:
                    if chosen.size[which]:  # else there is no place of it either
                        memcpy(texts + used, chosen.at[which], chosen.size[which])
                    used += chosen.size[which] + 1
                    texts[used - 1] = 2
            places.append(put.base + put.position)
            tz_put_unit(units + 20 * count, put.base + put.position, needed,
                        <int32_t>tz_hash(0, chosen.at[2], chosen.size[2]))
            p += size
            put.position += needed
            put.offset += 1
            count += 1
            if count == PIECE or used > LONGEST or p == end:
                pieces.append((queue, put.offset - count, <int64_t>tz_get64(units), <int32_t>tz_get32(units + 8),
                               units[: 20 * count], put.stored, 0, texts[:used], ""))
                count = used = 0
        whole_batch = len(places) > 0
        return whole_batch
    finally:
        if not whole_batch and put.position > start:
            memset(<uint8_t *>view.buf + start, 0, put.position - start)


# Records out of mapped segments

cdef struct Proving:  # what a record has to prove
    PyObject *topic_field
    PyObject *checked
    PyObject *window
    int64_t queue_id, queue_offset, trusted_from, block
    uint8_t *bits


cdef inline bint ends_in_number(Place end) noexcept nogil:  # as the value of a CRC property does, whatever its name
    cdef int n
    if (end - 1)[0] != 2:
        return False
    for n in range(-11, -1):
        if not 48 <= end[n] <= 57:
            return False
    return True


cdef bint is_sound(Place p, int64_t size, int64_t physical, int64_t queue_offset, Proving *proving, list held) except -1:
    """As the pure twin's, for a record that lies in memory from `p` on."""
    cdef int64_t length = PyBytes_GET_SIZE(<object>proving.topic_field), body_size, more
    cdef uint32_t flags
    cdef Place body, rest, end = p + size
    cdef Window window = <Window>proving.window
    if size < OVERHEAD:
        return False
    if length and (<int32_t>tz_get32(p + AT_QUEUE_ID) != proving.queue_id
                   or <int64_t>tz_get64(p + AT_QUEUE_OFFSET) != queue_offset):
        return False
    flags = tz_get32(p + AT_SYS_FLAG)
    body = p + HEAD_SIZE + (12 if flags & 0x10 else 0) + (12 if flags & 0x20 else 0)
    if body + 3 > end:
        return False
    body_size = <int32_t>tz_get32(body - 4)
    if body_size < 0 or body_size > end - body - length - 2:
        return False
    rest = body + body_size
    if length:
        more = (rest + length)[0] << 8 | (rest + length + 1)[0]
        if (memcmp(rest, PyBytes_AS_STRING(<object>proving.topic_field), length) != 0
                or rest + length + 2 + more != end):
            return False
    if physical >= proving.trusted_from:
        return True
    if physical >> BLOCK_BITS != proving.block:
        bits = (<object>proving.checked)(physical >> BLOCK_BITS)
        if not PyByteArray_CheckExact(bits) or PyByteArray_GET_SIZE(bits) < 1 << (BLOCK_BITS - GRAIN_BITS - 3):
            raise TypeError("no bits of a block")
        held.append(bits)
        proving.block, proving.bits = physical >> BLOCK_BITS, <uint8_t *>PyByteArray_AS_STRING(bits)
    more = (physical & ((1 << BLOCK_BITS) - 1)) >> GRAIN_BITS
    if proving.bits[more >> 3] >> (more & 7) & 1:
        return True
    if body_size:
        window.at, window.size = <void *>body, body_size
        if <int64_t>(<uint32_t>_crc32(window) & 0x7FFFFFFF) != <int32_t>tz_get32(p + AT_BODY_CRC):
            return False
    if memcmp(end - 20, b"__CRC32#\x01", 9) == 0 or ends_in_number(end):
        window.at, window.size = <void *>p, size
        if not _records.crc_property_fits(memoryview(window)):
            return False
    proving.bits[more >> 3] |= 1 << (more & 7)
    return True


cdef struct Limits:  # of a read, as `GatherLimits` has them
    int64_t memory_bound, count_in_memory, bytes_in_memory, count_on_disk, bytes_on_disk


cdef struct Gathered:
    int64_t count, scanned, total, last
    bint gone


cdef bint take_limits(Limits *to, limits) except -1:
    to.memory_bound, to.count_in_memory, to.bytes_in_memory, to.count_on_disk, to.bytes_on_disk = limits
    return True


cdef bytes find_records(
        Place p, Py_ssize_t size_of_units, segments, int64_t segment_size, int64_t log_end, tag_codes, const Limits *limits,
        Proving *proving, list views, list held_bits, Gathered *found):
    """Find the records that units lead to.

    Args:
        views: gets what has to be mapped until they are copied.

    Returns:
        Where in memory each of them is, and its length; None where that is the pure twin's to say.
    """
    cdef int64_t physical, tags, at, number, held = -1, begin = 0, count = 0, scanned = 0, total = 0
    cdef int64_t segment_count = len(segments), log_begin = segments[0].start if segments else log_end
    cdef int32_t size
    cdef Py_buffer data
    cdef Place end = p + size_of_units
    cdef int64_t *pieces
    cdef bint near
    found.last, found.gone = 0, False
    memset(&data, 0, sizeof(data))
    table = PyBytes_FromStringAndSize(
        NULL, 16 * min(size_of_units // 20, max(limits.count_in_memory, limits.count_on_disk, 1)))
    pieces = <int64_t *>PyBytes_AS_STRING(table)
    try:
        while end - p >= 20:
            physical, size, tags = <int64_t>tz_get64(p), <int32_t>tz_get32(p + 8), <int64_t>tz_get64(p + 12)
            near = physical >= log_end - limits.memory_bound  # a damaged unit leads anywhere: nothing is counted from it yet
            if count and (count >= (limits.count_in_memory if near else limits.count_on_disk)
                          or total + size > (limits.bytes_in_memory if near else limits.bytes_on_disk)):
                break
            scanned += 1
            p += 20
            if tag_codes is not None and tags > -0x80000001LL and tags not in tag_codes:
                continue
            if tags == 0x7FFFFFFF7FFFFFFF or size == 0x7FFFFFFF:
                found.gone = found.gone or not count
                continue
            if physical < log_begin or physical > log_end - size or size < UP_TO_PLACE or size > segment_size:
                if count:
                    scanned -= 1  # the next read begins with it, and finds out what became of it
                    break
                found.gone = True
                if proving != NULL:
                    break
                continue
            number = (physical - log_begin) // segment_size
            if number >= segment_count:
                return None  # the arguments contradict each other
            if number != held:
                PyBuffer_Release(&data)
                segment = segments[number]
                view, begin, held = segment.view, segment.start, number
                views.append(view)
                PyObject_GetBuffer(view, &data, PyBUF_SIMPLE)
            at = physical - begin
            if at <= segment_size - UP_TO_PLACE and not (0 <= at <= data.len - UP_TO_PLACE and UP_TO_PLACE <= size <= data.len - at):
                return None
            if (at > segment_size - UP_TO_PLACE or not tz_is_record(<Place>data.buf + at, size, physical)
                    or (proving != NULL and not is_sound(<Place>data.buf + at, size, physical,
                                                         proving.queue_offset + scanned - 1, proving, held_bits))):
                if count:
                    scanned -= 1
                    break
                found.gone = True
                if proving != NULL:
                    break
                continue
            assert 16 * count < PyBytes_GET_SIZE(table)
            pieces[2 * count], pieces[2 * count + 1] = <int64_t>data.buf + at, size
            count += 1
            total += size
            found.last = physical
    finally:
        PyBuffer_Release(&data)
    found.count, found.scanned, found.total = count, scanned, total
    return table


cdef void copy_records(bytes table, const Gathered *found, uint8_t *to) noexcept:
    """Copy records one behind the other; those that lie so in the log at once."""
    cdef const int64_t *piece = <const int64_t *>PyBytes_AS_STRING(table)
    cdef int64_t number = 0, begin, size
    while number < found.count:
        begin, size = piece[2 * number], 0
        while number < found.count and piece[2 * number] == begin + size:
            size += piece[2 * number + 1]
            number += 1
        memcpy(to, <Place>begin, size)
        to += size


cdef bint take_proof(Proving *proving, proof, Window window) except -1:
    """Take over what units have to prove, while `proof` and `window` are there; False for what the pure twin has to read."""
    memset(proving, 0, sizeof(proving[0]))
    field, proving.queue_id, proving.queue_offset, proving.trusted_from, checked = proof
    proving.topic_field, proving.checked, proving.block = <PyObject *>field, <PyObject *>checked, -1
    proving.window = <PyObject *>window
    return PyBytes_CheckExact(field)


def gather(units, segments, int64_t segment_size, int64_t log_end, tag_codes, accept, limits, proof=None):
    cdef Py_buffer wanted
    cdef Proving proving
    cdef Limits bounds
    cdef Gathered found
    cdef bytes table = None
    cdef list views = [], held_bits = []
    cdef Window window = Window()
    take_limits(&bounds, limits)
    if accept is None and (proof is None or take_proof(&proving, proof, window)):
        PyObject_GetBuffer(units, &wanted, PyBUF_SIMPLE)
        try:
            table = find_records(<Place>wanted.buf, wanted.len, segments, segment_size, log_end, tag_codes, &bounds,
                                 &proving if proof is not None else NULL, views, held_bits, &found)
            if table is not None:
                records = PyBytes_FromStringAndSize(NULL, found.total)
                copy_records(table, &found, <uint8_t *>PyBytes_AS_STRING(records))
        finally:
            PyBuffer_Release(&wanted)
    if table is None:
        return _records.gather(units, segments, segment_size, log_end, tag_codes, accept, limits, proof)
    return records, found.count, found.scanned, found.last, found.gone


# Dispatch: queue units and index entries

cdef bint look_up(Entries *entries, QueueCursor queue, Place unit, Py_ssize_t count, unique, keys) except -1:
    """Take down the index entries of pending records in order; False when someone else has to see to it."""
    cdef Py_ssize_t size = 0, step
    cdef bint several = PyBytes_CheckExact(unique)
    cdef Place p, end = <Place>PyBytes_AS_STRING(unique) - 1 if several else NULL
    topic, entries.count = queue.topic, 0
    if not tz_ascii(topic) or not (several or tz_ascii(unique)) or not tz_ascii(keys):
        return False
    p = <Place>PyUnicode_AsUTF8AndSize(topic, &size)
    cdef uint32_t head = 31 * tz_hash(0, p, size) + c"#"
    for step in range(2 * count):
        p = end + 1 if several else <Place>PyUnicode_AsUTF8AndSize(keys if step else unique, &size)
        end = <Place>memchr(p, 2, PyBytes_GET_SIZE(unique)) if several else p + size
        if not tz_add_keys(entries, head, p, end - p, step & 1, tz_get64(unit + (step >> 1) * 20)):
            return False
    return True


cdef bint index_entries(cursor, Entries *entries, int64_t stored, bint writes) except -1:
    """Add entries to an index file, or find out whether they can be; False, and nothing is done, when someone else has
    to see to it."""
    cdef int step, count = entries.count
    if count == 0:
        return True
    if not isinstance(cursor, IndexCursor):
        return False
    cdef IndexCursor file = <IndexCursor>cursor
    if file._map is None or file._touched is None:
        return False
    cdef int64_t at = file.count, all_entries = file._entries, place
    cdef int64_t slots = file.slots, first = file.begin_timestamp
    cdef int64_t used = file.slot_count, seconds = min(max((stored - first) // 1000, 0), 0x7FFFFFFF)
    cdef Py_buffer view
    if (slots <= 0 or at <= 1 or first <= 0 or at + count > file.capacity
            or entries.places[0] <= file.end_offset or all_entries < 40 + 4 * slots):
        return False
    for step in range(-1, count):
        place = 0 if step < 0 else 40 + 4 * (entries.hashes[step] % slots)  # the header's first
        if place >> 12 >= PyByteArray_GET_SIZE(file._touched):
            return False
        if not PyByteArray_AS_STRING(file._touched)[place >> 12]:
            try:
                file._touch(place)
            except OSError:
                return False  # it comes again, in its place
    if all_entries + 20 * (at + count) > min(file._reserved, len(file._map)):
        return False
    if not writes:
        return True
    PyObject_GetBuffer(file._map, &view, PyBUF_WRITABLE)
    for step in range(count):
        place = 40 + 4 * (entries.hashes[step] % slots)
        assert place + 4 <= all_entries and all_entries + 20 * (at + 1) <= view.len
        used += tz_put_entry(<uint8_t *>view.buf, place, all_entries + 20 * at, entries, step, seconds, at)
        at += 1
    PyBuffer_Release(&view)
    file.count = at
    file.slot_count = used
    file.end_offset = entries.places[count - 1]
    file.end_timestamp = stored
    return True


cdef bint put_index_header(IndexCursor file) except -1:
    """Make the header in an index file, whose page is there, say what was inserted (store.md 8.1)."""
    cdef Py_buffer view
    cdef uint8_t *p
    cdef int64_t begin = file.begin_timestamp, stored = file.end_timestamp
    cdef int64_t first = file.begin_offset, end = file.end_offset
    cdef int64_t used = file.slot_count, count = file.count
    if used != <int32_t>used or count != <int32_t>count:
        file.write_header()
        return True
    PyObject_GetBuffer(file._map, &view, PyBUF_WRITABLE)
    p = tz_put64(tz_put64(<uint8_t *>view.buf, <uint64_t>begin), <uint64_t>stored)
    p = tz_put64(tz_put64(p, <uint64_t>first), <uint64_t>end)
    tz_put32(tz_put32(p, <uint32_t>used), <uint32_t>count)
    PyBuffer_Release(&view)
    return True


cdef bint put_units(
        QueueCursor queue, int64_t at, Place units, Py_ssize_t count, int64_t most, int64_t physical, list dirty) except -1:
    """Write units at a place of a queue, which then has `most` offsets and knows the log up to `physical`."""
    cdef Py_buffer view
    PyObject_GetBuffer(queue._map, &view, PyBUF_WRITABLE)
    assert 0 <= at <= view.len - 20 * count and queue.max_offset <= most <= queue.next_offset
    memcpy(<uint8_t *>view.buf + at, units, 20 * count)
    PyBuffer_Release(&view)
    queue._position = at + 20 * count
    queue.max_offset = most
    queue.max_physical = physical
    if not queue.dirty:
        queue.dirty = True
        dirty.append(queue)
    return True


def fill(pending, list dirty, bint indexed, newest, limit, Py_ssize_t most):
    cdef Entries entries
    cdef QueueCursor queue
    cdef Py_ssize_t taken = 0, count
    cdef int64_t upto = 0x7FFFFFFFFFFFFFFF if limit is None else limit, stored = 0, reached = 0
    cdef int64_t offset, physical, size, kind, at, end
    cdef uint8_t one[20]
    cdef Place units
    while taken < most and pending:
        cursor, number, place, length, code, when, bits, unique, keys = pending[0]
        offset, physical, size, kind, units, count = number, place, length, bits, one, 1
        if PyBytes_CheckExact(code):
            units, count = <Place>PyBytes_AS_STRING(code), PyBytes_GET_SIZE(code) // 20
            end = <int64_t>tz_get64(units + 20 * count - 20) + tz_get32(units + 20 * count - 12)
        else:
            tz_put_unit(one, physical, size, code)
            end = physical + size
        if end > upto or not isinstance(cursor, QueueCursor) or not (<QueueCursor>cursor).plain:
            break
        queue = <QueueCursor>cursor
        at = queue._position
        if (at < 0 or kind == PREPARED or kind == ROLLBACK or offset != queue.max_offset
                or at + 20 * count > queue._reserved or queue._map is None
                or at + 20 * count > len(queue._map) or physical < queue.max_physical
                or (indexed and not (look_up(&entries, queue, units, count, unique, keys)
                                     and index_entries(newest, &entries, when, True)))):
            break
        put_units(queue, at, units, count, offset + count, end, dirty)
        pending.popleft()
        if queue.arrived is not None:
            queue.arrived.advance(offset + count)
        taken += count
        reached, stored = end, when
    return taken, reached, stored

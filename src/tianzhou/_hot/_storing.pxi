# Included by _compiled.pyx: the hot functions of the store.

# Properties of messages to be stored

cdef struct Told:
    Place at[4]  # value of UNIQ_KEY, KEYS, TAGS, WAIT; NULL when there is none
    Py_ssize_t size[4]

cdef list _TOLD = [b"UNIQ_KEY", b"KEYS", b"TAGS", b"WAIT"]
cdef object _RECORD = NewRecord("", 0, b"", b"")


cdef bint look(Place p, Py_ssize_t size, list names, Told *told) except -1:
    """Take down what a property string tells; False when it is odd, says a thing twice, or has one of the further
    names."""
    cdef Place end = p + size, name, value
    cdef Py_ssize_t number
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
                    if number > 3 or told.at[number] != NULL:
                        return False
                    told.at[number], told.size[number] = value + 1, p - value - 1
                    break
        p += 1
    return True


cdef inline object told_text(Told *told, int which):
    return PyUnicode_DecodeUTF8(<const char *>told.at[which], told.size[which], NULL) if told.at[which] != NULL else ""


cdef uint32_t polynomial(uint32_t value, Place text, Py_ssize_t size) noexcept:
    """Java's hash of a text, going on from that of what stands before it."""
    cdef Py_ssize_t at
    for at in range(size):
        value = 31 * value + text[at]
    return value


cdef class PropertyReader:
    """See `tianzhou._hot.properties.PropertyReader`."""

    cdef object pure
    cdef list names, tails

    def __init__(self, special, tail, tags_code):
        self.pure = _properties.PropertyReader(special, tail, tags_code)
        self.names, self.tails = _TOLD + [name.encode() for name in special], [b"\x02" + tail, tail]

    def record(self, header, body, host, port, int64_t flags):
        """See `tianzhou._hot.properties.PropertyReader.record`."""
        cdef int first = V2_TOPIC if type(header) is SendHeaderV2 else V1_TOPIC, odd = 0, step
        cdef Told told
        cdef Py_ssize_t size = 0
        if (first == V1_TOPIC and type(header) is not SendHeader) or not PyBytes_CheckExact(body):
            return self.pure.record(header, body, host, port, flags)
        text = <object>of(header, first + V2_PROPERTIES - V2_TOPIC)
        cdef int64_t sys_flag = tz_i32(of(header, first + V2_SYS_FLAG - V2_TOPIC), &odd)
        cdef Place p = <Place>PyUnicode_AsUTF8AndSize(text, &size) if tz_ascii(text) else NULL
        memset(&told, 0, sizeof(told))
        if (odd or sys_flag & 0xC0 or PyBytes_GET_SIZE(body) == 0 or p == NULL
                or <object>of(header, first + V2_BATCH - V2_TOPIC) == "true"
                or not look(p, size, self.names, &told) or told.size[0] == 0):
            return self.pure.record(header, body, host, port, flags)
        properties = PyBytes_FromStringAndSize(<const char *>p, size) + self.tails[p[size - 1] == 2]
        record = _RECORD.__copy__()
        for step in range(5):
            tz_set(record, AT[R_TOPIC + step], <object>of(header, first + step))
        tz_set(record, AT[R_SYS_FLAG], sys_flag | flags)
        tz_set(record, AT[R_PROPERTIES], properties)
        tz_set(record, AT[R_BODY], body)
        tz_set(record, AT[R_HOST], host)
        tz_set(record, AT[R_PORT], port)
        tz_set(record, AT[R_TAGS], <int32_t>polynomial(0, told.at[2], told.size[2]))
        tz_set(record, AT[R_KEYS], told_text(&told, 1))
        tz_set(record, AT[R_UNIQUE], told_text(&told, 0))
        return record, told.size[3] != 5 or memcmp(told.at[3], b"false", 5) != 0


# Records into a mapped segment

cdef struct Put:  # what the records of a put have in common, and where the next one goes
    PyObject *host
    PyObject *store_host
    PyObject *topic_field
    int64_t magic, queue_id, sys_flag, born, port, stored, reconsumed, prepared, overhead, base, position, room, offset

cdef object _crc32 = _records.crc32


cdef bint begin(Put *put, log, queue, record, int64_t stored) except -1:
    """Take down what a put is about; False when its messages are none as most are."""
    cdef int odd = 0
    if type(record) is not NewRecord or not PyObject_TypeCheck(log, LogTail) or not PyObject_TypeCheck(queue, QueueTail):
        return False
    put.host, put.store_host, put.topic_field = of(record, R_HOST), of(log, L_HOST), of(queue, Q_FIELD)
    if (not PyBytes_CheckExact(<object>put.host) or PyBytes_GET_SIZE(<object>put.host) != 4
            or not PyBytes_CheckExact(<object>put.store_host) or not PyBytes_CheckExact(<object>put.topic_field)
            or <object>of(queue, Q_DELAYED) or <object>of(log, L_CRC) or <object>of(log, L_MAP) is None):
        return False
    put.stored, put.offset, put.base = stored, whole(queue, Q_NEXT, &odd), whole(log, L_BASE, &odd)
    put.position, put.room = whole(log, L_POSITION, &odd), whole(log, L_CHECK, &odd)
    put.overhead = whole(log, L_OVERHEAD, &odd) + PyBytes_GET_SIZE(<object>put.topic_field)
    put.born, put.prepared = whole(record, R_BORN, &odd), whole(record, R_PREPARED, &odd)
    put.magic, put.queue_id = tz_i32(of(queue, Q_MAGIC), &odd), tz_i32(of(record, R_QUEUE_ID), &odd)
    put.port, put.reconsumed = tz_i32(of(record, R_PORT), &odd), tz_i32(of(record, R_RECONSUMED), &odd)
    put.sys_flag = tz_i32(of(record, R_SYS_FLAG), &odd)
    # Inner batches, halves and what was rolled back are not counted as others are; a store host is of 4 or 16 bytes.
    odd |= put.sys_flag & 0x84 or put.overhead != (82 + PyBytes_GET_SIZE(<object>put.store_host)
                                                   + PyBytes_GET_SIZE(<object>put.topic_field))
    put.sys_flag = put.sys_flag & ~0x30 | tz_i32(of(log, L_BITS), &odd)
    return not odd


cdef uint8_t *write(Put *put, uint8_t *p, int64_t size, uint32_t flag, body, int64_t more) except NULL:
    """Write the next record but for its properties, which are `more` bytes; where they go."""
    crc = _crc32(body)
    p = tz_put32(tz_put32(tz_put32(p, <uint32_t>size), <uint32_t>put.magic), <uint32_t>crc & 0x7FFFFFFF)
    p = tz_put32(tz_put32(p, <uint32_t>put.queue_id), flag)
    p = tz_put32(tz_put64(tz_put64(p, put.offset), put.base + put.position), <uint32_t>put.sys_flag)
    p = tz_put32(tz_put(tz_put64(p, put.born), put.host), <uint32_t>put.port)
    p = tz_put32(tz_put(tz_put64(p, put.stored), put.store_host), <uint32_t>put.reconsumed)
    p = tz_put32(tz_put64(p, put.prepared), <uint32_t>PyBytes_GET_SIZE(body))
    p = tz_put(tz_put(p, <PyObject *>body), put.topic_field)
    p[0], p[1] = <uint8_t>(more >> 8), <uint8_t>more
    return p + 2


cdef object done(Put *put, log, queue, result, place, offset, places):
    """Move the ends behind what was written; the answer."""
    tz_set(log, AT[L_POSITION], put.position)
    tz_set(queue, AT[Q_NEXT], put.offset)
    return type(result)(result.status, place, offset, put.stored, put.base + put.position, places)


def put_usual(log, queue, record, int64_t stored, pending, result):
    """See `tianzhou._hot.records.put_usual`."""
    cdef Put put
    cdef Py_buffer view
    cdef uint8_t *p
    cdef int odd = 0
    if not begin(&put, log, queue, record, stored):
        return None
    body, properties = <object>of(record, R_BODY), <object>of(record, R_PROPERTIES)
    cdef int64_t flag = tz_i32(of(record, R_FLAG), &odd)
    if odd or not PyBytes_CheckExact(body) or not PyBytes_CheckExact(properties):
        return None
    cdef int64_t more = PyBytes_GET_SIZE(properties), size = put.overhead + PyBytes_GET_SIZE(body) + more
    if put.position + size > put.room or more > 32767 or memchr(PyBytes_AS_STRING(properties), 0, more) != NULL:
        return None
    PyObject_GetBuffer(<object>of(log, L_MAP), &view, PyBUF_WRITABLE)
    try:
        if put.position < 0 or put.position + size > view.len:
            return None
        p = write(&put, <uint8_t *>view.buf + put.position, size, <uint32_t>flag, body, more)
        tz_put(p, <PyObject *>properties)
    finally:
        PyBuffer_Release(&view)
    place, offset = put.base + put.position, put.offset
    pending.append((queue, offset, place, size, <object>of(record, R_TAGS), stored, put.sys_flag & 0xC,
                    <object>of(record, R_UNIQUE), <object>of(record, R_KEYS)))
    put.position += size
    put.offset += 1
    return done(&put, log, queue, result, place, offset, ())


def put_batch(log, queue, record, batch, int64_t most, int64_t stored, pending, result):
    """See `tianzhou._hot.records.put_batch`."""
    cdef Put put
    cdef Told shared, told
    cdef Py_buffer view
    cdef Place p, end
    cdef uint8_t *q
    cdef int64_t length, own, gap, size, needed, bodies = 0
    cdef list units = []
    tail = <object>of(record, R_PROPERTIES)
    if not PyBytes_CheckExact(batch) or not PyBytes_CheckExact(tail) or not begin(&put, log, queue, record, stored):
        return None
    cdef int64_t more = PyBytes_GET_SIZE(tail), first = put.offset, start = put.position
    p = <Place>PyBytes_AS_STRING(tail)
    memset(&shared, 0, sizeof(shared))
    if put.sys_flag & 0x8 or not tail.isascii() or 0 in tail or not look(p, more, _TOLD, &shared):
        return None
    PyObject_GetBuffer(<object>of(log, L_MAP), &view, PyBUF_WRITABLE)
    answer = None
    try:
        p = <Place>PyBytes_AS_STRING(batch)
        end = p + PyBytes_GET_SIZE(batch)
        while p < end:
            length = <int32_t>tz_get32(p + 16) if end - p >= 22 else -1
            if not 0 <= length <= end - p - 22:
                return None
            own = p[20 + length] << 8 | p[21 + length]
            size = 22 + length + own
            if own > 32767 or size > end - p or (tz_get32(p) != 0 and tz_get32(p) != size):
                return None
            told, text = shared, PyBytes_FromStringAndSize(<const char *>p + size - own, own)
            if not text.isascii() or 0 in text or not look(p + size - own, own, _TOLD, &told):
                return None
            gap = own > 0 and more > 0 and p[size - 1] != 2
            needed = put.overhead + length + own + gap + more
            bodies += length
            if own + gap + more > 32767 or bodies > most or start < 0 or put.position + needed > min(put.room, view.len):
                return None
            body = PyBytes_FromStringAndSize(<const char *>p + 20, length)
            q = write(&put, <uint8_t *>view.buf + put.position, needed, tz_get32(p + 12), body, own + gap + more)
            memcpy(q, p + size - own, own)
            if gap:
                q[own] = 2
            memcpy(q + own + gap, PyBytes_AS_STRING(tail), more)
            units.append((queue, put.offset, put.base + put.position, needed,
                          <int32_t>polynomial(0, told.at[2], told.size[2]), stored, 0, told_text(&told, 0),
                          told_text(&told, 1)))
            p += size
            put.position += needed
            put.offset += 1
        if units:
            pending.extend(units)
            answer = done(&put, log, queue, result, units[0][2], first, tuple([unit[2] for unit in units]))
    finally:
        if answer is None and put.position > start:  # nobody may take what was begun for stored
            memset(<uint8_t *>view.buf + start, 0, put.position - start)
        PyBuffer_Release(&view)
    return answer


# Records out of mapped segments

cdef struct Piece:
    Place at
    int64_t size


def gather(units, segments, int64_t segment_size, int64_t log_end, tag_codes, accept, limits):
    """See `tianzhou._hot.records.gather`."""
    cdef int64_t memory_bound, count_in_memory, bytes_in_memory, count_on_disk, bytes_on_disk
    cdef int64_t physical, tags, at, number, held = -1, begin = 0, last = 0, count = 0, scanned = 0, total = 0, segment_count
    cdef int64_t log_begin = segments[0].start if segments else log_end
    cdef int32_t size
    cdef Py_buffer wanted, data
    cdef Place p, end
    cdef uint8_t *q
    cdef Piece *pieces
    cdef bint gone = False, near, odd = accept is not None
    cdef list views = []
    records = b""
    memory_bound, count_in_memory, bytes_in_memory, count_on_disk, bytes_on_disk = limits
    segment_count = len(segments)
    memset(&data, 0, sizeof(data))
    PyObject_GetBuffer(units, &wanted, PyBUF_SIMPLE)
    pieces = <Piece *>PyMem_Malloc((wanted.len // 20 + 1) * sizeof(Piece))
    try:
        if pieces == NULL:
            raise MemoryError
        p = <Place>wanted.buf
        end = p + wanted.len
        while not odd and end - p >= 20:
            physical, size, tags = <int64_t>tz_get64(p), <int32_t>tz_get32(p + 8), <int64_t>tz_get64(p + 12)
            near = log_end - physical <= memory_bound
            if count and (count >= (count_in_memory if near else count_on_disk)
                          or total + size > (bytes_in_memory if near else bytes_on_disk)):
                break
            scanned += 1
            p += 20
            if tag_codes is not None and tags > -0x80000001LL and tags not in tag_codes:
                continue
            at = physical - log_begin
            if tags == 0x7FFFFFFF7FFFFFFF or at < 0 or physical + size > log_end or size > segment_size:
                gone = gone or not count
                continue
            number = at // segment_size
            if number >= segment_count:
                odd = True  # the arguments contradict each other
                break
            if number != held:
                PyBuffer_Release(&data)
                view, begin, held = segments[number].view, segments[number].start, number
                views.append(view)  # what is found is copied in the end, and has to be mapped until then
                PyObject_GetBuffer(view, &data, PyBUF_SIMPLE)
            at = physical - begin
            if at <= segment_size - 36 and not (0 <= at <= data.len - 36 and 36 <= size <= data.len - at):
                odd = True
                break
            if at > segment_size - 36 or not is_record(<Place>data.buf + at, size, physical):
                gone = gone or not count
                continue
            pieces[count].at, pieces[count].size = <Place>data.buf + at, size
            count += 1
            total += size
            last = physical
        if not odd:
            records = PyBytes_FromStringAndSize(NULL, total)
            q = <uint8_t *>PyBytes_AS_STRING(records)
            for number in range(count):
                memcpy(q, pieces[number].at, pieces[number].size)
                q += pieces[number].size
    finally:
        PyMem_Free(pieces)
        PyBuffer_Release(&wanted)
        PyBuffer_Release(&data)
    if odd:
        return _records.gather(units, segments, segment_size, log_end, tag_codes, accept, limits)
    return records, count, scanned, last, gone


cdef bint is_record(Place p, int32_t size, int64_t physical) noexcept:
    cdef int32_t magic = <int32_t>tz_get32(p + 4)
    return (<int32_t>tz_get32(p) == size and <int64_t>tz_get64(p + 28) == physical
            and (magic == -626843481 or magic == -626843477))


# Dispatch: queue units and index entries

cdef enum:
    MOST_KEYS = 16


cdef int key_hashes(topic, unique, keys, uint32_t *hashes) except -2:
    """Hashes of a record's index entries in order, and how many; -1 when someone else has to see to it."""
    cdef Py_ssize_t size = 0, upto
    cdef uint32_t head, found
    cdef int count = 0, listed
    cdef Place p, end
    if not (tz_ascii(topic) and tz_ascii(unique) and tz_ascii(keys)):
        return -1
    p = <Place>PyUnicode_AsUTF8AndSize(topic, &size)
    head = 31 * polynomial(0, p, size) + c"#"
    for listed in range(2):
        text = keys if listed else unique
        p = <Place>PyUnicode_AsUTF8AndSize(text, &size)
        end = p + size
        while p < end:
            upto = end - p
            if listed and memchr(p, c" ", upto) != NULL:
                upto = <Place>memchr(p, c" ", upto) - p
            if upto:
                if count == MOST_KEYS:
                    return -1
                found = polynomial(head, p, upto)
                hashes[count] = found if found < 0x80000000U else (0 - found) & 0x7FFFFFFF
                count += 1
            p += upto + 1
    return count


cdef bint index_record(file, uint32_t *hashes, int count, int64_t physical, int64_t stored) except -1:
    """Add a record's entries to an index file; False, and nothing is done, when someone else has to see to it."""
    cdef int odd = 0, step
    if not PyObject_TypeCheck(file, IndexTail) or of(file, I_MAP) == NULL:
        return False
    cdef int64_t at = whole(file, I_COUNT, &odd), entries = whole(file, I_ENTRIES, &odd), place, previous
    cdef int64_t slots = whole(file, I_SLOTS, &odd), first = whole(file, I_BEGIN, &odd)
    cdef int64_t used = whole(file, I_USED, &odd), seconds = min(max((stored - first) // 1000, 0), 0x7FFFFFFF)
    cdef Py_buffer view
    cdef uint8_t *p
    cdef uint8_t *entry
    if (slots <= 0 or at <= 1 or first <= 0 or at + count > whole(file, I_CAPACITY, &odd)
            or physical <= whole(file, I_END, &odd) or entries < 40 + 4 * slots):
        return False
    touched = <object>of(file, I_TOUCHED)
    for step in range(count):
        place = 40 + 4 * (hashes[step] % slots)
        if not touched[place >> 12]:
            file._touch(place)
    if entries + 20 * (at + count) > whole(file, I_RESERVED, &odd) or odd:
        return False
    PyObject_GetBuffer(<object>of(file, I_MAP), &view, PyBUF_WRITABLE)
    odd = entries + 20 * (at + count) > view.len
    for step in range(0 if odd else count):
        p = <uint8_t *>view.buf + 40 + 4 * (hashes[step] % slots)
        previous = <int32_t>tz_get32(p)
        if previous <= 0 or previous > at:
            previous = 0
            used += 1
        entry = tz_put64(tz_put32(<uint8_t *>view.buf + entries + 20 * at, hashes[step]), physical)
        tz_put32(tz_put32(entry, <uint32_t>seconds), <uint32_t>previous)
        tz_fence()  # a slot that is on the disk says that its entry is whole
        tz_put32(p, <uint32_t>at)
        at += 1
    PyBuffer_Release(&view)
    if odd:
        return False
    tz_set(file, AT[I_COUNT], at)
    tz_set(file, AT[I_USED], used)
    tz_set(file, AT[I_END], physical)
    tz_set(file, AT[I_STORED], stored)
    return True


def fill(pending, list dirty, bint indexed, newest, limit, Py_ssize_t most):
    """See `tianzhou._hot.records.fill`."""
    cdef uint32_t hashes[MOST_KEYS]
    cdef int odd = 0, count = 0
    cdef Py_ssize_t taken = 0
    cdef int64_t upto = 0x7FFFFFFFFFFFFFFF if limit is None else limit
    cdef int64_t offset, physical, size, tags, stored = 0, kind, at, reached = 0
    cdef Py_buffer view
    while taken < most and pending:
        queue, number, place, length, code, when, bits, unique, keys = pending[0]
        offset, physical, size, tags, kind = number, place, length, code, bits
        if physical + size > upto or not PyObject_TypeCheck(queue, QueueTail) or not <object>of(queue, Q_PLAIN):
            break
        at = whole(queue, Q_POSITION, &odd)
        if (odd or at < 0 or kind == 4 or kind == 0xC or offset != whole(queue, Q_MAX, &odd)
                or at + 20 > whole(queue, Q_RESERVED, &odd) or <object>of(queue, Q_MAP) is None
                or physical < whole(queue, Q_PHYSICAL, &odd)):
            break
        count = key_hashes(<object>of(queue, Q_TOPIC), unique, keys, hashes) if indexed else 0
        PyObject_GetBuffer(<object>of(queue, Q_MAP), &view, PyBUF_WRITABLE)
        try:
            if at + 20 > view.len or count < 0 or (count and not index_record(newest, hashes, count, physical, when)):
                break
            tz_put64(tz_put32(tz_put64(<uint8_t *>view.buf + at, physical), <uint32_t>size), tags)
        except OSError:
            break  # it comes again, in its place
        finally:
            PyBuffer_Release(&view)
        tz_set(queue, AT[Q_POSITION], at + 20)
        tz_set(queue, AT[Q_MAX], offset + 1)
        tz_set(queue, AT[Q_PHYSICAL], physical + size)
        if not <object>of(queue, Q_DIRTY):
            tz_set(queue, AT[Q_DIRTY], True)
            dirty.append(queue)
        pending.popleft()
        if <object>of(queue, Q_ARRIVED) is not None:
            (<object>of(queue, Q_ARRIVED)).advance(offset + 1)
        taken += 1
        reached, stored = physical + size, when
    return taken, reached, stored

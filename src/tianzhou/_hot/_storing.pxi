# Included by _compiled.pyx: the hot functions of the store.

# Records into a mapped segment

cdef Py_ssize_t R_QUEUE_ID = slot(NewRecord, "queue_id"), R_BODY = slot(NewRecord, "body")
cdef Py_ssize_t R_PROPERTIES = slot(NewRecord, "properties"), R_FLAG = slot(NewRecord, "flag")
cdef Py_ssize_t R_SYS_FLAG = slot(NewRecord, "sys_flag"), R_BORN = slot(NewRecord, "born_timestamp")
cdef Py_ssize_t R_HOST = slot(NewRecord, "born_host"), R_PORT = slot(NewRecord, "born_port")
cdef Py_ssize_t R_RECONSUMED = slot(NewRecord, "reconsume_times")
cdef Py_ssize_t R_PREPARED = slot(NewRecord, "prepared_transaction_offset")
cdef Py_ssize_t R_TAGS = slot(NewRecord, "tags_code"), R_KEYS = slot(NewRecord, "keys"), R_UNIQUE = slot(NewRecord, "uniq_key")
cdef Py_ssize_t L_MAP = slot(LogTail, "_map"), L_CHECK = slot(LogTail, "_check"), L_OVERHEAD = slot(LogTail, "_overhead")
cdef Py_ssize_t L_BITS = slot(LogTail, "_sys_bits"), L_CRC = slot(LogTail, "appends_crc"), L_BASE = slot(LogTail, "base")
cdef Py_ssize_t L_POSITION = slot(LogTail, "position"), L_HOST = slot(LogTail, "store_host_field")
cdef Py_ssize_t Q_MAP = slot(QueueTail, "_map"), Q_POSITION = slot(QueueTail, "_position"), Q_TOPIC = slot(QueueTail, "topic")
cdef Py_ssize_t Q_RESERVED = slot(QueueTail, "_reserved"), Q_ARRIVED = slot(QueueTail, "arrived")
cdef Py_ssize_t Q_DELAYED = slot(QueueTail, "delayed"), Q_DIRTY = slot(QueueTail, "dirty"), Q_MAGIC = slot(QueueTail, "magic")
cdef Py_ssize_t Q_MAX = slot(QueueTail, "max_offset"), Q_PHYSICAL = slot(QueueTail, "max_physical")
cdef Py_ssize_t Q_NEXT = slot(QueueTail, "next_offset"), Q_PLAIN = slot(QueueTail, "plain")
cdef Py_ssize_t Q_FIELD = slot(QueueTail, "topic_field")
cdef object _crc32 = _records.crc32


cdef bint store(
    memory, int64_t at, int64_t size, int64_t physical, int64_t magic, topic_field, int64_t queue_offset,
    int64_t sys_flag, int64_t stored, store_host, record,
) except -1:
    """Write a record; False, and nothing is written, when it is none as `NewRecord` says or does not fill `size`."""
    cdef Py_buffer view
    cdef uint8_t *p
    cdef int odd = 0
    cdef PyObject *body = tz_peek(record, R_BODY)
    cdef PyObject *properties = tz_peek(record, R_PROPERTIES)
    cdef PyObject *host = tz_peek(record, R_HOST)
    if not (PyBytes_CheckExact(<object>body) and PyBytes_CheckExact(<object>properties) and PyBytes_CheckExact(<object>host)
            and PyBytes_CheckExact(topic_field) and PyBytes_CheckExact(store_host)):
        return False
    cdef int64_t queue_id = tz_i32(tz_peek(record, R_QUEUE_ID), &odd), flag = tz_i32(tz_peek(record, R_FLAG), &odd)
    cdef int64_t born = tz_i64(tz_peek(record, R_BORN), &odd), port = tz_i32(tz_peek(record, R_PORT), &odd)
    cdef int64_t reconsumed = tz_i32(tz_peek(record, R_RECONSUMED), &odd)
    cdef int64_t prepared = tz_i64(tz_peek(record, R_PREPARED), &odd)
    cdef int64_t length = PyBytes_GET_SIZE(<object>body), more = PyBytes_GET_SIZE(<object>properties)
    cdef int64_t needed = length + more + PyBytes_GET_SIZE(topic_field) + 78
    needed += PyBytes_GET_SIZE(<object>host) + PyBytes_GET_SIZE(store_host)
    odd |= PyBytes_GET_SIZE(<object>host) not in (4, 16) or PyBytes_GET_SIZE(store_host) not in (8, 20)
    if odd or needed != size or more > 32767 or sys_flag != <int32_t>sys_flag or magic != <int32_t>magic:
        return False
    crc = _crc32(<object>body)
    PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE)
    if 0 <= at <= view.len - size:
        p = <uint8_t *>view.buf + at
        p = tz_put32(tz_put32(tz_put32(p, <uint32_t>size), <uint32_t>magic), <uint32_t>crc & 0x7FFFFFFF)
        p = tz_put32(tz_put32(p, <uint32_t>queue_id), <uint32_t>flag)
        p = tz_put32(tz_put64(tz_put64(p, queue_offset), physical), <uint32_t>sys_flag)
        p = tz_put32(tz_put(tz_put64(p, born), host), <uint32_t>port)
        p = tz_put(tz_put64(p, stored), <PyObject *>store_host)
        p = tz_put32(tz_put64(tz_put32(p, <uint32_t>reconsumed), prepared), <uint32_t>length)
        p = tz_put(tz_put(p, body), <PyObject *>topic_field)
        p[0], p[1] = <uint8_t>(more >> 8), <uint8_t>more
        tz_put(p + 2, properties)
        odd = -1
    PyBuffer_Release(&view)
    return odd == -1


def put_record(
    target, position, size, physical_offset, magic, topic_field, queue_offset, sys_flag, store_timestamp,
    store_host_field, record,
):
    """See `tianzhou._hot.records.put_record`."""
    if type(record) is not NewRecord or not store(
        target, position, size, physical_offset, magic, topic_field, queue_offset, sys_flag, store_timestamp,
        store_host_field, record,
    ):
        _records.put_record(
            target, position, size, physical_offset, magic, topic_field, queue_offset, sys_flag, store_timestamp,
            store_host_field, record,
        )


cdef object _result_kind = None
cdef Py_ssize_t _result_at[4]


def put_usual(log, queue, record, int64_t stored, pending, done):
    """See `tianzhou._hot.records.put_usual`."""
    global _result_kind
    cdef int odd = 0
    if type(done) is not _result_kind:
        names = ("physical_offset", "queue_offset", "store_timestamp", "end_offset")
        for odd, name in enumerate(names):
            _result_at[odd] = slot(type(done), name)
        _result_kind, odd = type(done), 0
    if type(record) is not NewRecord or not PyObject_TypeCheck(log, LogTail) or not PyObject_TypeCheck(queue, QueueTail):
        return None
    cdef PyObject *body = tz_peek(record, R_BODY)
    cdef PyObject *properties = tz_peek(record, R_PROPERTIES)
    cdef PyObject *host = tz_peek(record, R_HOST)
    cdef PyObject *topic_field = tz_peek(queue, Q_FIELD)
    cdef int64_t sys_flag = tz_i32(tz_peek(record, R_SYS_FLAG), &odd), position = tz_i64(tz_peek(log, L_POSITION), &odd)
    if odd or sys_flag & 0x84:  # inner batches, halves, what was rolled back
        return None
    if not (PyBytes_CheckExact(<object>body) and PyBytes_CheckExact(<object>properties) and PyBytes_CheckExact(<object>host)):
        return None
    if PyBytes_GET_SIZE(<object>host) != 4 or <object>tz_peek(queue, Q_DELAYED) or <object>tz_peek(log, L_CRC):
        return None
    if memchr(PyBytes_AS_STRING(<object>properties), 0, PyBytes_GET_SIZE(<object>properties)) != NULL:
        return None
    cdef int64_t size = tz_i64(tz_peek(log, L_OVERHEAD), &odd) + PyBytes_GET_SIZE(<object>topic_field)
    size += PyBytes_GET_SIZE(<object>body) + PyBytes_GET_SIZE(<object>properties)
    cdef int64_t physical = tz_i64(tz_peek(log, L_BASE), &odd) + position
    cdef int64_t offset = tz_i64(tz_peek(queue, Q_NEXT), &odd), check = tz_i64(tz_peek(log, L_CHECK), &odd)
    if odd or position + size > check or <object>tz_peek(log, L_MAP) is None:
        return None
    sys_flag = sys_flag & ~0x30 | tz_i32(tz_peek(log, L_BITS), &odd)
    place = physical
    number = offset
    if not store(<object>tz_peek(log, L_MAP), position, size, physical, <object>tz_peek(queue, Q_MAGIC),
                 <object>topic_field, offset, sys_flag, stored, <object>tz_peek(log, L_HOST), record):
        return None
    tz_set(log, L_POSITION, position + size)
    tz_set(queue, Q_NEXT, offset + 1)
    pending.append((queue, number, place, size, <object>tz_peek(record, R_TAGS), stored, sys_flag & 0xC,
                    <object>tz_peek(record, R_UNIQUE), <object>tz_peek(record, R_KEYS)))
    result = done.__copy__()
    tz_set(result, _result_at[0], place)
    tz_set(result, _result_at[1], number)
    tz_set(result, _result_at[2], stored)
    tz_set(result, _result_at[3], physical + size)
    return result


def gather(const uint8_t[:] units, segments, int64_t segment_size, int64_t log_end, tag_codes, accept, limits):
    """See `tianzhou._hot.records.gather`."""
    cdef int64_t memory_bound, count_in_memory, bytes_in_memory, count_on_disk, bytes_on_disk
    cdef int64_t physical, tags, at, number, held = -1, begin = 0, total = 0, last = 0, found = 0, scanned = 0
    cdef int64_t log_begin = segments[0].start if segments else log_end
    cdef int32_t size
    cdef Py_ssize_t unit = 0
    cdef bint gone = False
    cdef Place p
    cdef const uint8_t[:] data = None
    cdef list parts = []
    cdef Py_ssize_t count = len(segments)
    memory_bound, count_in_memory, bytes_in_memory, count_on_disk, bytes_on_disk = limits
    view = None
    while unit + 20 <= units.shape[0]:
        p = &units[unit]
        physical, size, tags = <int64_t>tz_get64(p), <int32_t>tz_get32(p + 8), <int64_t>tz_get64(p + 12)
        if found:
            if log_end - physical <= memory_bound:
                if found >= count_in_memory or total + size > bytes_in_memory:
                    return parts, total, scanned, last, gone
            elif found >= count_on_disk or total + size > bytes_on_disk:
                return parts, total, scanned, last, gone
        scanned += 1
        unit += 20
        if tag_codes is not None and tags > -0x80000001LL and tags not in tag_codes:
            continue
        at = physical - log_begin
        if tags == 0x7FFFFFFF7FFFFFFF or at < 0 or physical + size > log_end or size > segment_size:
            gone = gone or not found
            continue
        number = at // segment_size
        if number >= count:
            break
        if number != held:
            segment = segments[number]
            view, begin, held = segment.view, segment.start, number
            data = view
        at = physical - begin
        if at > segment_size - 36:
            gone = gone or not found
            continue
        if not 0 <= at <= data.shape[0] - 36:
            break
        p = &data[at]
        number = <int32_t>tz_get32(p + 4)
        if (<int32_t>tz_get32(p) != size or <int64_t>tz_get64(p + 28) != physical
                or (number != -626843481 and number != -626843477)):
            gone = gone or not found
            continue
        record = view[at : at + size]
        if accept is not None and not accept(record):
            continue
        parts.append(record)
        found += 1
        total += size
        last = physical
    else:
        return parts, total, scanned, last, gone
    # The arguments contradict each other.
    return _records.gather(units.base, segments, segment_size, log_end, tag_codes, accept, limits)


# Properties of a message to be stored

cdef Py_ssize_t _FROM_V2[8]
cdef Py_ssize_t _FROM_V1[8]
cdef Py_ssize_t _INTO[8]
cdef object _RECORD = NewRecord("", 0, b"", b"")
_names = ("topic", "queue_id", "properties", "flag", "sys_flag", "born_timestamp", "reconsume_times", "batch_text")
for _byte, _name in enumerate(_names):
    _FROM_V2[_byte], _FROM_V1[_byte] = slot(SendHeaderV2, _name), slot(SendHeader, _name)
    _INTO[_byte] = slot(NewRecord, _name) if _byte < 7 else 0

cdef class PropertyReader:
    """See `tianzhou._hot.properties.PropertyReader`."""

    cdef object pure
    cdef bytes tail
    cdef list special

    def __init__(self, special, tail, tags_code):
        self.pure = _properties.PropertyReader(special, tail, tags_code)
        self.tail, self.special = tail, [name.encode() for name in special]

    def record(self, header, body, host, port, int64_t flags):
        """See `tianzhou._hot.properties.PropertyReader.record`."""
        cdef Py_ssize_t *at = &_FROM_V2[0] if type(header) is SendHeaderV2 else &_FROM_V1[0]
        cdef int odd = 0
        if (type(header) is not SendHeaderV2 and type(header) is not SendHeader) or not PyBytes_CheckExact(body):
            return self.pure.record(header, body, host, port, flags)
        cdef int64_t sys_flag = tz_i32(tz_peek(header, at[4]), &odd)
        if odd or sys_flag & 0xC0 or PyBytes_GET_SIZE(body) == 0 or <object>tz_peek(header, at[7]) == "true":
            return None
        usual = self.read(<object>tz_peek(header, at[2]))
        if usual is None:
            return None
        record = _RECORD.__copy__()
        properties, unique, keys, code, waits = usual
        for odd in range(7):
            if odd != 4 and odd != 2:
                tz_set(record, _INTO[odd], <object>tz_peek(header, at[odd]))
        tz_set(record, R_SYS_FLAG, sys_flag | flags)
        tz_set(record, R_BODY, body)
        tz_set(record, R_PROPERTIES, properties)
        tz_set(record, R_HOST, host)
        tz_set(record, R_PORT, port)
        tz_set(record, R_TAGS, code)
        tz_set(record, R_KEYS, keys)
        tz_set(record, R_UNIQUE, unique)
        return record, waits

    def read(self, text):
        """See `tianzhou._hot.properties.PropertyReader.read`."""
        cdef Py_ssize_t size = 0
        cdef Place p, end, name, value
        cdef Place unique = NULL, keys = NULL
        cdef Py_ssize_t unique_size = 0, keys_size = 0
        cdef uint32_t tags = 0
        cdef bint waits = True
        if not tz_ascii(text):
            return self.pure.read(text)
        p = <Place>PyUnicode_AsUTF8AndSize(text, &size)
        end = p + size
        while p < end:
            name = p
            p = <Place>memchr(name, 2, end - name)
            if p == NULL:
                p = end
            if p > name:
                value = <Place>memchr(name, 1, p - name)
                if value == NULL:
                    return None
                size = value - name
                value += 1
                if size == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
                    unique, unique_size = value, p - value
                elif size == 4 and memcmp(name, b"KEYS", 4) == 0:
                    keys, keys_size = value, p - value
                elif size == 4 and memcmp(name, b"TAGS", 4) == 0:
                    tags = polynomial(0, value, p - value)
                elif size == 4 and memcmp(name, b"WAIT", 4) == 0:
                    waits = p - value != 5 or memcmp(value, b"false", 5) != 0
                else:
                    for known in self.special:
                        if PyBytes_GET_SIZE(known) == size and memcmp(PyBytes_AS_STRING(known), name, size) == 0:
                            return None
            p += 1
        if unique_size == 0:
            return None
        p = <Place>PyUnicode_AsUTF8AndSize(text, &size)
        cdef bint ended = p[size - 1] == 2
        stored = PyBytes_FromStringAndSize(NULL, size + (not ended) + PyBytes_GET_SIZE(self.tail))
        cdef char *target = PyBytes_AS_STRING(stored)
        memcpy(target, p, size)
        if not ended:
            target[size] = 2
        memcpy(target + size + (not ended), PyBytes_AS_STRING(self.tail), PyBytes_GET_SIZE(self.tail))
        return (
            stored, PyUnicode_DecodeUTF8(<const char *>unique, unique_size, NULL),
            PyUnicode_DecodeUTF8(<const char *>keys, keys_size, NULL), <int32_t>tags, waits,
        )


cdef uint32_t polynomial(uint32_t value, Place text, Py_ssize_t size) noexcept:
    """Java's hash of a text, going on from that of what stands before it."""
    cdef Py_ssize_t at
    for at in range(size):
        value = 31 * value + text[at]
    return value


# Dispatch: queue units and index entries

cdef enum:
    MOST_KEYS = 16

cdef Py_ssize_t I_MAP = slot(IndexTail, "_map"), I_ENTRIES = slot(IndexTail, "_entries")
cdef Py_ssize_t I_RESERVED = slot(IndexTail, "_reserved"), I_TOUCHED = slot(IndexTail, "_touched")
cdef Py_ssize_t I_BEGIN = slot(IndexTail, "begin_timestamp"), I_CAPACITY = slot(IndexTail, "capacity")
cdef Py_ssize_t I_COUNT = slot(IndexTail, "count"), I_END = slot(IndexTail, "end_offset"), I_SLOTS = slot(IndexTail, "slots")
cdef Py_ssize_t I_STORED = slot(IndexTail, "end_timestamp"), I_USED = slot(IndexTail, "slot_count")


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


cdef bint index_record(file, uint32_t *hashes, int count, int64_t physical, int64_t stored, bint write) except -1:
    """Add a record's entries to an index file; without `write` only see to it that nothing is in the way."""
    cdef int odd = 0, step
    cdef int64_t at = tz_i64(tz_peek(file, I_COUNT), &odd), entries = tz_i64(tz_peek(file, I_ENTRIES), &odd)
    cdef int64_t slots = tz_i64(tz_peek(file, I_SLOTS), &odd), begin = tz_i64(tz_peek(file, I_BEGIN), &odd)
    cdef int64_t used = tz_i64(tz_peek(file, I_USED), &odd), seconds = (stored - begin) // 1000, place, previous
    cdef Py_buffer view
    cdef uint8_t *p
    cdef uint8_t *entry
    if odd or tz_peek(file, I_MAP) == NULL or slots <= 0:
        return False
    if not write:
        if at <= 1 or begin <= 0 or at + count > tz_i64(tz_peek(file, I_CAPACITY), &odd):
            return False
        if physical <= tz_i64(tz_peek(file, I_END), &odd):
            return False
        touched = <object>tz_peek(file, I_TOUCHED)
        for step in range(count):
            place = 40 + 4 * (hashes[step] % slots)
            if not touched[place >> 12]:
                file._touch(place)
        if entries + 20 * (at + count) > tz_i64(tz_peek(file, I_RESERVED), &odd):
            return False
        return not odd
    seconds = 0 if seconds < 0 else min(seconds, 0x7FFFFFFF)
    PyObject_GetBuffer(<object>tz_peek(file, I_MAP), &view, PyBUF_WRITABLE)
    odd = entries < 40 + 4 * slots or entries + 20 * (at + count) > view.len
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
        raise ValueError("an index file is smaller than it says")
    tz_set(file, I_COUNT, at)
    tz_set(file, I_USED, used)
    tz_set(file, I_END, physical)
    tz_set(file, I_STORED, stored)
    return True


def fill(pending, list dirty, bint indexed, newest, limit, Py_ssize_t most):
    """See `tianzhou._hot.records.fill`."""
    cdef uint32_t hashes[MOST_KEYS]
    cdef int odd = 0, count = 0
    cdef Py_ssize_t done = 0
    cdef int64_t upto = 0x7FFFFFFFFFFFFFFF if limit is None else limit
    cdef int64_t offset, physical, size, tags, stored = 0, kind, at, reached = 0
    cdef Py_buffer view
    while done < most and pending:
        queue, number, place, length, code, when, bits, unique, keys = pending[0]
        offset, physical, size, tags, kind = number, place, length, code, bits
        if physical + size > upto or not PyObject_TypeCheck(queue, QueueTail) or not <object>tz_peek(queue, Q_PLAIN):
            break
        at = tz_i64(tz_peek(queue, Q_POSITION), &odd)
        if (odd or at < 0 or kind == 4 or kind == 0xC or offset != tz_i64(tz_peek(queue, Q_MAX), &odd)
                or at + 20 > tz_i64(tz_peek(queue, Q_RESERVED), &odd) or <object>tz_peek(queue, Q_MAP) is None
                or physical < tz_i64(tz_peek(queue, Q_PHYSICAL), &odd)):
            break
        count = key_hashes(<object>tz_peek(queue, Q_TOPIC), unique, keys, hashes) if indexed else 0
        try:
            if count < 0 or (count and (not PyObject_TypeCheck(newest, IndexTail)
                                        or not index_record(newest, hashes, count, physical, when, False))):
                break
        except OSError:
            break  # it comes again, in its place
        PyObject_GetBuffer(<object>tz_peek(queue, Q_MAP), &view, PyBUF_WRITABLE)
        odd = at > view.len - 20
        if not odd:
            tz_put64(tz_put32(tz_put64(<uint8_t *>view.buf + at, physical), <uint32_t>size), tags)
        PyBuffer_Release(&view)
        if odd:
            raise ValueError("a consume queue's file is smaller than it says")
        tz_set(queue, Q_POSITION, at + 20)
        tz_set(queue, Q_MAX, offset + 1)
        tz_set(queue, Q_PHYSICAL, physical + size)
        if not <object>tz_peek(queue, Q_DIRTY):
            tz_set(queue, Q_DIRTY, True)
            dirty.append(queue)
        if count:
            index_record(newest, hashes, count, physical, when, True)
        pending.popleft()
        if <object>tz_peek(queue, Q_ARRIVED) is not None:
            (<object>tz_peek(queue, Q_ARRIVED)).advance(offset + 1)
        done += 1
        reached, stored = physical + size, when
    return done, reached, stored

# Included by _compiled.pyx: pulls recognised without making commands of them (docs/adr/0022-runs.md).

cdef extern from "pulls.h":
    enum:
        KEY_TEXTS "TZ_KEY_TEXTS", ACCESS_KEY "TZ_TEXT_ACCESS_KEY", SIGNATURE "TZ_TEXT_SIGNATURE"
    ctypedef struct Pull "TzPull":
        Place *texts
        Py_ssize_t *sizes
        int64_t queue_id, most, sys_flag, sub_version, suspend, opaque, offset, commit
    bint tz_scan_pull(Place, Py_ssize_t, Pull *)

cdef enum:
    PULL_NUMBERS = 28  # bytes of the numbers of a pull's key
    MOST_SIGNED_OF_PULL = 4096


cdef Py_ssize_t scan_frame(Place p, Py_ssize_t left, Py_ssize_t most_frame, Pull *pull) noexcept:
    """Bytes of the frame of a pull at the front of what was read; 0 when it is none."""
    cdef int64_t length
    if left < 20:
        return 0
    length = <int32_t>tz_get32(p)
    if (length < 20 or length + 4 > left or length + 4 > most_frame or tz_get32(p + 4) + 4 != length
            or not tz_scan_pull(p + 8, length - 4, pull)):
        return 0
    return 4 + length


cdef bytes key_of(const Pull *pull):
    """As the pure twin's `pull_key`."""
    cdef Py_ssize_t size = PULL_NUMBERS
    cdef uint8_t *q
    cdef int text
    for text in range(KEY_TEXTS):
        size += (1 if pull.texts[text] == NULL else pull.sizes[text]) + 1
    key = PyBytes_FromStringAndSize(NULL, size)
    q = <uint8_t *>PyBytes_AS_STRING(key)
    for text in range(KEY_TEXTS):
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
    return key


cdef struct Span:  # what a read finds
    Gathered found
    int64_t low, high, following
    bint behind


def scan_pull(buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t most_frame):
    cdef Py_buffer view
    cdef Pull pull
    cdef Py_ssize_t size = 0
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if 0 <= start and end <= view.len:
            size = scan_frame(<Place>view.buf + start, end - start, most_frame, &pull)
        return (start + size, key_of(&pull), pull.opaque, pull.offset, pull.commit) if size else None
    finally:
        PyBuffer_Release(&view)


cdef bytes _pulled = _frames.pull_reply("%lld", 0, "FOUND", *["%lld"] * 6, b"")[0][8:]


cdef int put_head(
        char *frame, int64_t opaque, int64_t following, int64_t low, int64_t high, int64_t suggested, int64_t group_flag,
        int64_t topic_flag, Py_ssize_t size) noexcept:
    """Write the head of a reply that has messages of `size` bytes, at most 1 KiB; how many bytes it has."""
    cdef int header = snprintf(
        frame + 8, 1016, PyBytes_AS_STRING(_pulled), <long long>suggested, <long long>group_flag, <long long>following,
        <long long>high, <long long>low, <long long>topic_flag, <long long>opaque)
    tz_put32(tz_put32(<uint8_t *>frame, <uint32_t>(4 + header + size)), <uint32_t>header)
    return header + 8


def pull_reply(opaque, code, remark, next_offset, min_offset, max_offset, suggested, group_flag, topic_flag, records):
    cdef char frame[1024]
    cdef int size
    if code != 0 or remark != "FOUND":
        return _frames.pull_reply(
            opaque, code, remark, next_offset, min_offset, max_offset, suggested, group_flag, topic_flag, records)
    size = put_head(
        frame, opaque, next_offset, min_offset, max_offset, suggested, group_flag, topic_flag, len(records))
    return PyBytes_FromStringAndSize(frame, size), records


cdef class ReadyStretch:
    cdef readonly QueueCursor queue
    cdef readonly object segment, limits
    cdef readonly int64_t begin, end, looked_at
    cdef readonly double until
    cdef LogCursor log
    cdef object prove
    cdef Limits bounds
    cdef int64_t segment_start

    def __init__(self, LogCursor log not None, QueueCursor queue not None, segment, begin, end, until, looked_at, limits,
                 prove=None):
        self.log, self.queue, self.segment, self.limits, self.prove = log, queue, segment, limits, prove
        self.begin, self.end, self.until, self.looked_at = begin, end, until, looked_at
        self.segment_start = segment.start
        take_limits(&self.bounds, limits)

    cdef bytes find(self, int64_t offset, int64_t most, tag_codes, double now, list views, Span *span):
        """Where the records are that a read gets; None where anything has to be looked at beside them."""
        cdef Py_buffer units
        cdef Proving proving
        cdef Window window
        cdef list held_bits = []
        cdef int64_t at, log_end
        cdef LogCursor log = self.log
        cdef QueueCursor queue = self.queue
        proof = None
        if now >= self.until or log.damaged:
            return None
        view = self.segment.open_view
        if view is None:
            return None
        span.low, span.high = queue.min_offset, queue.max_offset
        if not max(span.low, self.begin) <= offset < span.high:
            return None
        if min(offset + (most if tag_codes is None else self.looked_at), span.high) > self.end:
            return None
        log_end = log.base + log.position
        at = offset * 20 - self.segment_start
        if offset < <int64_t>queue.trusted_from or not log.checked.undisturbed:
            if self.prove is None or at < 0:
                return None
            proof = self.prove(offset, view[at:at + 20])
            window = Window()
            if proof is not None and not take_proof(&proving, proof, window):
                return None
        files = log.files
        views.append(view)
        PyObject_GetBuffer(view, &units, PyBUF_SIMPLE)
        try:
            if not 0 <= at <= units.len:
                return None
            table = find_records(
                <Place>units.buf + at, min(units.len - at, 20 * min(span.high - offset, self.looked_at)), files.segments,
                files.size, log_end, tag_codes, &self.bounds, &proving if proof is not None else NULL, views, held_bits,
                &span.found)
        finally:
            PyBuffer_Release(&units)
        span.following = offset + span.found.scanned
        span.behind = log_end - span.found.last > self.bounds.memory_bound
        return table if span.found.count else None

    def read(self, offset, most, tag_codes, now):
        cdef Span span
        cdef list views = []
        span.found.count = 0
        table = self.find(offset, most, tag_codes, now, views, &span)
        if table is None:
            return None
        records = PyBytes_FromStringAndSize(NULL, span.found.total)
        copy_records(table, &span.found, <uint8_t *>PyBytes_AS_STRING(records))
        return records, span.found.count, span.following, span.low, span.high, bool(span.behind)


cdef class PullCursor:
    cdef readonly object name, topic_name, tag_codes, group, topic, subscription, note
    cdef readonly int64_t most
    cdef readonly bint commits
    cdef readonly ReadyStretch ready
    cdef readonly dict notes, reached
    cdef readonly list counts, queue_counts
    cdef readonly object queue_id

    def __init__(self, name, topic_name, queue_id, most, tag_codes, commits, group, topic, subscription):
        self.name, self.topic_name, self.queue_id, self.most = name, topic_name, queue_id, most
        self.tag_codes, self.commits = tag_codes, commits
        self.group, self.topic, self.subscription = group, topic, subscription

    def forget(self):
        self.ready = self.notes = self.note = self.reached = None

    def found(self, ready, notes, note, reached, counts, queue_counts):
        self.ready, self.notes, self.note, self.reached = ready, notes, note, reached
        self.counts, self.queue_counts = counts, queue_counts


cdef bint count_pull(list counts, int64_t messages, int64_t size) except -1:
    counts[0] += messages
    counts[1] += size
    counts[2] += 1
    return True


cdef class PullRun:
    cdef readonly dict cursors
    cdef dict groups, topics, consumers, resets
    cdef object broadcasting, commit

    def __init__(self, groups, topics, consumers, resets, broadcasting, commit):
        self.groups, self.topics, self.consumers, self.resets = groups, topics, consumers, resets
        self.broadcasting, self.commit, self.cursors = broadcasting, commit, {}

    cpdef bint holds(self, PullCursor cursor) except -1:
        if (self.groups.get(cursor.name) is not cursor.group
                or self.topics.get(cursor.topic_name) is not cursor.topic):
            return False
        online = self.consumers.get(cursor.name)
        if online is not None and online.message_model is self.broadcasting:
            return False
        if cursor.subscription is None:
            return True
        return online is not None and online.subscriptions.get(cursor.topic_name) is cursor.subscription

    cdef bytes reply(self, PullCursor cursor, Pull *pull, double now, bint reads_slaves, int64_t *size):
        """The reply to a pull that goes on; None to any other."""
        cdef char head[1024]
        cdef Span span
        cdef int head_size
        cdef int64_t suggested = 0
        cdef list views = []
        if cursor.ready is None or self.resets or not self.holds(cursor):
            return None
        if cursor.notes is not None and cursor.notes.get(cursor.topic_name) is not cursor.note:
            return None
        table = cursor.ready.find(pull.offset, cursor.most, cursor.tag_codes, now, views, &span)
        if table is None or (cursor.commits and not self.commit(cursor, pull.commit)):
            return None
        size[0] = span.found.total
        if cursor.reached is not None:
            cursor.reached[cursor.queue_id] = span.following
        count_pull(cursor.counts, span.found.count, size[0])
        count_pull(cursor.queue_counts, span.found.count, size[0])
        group = cursor.group
        if reads_slaves:
            suggested = group.which_broker_when_consume_slowly if span.behind else group.broker_id
        head_size = put_head(head, pull.opaque, span.following, span.low, span.high, suggested, group.group_sys_flag,
                             cursor.topic.topic_sys_flag, size[0])
        reply = PyBytes_FromStringAndSize(NULL, head_size + size[0])
        memcpy(PyBytes_AS_STRING(reply), head, head_size)
        copy_records(table, &span.found, <uint8_t *>PyBytes_AS_STRING(reply) + head_size)
        return reply

    cdef bint is_allowed(self, accounts, PullCursor cursor, Place p, Py_ssize_t frame, const Pull *pull) except -1:
        """Whether a pull is signed by an account that may make it."""
        cdef uint8_t content[MOST_SIGNED_OF_PULL]
        if not HAS_SHA1 or pull.sizes[ACCESS_KEY] == 0:
            return False
        account = PyUnicode_DecodeUTF8(<const char *>pull.texts[ACCESS_KEY], pull.sizes[ACCESS_KEY], NULL)
        start = accounts(account, cursor.topic_name, cursor.name)
        return start is not None and is_signed(
            begun(start), p + 8, frame - 8, pull.texts[SIGNATURE], pull.sizes[SIGNATURE], p, 0, content, MOST_SIGNED_OF_PULL)

    def answer(
            self, buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t most_frame, int64_t most_bytes, double now,
            bint reads_slaves, list replies, accounts=None):
        cdef Py_buffer view
        cdef Pull pull
        cdef Py_ssize_t frame
        cdef int64_t served = 0, brought = 0, size = 0
        found = None
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            while brought < most_bytes and 0 <= start and end <= view.len:
                frame = scan_frame(<Place>view.buf + start, end - start, most_frame, &pull)
                if frame == 0:
                    break
                key = key_of(&pull)
                cursor = self.cursors.get(key)
                if (cursor is not None and accounts is not None
                        and not self.is_allowed(accounts, cursor, <Place>view.buf + start, frame, &pull)):
                    break
                reply = None if cursor is None else self.reply(cursor, &pull, now, reads_slaves, &size)
                if reply is None:
                    found = start + frame, key, pull.opaque, pull.offset, pull.commit
                    break
                replies.append(reply)
                start += frame
                served += 1
                brought += size
        finally:
            PyBuffer_Release(&view)
        return start, served, brought, found

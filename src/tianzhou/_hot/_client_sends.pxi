# Included by _compiled.pyx: ordinary sends of a client, from a message to its frame and from replies to results.


from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE

from time import time_ns as _time_ns

from tianzhou._hot import identifiers as _identifiers
from tianzhou.clock import SystemClock
from tianzhou.model import Message, MessageQueue, SendResult, SendStatus

cdef extern from "client_sends.h":
    ctypedef struct Stored "TzStored":
        Place msg_id, transaction, region
        Py_ssize_t msg_id_size, transaction_size, region_size
        int64_t queue_id, queue_offset, opaque
        bint trace_on
    bint tz_scan_stored(Place, Py_ssize_t, Stored *)
    void tz_put_upper(char *, uint64_t, int)
    object tz_new_tuple(object, Py_ssize_t)
    void tz_put_item(object, Py_ssize_t, object)

cdef enum:
    TEXT_ROOM = 64  # bytes of a unique key at most
    NUMBERS = 120  # bytes that the numbers of a header and the marks around them take at most
    FLUSH_BYTES = 262144  # as the pure twin has it

cdef enum:  # attributes of a message
    M_TOPIC, M_BODY, M_TAGS, M_KEYS, M_FLAG, M_PROPERTIES, M_DELAY, M_SHARDING, M_WAIT, MESSAGE_ATTRIBUTES

cdef Py_ssize_t MESSAGE_AT[MESSAGE_ATTRIBUTES]
for _step, _place in enumerate([slot(Message, name) for name in (
        "topic", "body", "tags", "keys", "flag", "properties", "delay_level", "sharding_key", "wait_store_ok")]):
    MESSAGE_AT[_step] = _place

cdef object _SEND_OK = SendStatus.SEND_OK


cdef inline object item(values, Py_ssize_t at):
    """Of a named tuple."""
    if not PyTuple_Check(values) or at >= PyTuple_GET_SIZE(values):
        raise TypeError(f"{values!r} is no tuple of more than {at} values")
    return <object>PyTuple_GET_ITEM(values, at)


cdef class Awaited:
    cdef readonly double deadline_s, timeout_s
    cdef readonly object waiter

    def __init__(self, double deadline_s, waiter, double timeout_s):
        self.deadline_s, self.waiter, self.timeout_s = deadline_s, waiter, timeout_s


cdef class Sent(Awaited):
    cdef public object connection, plan, target, unique_key, properties, body
    cdef public int64_t opaque, born_ms, flag, sys_flag


cdef class SendFrames:
    cdef bytes before, between, behind
    cdef Py_ssize_t fixed

    def __init__(self, str before, str between, str behind):
        self.before, self.between, self.behind = before.encode(), between.encode(), behind.encode()
        self.fixed = len(self.before) + len(self.between) + len(self.behind)

    cdef bytes made(
            self, int64_t opaque, int64_t born_ms, int64_t flag, int64_t sys_flag, properties, unique_key, bytes body):
        """As `frame`; without properties, of the unique key alone."""
        cdef Py_ssize_t size, text_size, body_size = PyBytes_GET_SIZE(body), marks_size = 0
        cdef const char *text = PyUnicode_AsUTF8AndSize(unique_key if properties is None else properties, &text_size)
        cdef uint8_t numbers[NUMBERS]
        cdef uint8_t last[24]
        cdef uint8_t *p = tz_put_number(numbers, sys_flag)
        cdef Py_ssize_t numbers_size, last_size
        memcpy(p, b'","g":"', 7)
        p = tz_put_number(p + 7, born_ms)
        memcpy(p, b'","h":"', 7)
        p = tz_put_number(p + 7, flag)
        memcpy(p, b'","i":"', 7)
        p += 7
        if properties is None:
            memcpy(p, b"UNIQ_KEY\\u0001", 14)
            p += 14
            marks_size = 6
        numbers_size, last_size = p - numbers, tz_put_number(last, opaque) - last
        size = self.fixed + numbers_size + text_size + marks_size + last_size
        frame = PyBytes_FromStringAndSize(NULL, 8 + size + body_size)
        p = <uint8_t *>PyBytes_AS_STRING(frame)
        p = tz_put32(tz_put32(p, <uint32_t>(4 + size + body_size)), <uint32_t>size)
        p = tz_put(p, <PyObject *>self.before)
        memcpy(p, numbers, numbers_size)
        p += numbers_size
        memcpy(p, text, text_size)
        memcpy(p + text_size, b"\\u0002", marks_size)
        p = tz_put(p + text_size + marks_size, <PyObject *>self.between)
        memcpy(p, last, last_size)
        p = tz_put(p + last_size, <PyObject *>self.behind)
        memcpy(p, PyBytes_AS_STRING(body), body_size)
        return frame

    def frame(self, int64_t opaque, int64_t born_ms, int64_t flag, int64_t sys_flag, str properties, bytes body):
        return self.made(opaque, born_ms, flag, sys_flag, properties, None, body)


cdef class OpaqueCounter:
    cdef int64_t following
    cdef public int64_t in_flight, most

    def __init__(self, int32_t first=0):
        self.following, self.in_flight, self.most = first, 0, _identifiers.UNBOUNDED

    cpdef int64_t next(self):
        cdef int64_t value = self.following
        self.following = value + 1 if value < 0x7FFFFFFF else -0x80000000
        return value


cdef class UniqueIdGenerator:
    cdef char text[TEXT_ROOM]
    cdef Py_ssize_t prefix_size
    cdef int64_t month_start, month_end, text_ms
    cdef uint32_t count

    def __init__(self, bytes ip, pid, process_hash):
        prefix = f"{ip.hex().upper()}{pid & 0xFFFF:04X}{process_hash & 0xFFFFFFFF:08X}".encode()
        self.prefix_size = len(prefix)
        if self.prefix_size > TEXT_ROOM - 12:
            raise ValueError(f"an address of {len(ip)} bytes; it has 4 or 16")
        memcpy(self.text, PyBytes_AS_STRING(prefix), self.prefix_size)
        self.month_start = self.month_end = 0
        self.text_ms, self.count = -1, 0

    cpdef str next(self, int64_t now_ms):
        cdef char *p = self.text + self.prefix_size
        if now_ms != self.text_ms:
            if now_ms >= self.month_end:
                self.month_start, self.month_end = _identifiers.local_month(now_ms)
            self.text_ms = now_ms
            tz_put_upper(p, <uint64_t>max(now_ms - self.month_start, 0), 8)
        tz_put_upper(p + 8, self.count, 4)
        self.count = self.count + 1 & 0xFFFF
        return <str>PyUnicode_DecodeUTF8(self.text, self.prefix_size + 12, NULL)


cdef class QuickSends:
    cdef dict plans, connections
    cdef object routes, group, clock, running_loop, properties, pack, loop, new_waiter, monotonic
    cdef OpaqueCounter opaques
    cdef UniqueIdGenerator ids
    cdef bint has_system_clock
    cdef Py_ssize_t compress_over, most
    cdef public bint open

    def __init__(
            self, dict plans, routes, dict connections, group, UniqueIdGenerator ids, clock, running_loop, properties, pack,
            compress_over, most):
        self.plans, self.routes, self.connections, self.group, self.ids = plans, routes, connections, group, ids
        self.clock, self.has_system_clock = clock, type(clock) is SystemClock
        self.running_loop, self.properties, self.pack, self.monotonic = running_loop, properties, pack, group.monotonic
        self.opaques, self.compress_over, self.most = group.opaques, compress_over, most
        self.loop = self.new_waiter = None
        self.open = False

    cdef bint on_its_loop(self) except -1:
        loop = self.running_loop()
        if loop is not self.loop:
            if loop is not self.group.loop:
                return False
            self.loop, self.new_waiter = loop, loop.create_future
        return True

    def begin(self, message, double timeout_ms):
        cdef PyObject *at[MESSAGE_ATTRIBUTES]
        cdef int step, odd = 0
        cdef Py_ssize_t size, gathered
        cdef int64_t flag, sys_flag = 0, now_ms, index
        cdef Sent sent
        cdef SendFrames frames
        cdef list ring
        if type(message) is not Message or not self.open:
            return None
        for step in range(MESSAGE_ATTRIBUTES):
            at[step] = tz_peek(message, MESSAGE_AT[step])
            if at[step] == NULL:
                return None
        if <object>at[M_SHARDING] is not None:
            return None
        topic, body, number = <object>at[M_TOPIC], <object>at[M_BODY], <object>at[M_FLAG]
        if type(topic) is not str or type(body) is not bytes or type(number) is not int:
            return None
        size, flag = PyBytes_GET_SIZE(body), tz_i64(<PyObject *>number, &odd)
        if odd or not 0 < size <= self.most or flag < -0x7FFFFFFFFFFFFFFF:
            return None
        plan = self.plans.get(topic)
        if plan is None or plan.version != self.routes.version:
            return None
        turn, ring = plan.turn, plan.ring
        index = turn.index + 1
        target = ring[index % len(ring)]
        connection = self.connections.get(item(target, 1))
        if (connection is None or connection.closed or self.opaques.in_flight >= self.opaques.most
                or not self.on_its_loop()):
            return None
        now_ms = _time_ns() // 1000000 if self.has_system_clock else self.clock.now_ms()
        unique_key = self.ids.next(now_ms)
        text = None
        if (<object>at[M_PROPERTIES] or <object>at[M_TAGS] or <object>at[M_KEYS] or <object>at[M_DELAY]
                or not <object>at[M_WAIT]):
            text = self.properties(message, unique_key)
            if text is None:
                return None
        if size >= self.compress_over:
            body, sys_flag = self.pack(body)
        turn.index = index
        sent = Sent.__new__(Sent)
        sent.timeout_s = timeout_ms / 1000
        sent.deadline_s, sent.waiter = <double>self.monotonic() + sent.timeout_s, self.new_waiter()
        sent.opaque = self.opaques.next()
        sent.connection, sent.plan, sent.target, sent.unique_key = connection, plan, target, unique_key
        sent.born_ms, sent.flag, sent.sys_flag, sent.properties, sent.body = now_ms, flag, sys_flag, text, body
        frames = item(target, 2).frames
        frame = frames.made(sent.opaque, now_ms, flag, sys_flag, text, unique_key, body)
        if self.opaques.in_flight == 0:  # else the deadlines are watched already
            connection.await_reply(sent.opaque, sent)
        else:
            (<dict>connection._awaited)[sent.opaque] = sent
            self.opaques.in_flight += 1
        gathered = connection._out_size + PyBytes_GET_SIZE(frame)
        if gathered < FLUSH_BYTES and connection._flush_scheduled:
            (<list>connection._out).append(frame)
            connection._out_size = gathered
        else:
            connection.send_request(frame)
        return sent


cdef bytes _region_read = b""
cdef object _region = ""


cdef object ascii(Place p, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(<const char *>p, size, NULL)


cdef object result_of(Stored *stored, Sent sent):
    global _region_read, _region
    queue = item(sent.target, 0)
    if <int64_t>item(queue, 2) != stored.queue_id:
        queue = MessageQueue(item(queue, 0), item(queue, 1), stored.queue_id)
    transaction = region = None
    if stored.transaction != NULL:
        key = <object>sent.unique_key
        if (tz_ascii(key) and len(<str>key) == stored.transaction_size
                and memcmp(PyUnicode_AsUTF8AndSize(key, NULL), stored.transaction, stored.transaction_size) == 0):
            transaction = key
        else:
            transaction = ascii(stored.transaction, stored.transaction_size)
    if stored.region != NULL:
        if (PyBytes_GET_SIZE(_region_read) != stored.region_size
                or memcmp(PyBytes_AS_STRING(_region_read), stored.region, stored.region_size) != 0):
            _region = ascii(stored.region, stored.region_size)
            _region_read = PyBytes_FromStringAndSize(<const char *>stored.region, stored.region_size)
        region = _region
    result = tz_new_tuple(SendResult, 8)
    tz_put_item(result, 0, _SEND_OK)
    tz_put_item(result, 1, sent.unique_key)
    tz_put_item(result, 2, ascii(stored.msg_id, stored.msg_id_size))
    tz_put_item(result, 3, queue)
    tz_put_item(result, 4, stored.queue_offset)
    tz_put_item(result, 5, transaction)
    tz_put_item(result, 6, region)
    tz_put_item(result, 7, stored.trace_on)
    return result


def take_results(dict awaited, buffer, Py_ssize_t start, Py_ssize_t end):
    cdef Py_buffer view
    cdef Place p
    cdef int64_t length
    cdef uint32_t word
    cdef Stored stored
    cdef Py_ssize_t count = 0
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while 0 <= start and end - start >= 20 and end <= view.len:
            p = <Place>view.buf + start
            length, word = <int32_t>tz_get32(p), tz_get32(p + 4)
            if length + 4 > end - start or word > 0xFFFFFF or word + 4 > length or not tz_scan_stored(p + 8, word, &stored):
                break
            opaque = stored.opaque
            sent = awaited.pop(opaque, None)
            if type(sent) is not Sent:
                if sent is not None:
                    awaited[opaque] = sent
                break
            count += 1
            start += 4 + length
            waiter = (<Sent>sent).waiter
            if not waiter.done():
                waiter.set_result(result_of(&stored, <Sent>sent))
    finally:
        PyBuffer_Release(&view)
    return start, count

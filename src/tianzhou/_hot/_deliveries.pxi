# Included by _compiled.pyx: messages of a pull, from records to their handlers.

from tianzhou._hot.deliveries import Unfinished

cdef extern from "Python.h":
    object PyType_GenericAlloc(type, Py_ssize_t)
    bint PyCoro_CheckExact(object)
    ctypedef enum PySendResult:
        PYGEN_RETURN, PYGEN_ERROR, PYGEN_NEXT
    PySendResult PyIter_Send(PyObject *, PyObject *, PyObject **)
    void Py_DECREF(PyObject *)

cdef enum:  # attributes of a message that was delivered
    D_TOPIC, D_BODY, D_BROKER, D_OFFSET, D_FLAGS, D_HEAD, D_PROPERTIES, D_MORE, DELIVERED_ATTRIBUTES
    PACKED = 1  # of system flags

_DELIVERED = ("topic", "body", "broker_name", "queue_offset", "sys_flag", "head", "raw_properties", "more_properties")


cdef class Delivered:
    """A class of messages, and where they keep their attributes."""
    cdef type kind
    cdef Py_ssize_t at[DELIVERED_ATTRIBUTES]

    def __cinit__(self, type kind, *_):
        cdef int step
        self.kind = kind
        for step, name in enumerate(_DELIVERED):
            self.at[step] = slot(kind, name)


cdef class MessageReader(Delivered):
    def read(self, bytes data, Py_ssize_t at, broker_name, added, list messages):
        cdef Place start = <Place>PyBytes_AS_STRING(data), p, rest, name = NULL
        cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
        cdef int64_t size, body_size, topic_size, properties_size, name_size = -1, flags
        topic = ""
        while end - at >= OVERHEAD and at >= 0:
            p = start + at
            size, body_size, flags = <int32_t>tz_get32(p), <int32_t>tz_get32(p + AT_BODY_SIZE), tz_get32(p + AT_SYS_FLAG)
            if (<int32_t>tz_get32(p + AT_MAGIC) != MAGIC_V1 or flags & (PACKED | INNER_BATCH_BITS | HOST_BITS)
                    or size > end - at or not 0 <= body_size < size - HEAD_SIZE):
                break
            rest = p + HEAD_SIZE + body_size
            topic_size = rest[0]
            properties_size = size - HEAD_SIZE - body_size - topic_size - 3
            if not 0 <= properties_size <= 0x7FFF or rest[topic_size + 1] << 8 | rest[topic_size + 2] != properties_size:
                break
            if topic_size != name_size or memcmp(rest + 1, name, topic_size) != 0:
                name, name_size = rest + 1, topic_size
                topic = PyUnicode_DecodeUTF8(<const char *>name, topic_size, "replace")
            message = PyType_GenericAlloc(self.kind, 0)
            tz_set(message, self.at[D_TOPIC], topic)
            tz_set(message, self.at[D_BODY], PyBytes_FromStringAndSize(<const char *>p + HEAD_SIZE, body_size))
            tz_set(message, self.at[D_BROKER], broker_name)
            tz_set(message, self.at[D_OFFSET], <int64_t>tz_get64(p + AT_QUEUE_OFFSET))
            tz_set(message, self.at[D_FLAGS], <int32_t>flags)
            tz_set(message, self.at[D_HEAD], PyBytes_FromStringAndSize(<const char *>p, HEAD_SIZE))
            tz_set(message, self.at[D_PROPERTIES],
                   PyBytes_FromStringAndSize(<const char *>rest + topic_size + 3, properties_size))
            tz_set(message, self.at[D_MORE], added)
            messages.append(message)
            at += size
        return at


cdef class HandlerCalls(Delivered):
    cdef object monotonic, now_ms, pair, stamp, more, stamped
    cdef double stale_s
    calls = True

    def __init__(self, type kind, monotonic, now_ms, pair):
        self.monotonic, self.now_ms, self.pair = monotonic, now_ms, pair
        self.stamp = self.stamped = self.more = None
        self.stale_s = -1e300

    cdef bint refresh(self, pq, double now_s) except -1:
        """Look at the time of day again, when it can have changed."""
        if now_s >= self.stale_s:
            self.stale_s = now_s + 0.001
            present_ms = self.now_ms()
            self.stamp, self.more = self.pair(present_ms), None
            pq.last_consume_ms = present_ms
        return True

    def run(self, line, lot, handler, rates, slot, Py_ssize_t most):
        cdef list rest = lot.rest, done = []
        cdef Py_ssize_t calls = 0
        cdef double began_s = self.monotonic(), first_s = began_s, ended_s
        cdef PyObject *found
        cdef PyObject *answer
        cdef PySendResult how
        pq = lot.pq
        topic = None
        unfinished = None
        self.stale_s = -1e300  # the time of day may have been set, and the queue is another one
        pq.at_work += 1
        try:
            while calls < most and rest and unfinished is None:
                message = rest[len(rest) - 1]
                if type(message) is not self.kind:
                    break
                found = tz_peek(message, self.at[D_PROPERTIES])
                if found == NULL or <object>found is None or tz_peek(message, self.at[D_MORE]) == NULL:
                    break
                found = tz_peek(message, self.at[D_TOPIC])
                if topic is None:
                    topic = <object>found
                elif <object>found is not topic:
                    break
                del rest[len(rest) - 1]
                if not rest:
                    line.popleft()
                self.refresh(pq, began_s)
                more = <object>tz_peek(message, self.at[D_MORE])
                if more is not self.more:  # the same for all of a pull
                    self.more, self.stamped = more, more + self.stamp
                tz_set(message, self.at[D_MORE], self.stamped)
                calls += 1
                answer = NULL
                try:
                    coroutine = handler(message)
                    if PyCoro_CheckExact(coroutine):
                        how = PyIter_Send(<PyObject *>coroutine, <PyObject *>None, &answer)
                        if how == PYGEN_ERROR:
                            raised()
                    else:
                        how = PYGEN_NEXT
                except BaseException as error:
                    unfinished = Unfinished(message, began_s, None, None, error)
                    break
                if how == PYGEN_NEXT:
                    wanted = None if answer == NULL else owned(answer)
                    unfinished = Unfinished(message, began_s, coroutine, wanted, None)
                    break
                value = owned(answer)
                if value is not None:
                    unfinished = Unfinished(message, began_s, None, value, None)
                    break
                ended_s = self.monotonic()
                if pq.dropped:
                    began_s = ended_s
                    break
                done.append(<object>tz_peek(message, self.at[D_OFFSET]))
                began_s = ended_s
                if pq.leaving or slot.retiring or not (rest and line and line[0] is lot):
                    break
        finally:
            pq.at_work -= 1
            finished = calls if unfinished is None else calls - 1
            rates.calls += finished
            rates.call_ms += (began_s - first_s) * 1000
            if done:
                rates.consumed += len(done)
                pq.finish_run(done)
            if pq.rest is not None:
                pq.look_for_rest()
        return calls, unfinished


cdef object owned(PyObject *found):
    """A new reference as an object that is counted."""
    result = <object>found
    Py_DECREF(found)
    return result


cdef int raised() except -1:
    """Raise what a call has set."""
    return -1

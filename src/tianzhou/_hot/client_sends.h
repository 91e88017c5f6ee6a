/* Ordinary replies to sends, read without a reader of all of JSON, and numbers as text (see _client_sends.pxi). */
#ifndef TIANZHOU_CLIENT_SENDS_H
#define TIANZHOU_CLIENT_SENDS_H

#include "sends.h"

typedef struct { /* what a reply says of a message that was stored */
    const uint8_t *msg_id, *transaction, *region; /* the last two NULL where it does not say */
    Py_ssize_t msg_id_size, transaction_size, region_size;
    int64_t queue_id, queue_offset, opaque;
    int trace_on;
} TzStored;

/* Moves `p` behind a text that has to stand there. */
static inline int tz_skip(const uint8_t **p, const uint8_t *end, const char *text, Py_ssize_t size) {
    if (end - *p < size || memcmp(*p, text, size) != 0) return 0;
    *p += size;
    return 1;
}
#define TZ_SKIP(p, end, text) tz_skip(p, end, text, sizeof(text) - 1)
#define TZ_NAMED(text) (size == sizeof(text) - 1 && memcmp(name, text, sizeof(text) - 1) == 0)
#define TZ_IS_INT32(value) ((value) == (int32_t)(value))

/* Reads the header of an ordinary reply to a send; 0 when it is anything else. */
static int tz_scan_stored(const uint8_t *p, Py_ssize_t length, TzStored *found) {
    const uint8_t *end = p + length, *name, *value, *behind;
    Py_ssize_t size;
    int seen = 0, bit;
    int64_t version;
    if (!TZ_SKIP(&p, end, "{\"code\":0,\"extFields\":{")) return 0;
    found->transaction = found->region = NULL;
    found->transaction_size = found->region_size = 0;
    found->trace_on = 1;
    for (;;) {
        if (!TZ_SKIP(&p, end, "\"")) return 0;
        name = p;
        if ((p = tz_text_end(p, end, 0)) == NULL) return 0;
        size = p - name;
        if (!TZ_SKIP(&p, end, "\":\"")) return 0;
        value = p;
        if ((p = tz_text_end(p, end, 0)) == NULL) return 0;
        behind = p++;
        if (TZ_NAMED("queueId")) {
            bit = 1;
            if (tz_number(value, behind, INT32_MIN, INT32_MAX, &found->queue_id) != behind) return 0;
        } else if (TZ_NAMED("msgId")) {
            bit = 2;
            found->msg_id = value;
            found->msg_id_size = behind - value;
        } else if (TZ_NAMED("queueOffset")) {
            bit = 4;
            if (tz_number(value, behind, INT64_MIN, INT64_MAX, &found->queue_offset) != behind) return 0;
        } else if (TZ_NAMED("transactionId")) {
            bit = 8;
            found->transaction = value;
            found->transaction_size = behind - value;
        } else if (TZ_NAMED("MSG_REGION")) {
            bit = 16;
            found->region = value;
            found->region_size = behind - value;
        } else if (TZ_NAMED("TRACE_ON")) {
            bit = 32;
            found->trace_on = behind - value == 4 && memcmp(value, "true", 4) == 0;
            if (!found->trace_on && (behind - value != 5 || memcmp(value, "false", 5) != 0)) return 0;
        } else {
            return 0;
        }
        if (seen & bit) return 0;
        seen |= bit;
        if (p < end && *p == '}') break;
        if (!TZ_SKIP(&p, end, ",")) return 0;
    }
    if ((seen & 7) != 7 || !TZ_SKIP(&p, end, "},\"flag\":1,\"language\":\"") || (p = tz_text_end(p, end, 0)) == NULL) return 0;
    if (!TZ_SKIP(&p, end, "\",\"opaque\":") || (p = tz_number(p, end, INT64_MIN, INT64_MAX, &found->opaque)) == NULL) return 0;
    if (!TZ_IS_INT32(found->opaque) || !TZ_SKIP(&p, end, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":")) return 0;
    if ((p = tz_number(p, end, INT64_MIN, INT64_MAX, &version)) == NULL || !TZ_IS_INT32(version)) return 0;
    return p + 1 == end && *p == '}';
}

/* Writes the last so many upper-case hex digits of a number. */
static inline void tz_put_upper(char *p, uint64_t value, int digits) {
    while (digits) {
        p[--digits] = "0123456789ABCDEF"[value & 15];
        value >>= 4;
    }
}

/* A new tuple of a kind with named elements, to be filled. */
static inline PyObject *tz_new_tuple(PyObject *kind, Py_ssize_t size) {
    return ((PyTypeObject *)kind)->tp_alloc((PyTypeObject *)kind, size);
}
static inline void tz_put_item(PyObject *tuple, Py_ssize_t at, PyObject *item) {
    Py_INCREF(item);
    PyTuple_SET_ITEM(tuple, at, item);
}

#endif

/* Headers of ordinary sends, scanned without making objects of them, and the numbers of their replies (wire.md 4.1, 4.2, 4.6).

A header that is spelled in any other way than clients spell it (spaces, escapes but in properties, fields that are
unknown or there twice, numbers with zeros in front) is not scanned: whoever decodes JSON as a whole knows what it says. */
#ifndef TIANZHOU_SENDS_H
#define TIANZHOU_SENDS_H

#include <stdint.h>
#include <string.h>
#include "slots.h"

typedef struct {
    const uint8_t *topic, *properties, *access_key, *signature; /* within the header; properties with their escapes */
    Py_ssize_t topic_size, properties_size, access_key_size, signature_size; /* 0 where it names no account */
    int64_t queue_id, sys_flag, born, flag, reconsumed; /* of the message */
    int64_t code, opaque, command_flag; /* of the request */
    int batch;
} TzSend;

/* Scans the fields of a header from behind their opening brace into a struct; where they end, or NULL. */
typedef const uint8_t *(*TzFields)(const uint8_t *, const uint8_t *, void *);

/* What a field of a send is, as the bit by which it is noted that it has come. */
enum {
    TZ_GROUP = 1, TZ_TOPIC = 2, TZ_DEFAULT_TOPIC = 4, TZ_DEFAULT_QUEUES = 8, TZ_QUEUE_ID = 16, TZ_SYS_FLAG = 32, TZ_BORN = 64,
    TZ_FLAG = 128, TZ_PROPERTIES = 256, TZ_RECONSUMED = 512, TZ_UNIT = 1024, TZ_MOST_RECONSUMED = 2048, TZ_BATCH = 4096,
    TZ_BROKER = 8192, TZ_ACCESS_KEY = 16384, TZ_SIGNATURE = 32768, TZ_NEEDED = 511
};

/* The field of a name, 0 for none; one letter in a request with short names. */
static inline int tz_send_field(const uint8_t *name, Py_ssize_t size, int is_short) {
    static const struct { const char *name; int field; } names[] = {
        {"producerGroup", TZ_GROUP}, {"topic", TZ_TOPIC}, {"defaultTopic", TZ_DEFAULT_TOPIC},
        {"defaultTopicQueueNums", TZ_DEFAULT_QUEUES}, {"queueId", TZ_QUEUE_ID}, {"sysFlag", TZ_SYS_FLAG},
        {"bornTimestamp", TZ_BORN}, {"flag", TZ_FLAG}, {"properties", TZ_PROPERTIES}, {"reconsumeTimes", TZ_RECONSUMED},
        {"unitMode", TZ_UNIT}, {"maxReconsumeTimes", TZ_MOST_RECONSUMED}, {"batch", TZ_BATCH}, {"bname", TZ_BROKER},
    };
    static const int letters[] = {
        TZ_GROUP, TZ_TOPIC, TZ_DEFAULT_TOPIC, TZ_DEFAULT_QUEUES, TZ_QUEUE_ID, TZ_SYS_FLAG, TZ_BORN, TZ_FLAG, TZ_PROPERTIES,
        TZ_RECONSUMED, TZ_UNIT, TZ_MOST_RECONSUMED, TZ_BATCH, TZ_BROKER,
    };
    size_t i;
    if (size == 9 && memcmp(name, "AccessKey", 9) == 0) return TZ_ACCESS_KEY;
    if (size == 9 && memcmp(name, "Signature", 9) == 0) return TZ_SIGNATURE;
    if (is_short) return size == 1 && *name >= 'a' && *name <= 'n' ? letters[*name - 'a'] : 0;
    for (i = 0; i < sizeof(names) / sizeof(*names); i++)
        if ((Py_ssize_t)strlen(names[i].name) == size && memcmp(names[i].name, name, size) == 0) return names[i].field;
    return 0;
}

/* A number as it is written in decimal, without needless zeros, from `p` on; where it ends, or NULL. */
static inline const uint8_t *tz_number(const uint8_t *p, const uint8_t *end, int64_t least, int64_t most, int64_t *value) {
    int negative = p < end && *p == '-';
    const uint8_t *first = p += negative;
    uint64_t found = 0;
    while (p < end && *p >= '0' && *p <= '9') {
        if (p - first == 19) return NULL;
        found = found * 10 + (*p++ - '0');
    }
    if (p == first || (*first == '0' && (p - first > 1 || negative)) || found > (uint64_t)INT64_MAX) return NULL;
    *value = negative ? -(int64_t)found : (int64_t)found;
    return *value >= least && *value <= most ? p : NULL;
}

/* Where a text ends that begins at `p`, at its quotation mark: printable ASCII, and escapes if they may be; or NULL. */
static inline const uint8_t *tz_text_end(const uint8_t *p, const uint8_t *end, int escapes) {
    for (; p < end && *p != '"'; p++) {
        if (*p < ' ' || *p > 127) return NULL;
        if (*p == '\\' && (!escapes || ++p == end)) return NULL;
    }
    return p < end ? p : NULL;
}

/* The value of a field, whose text begins at `p`; where it ends, or NULL. */
static inline const uint8_t *tz_send_value(const uint8_t *p, const uint8_t *end, int field, TzSend *send) {
    int64_t unused;
    const uint8_t *stop;
    switch (field) {
    case TZ_QUEUE_ID: return tz_number(p, end, INT32_MIN, INT32_MAX, &send->queue_id);
    case TZ_SYS_FLAG: return tz_number(p, end, INT32_MIN, INT32_MAX, &send->sys_flag);
    case TZ_BORN: return tz_number(p, end, INT64_MIN, INT64_MAX, &send->born);
    case TZ_FLAG: return tz_number(p, end, INT32_MIN, INT32_MAX, &send->flag);
    case TZ_RECONSUMED: return tz_number(p, end, INT32_MIN, INT32_MAX, &send->reconsumed);
    case TZ_DEFAULT_QUEUES: case TZ_MOST_RECONSUMED: return tz_number(p, end, INT32_MIN, INT32_MAX, &unused);
    }
    stop = tz_text_end(p, end, field == TZ_PROPERTIES);
    if (stop == NULL) return NULL;
    switch (field) {
    case TZ_TOPIC: send->topic = p; send->topic_size = stop - p; break;
    case TZ_PROPERTIES: send->properties = p; send->properties_size = stop - p; break;
    case TZ_ACCESS_KEY: send->access_key = p; send->access_key_size = stop - p; break;
    case TZ_SIGNATURE: send->signature = p; send->signature_size = stop - p; break;
    case TZ_BATCH: case TZ_UNIT:
        if (!(stop - p == 5 && memcmp(p, "false", 5) == 0) && !(stop - p == 4 && memcmp(p, "true", 4) == 0)) return NULL;
        if (field == TZ_BATCH) send->batch = stop - p == 4;
        break;
    }
    return stop;
}

/* The fields of a send, behind their opening brace; where they end, behind the closing one, or NULL. */
static inline const uint8_t *tz_send_fields(const uint8_t *p, const uint8_t *end, void *into) {
    TzSend *send = into;
    const uint8_t *name;
    int field, seen = 0, is_short = send->code != 10;
    for (;; p++) {
        if (p >= end || *p++ != '"') return NULL;
        name = p;
        p = memchr(p, '"', end - p);
        if (p == NULL || end - p < 4 || p[1] != ':' || p[2] != '"') return NULL;
        field = tz_send_field(name, p - name, is_short);
        if (field == 0 || seen & field) return NULL;
        seen |= field;
        p = tz_send_value(p + 3, end, field, send);
        if (p == NULL || end - p < 2 || *p++ != '"') return NULL;
        if (*p == '}') return (seen & TZ_NEEDED) == TZ_NEEDED ? p + 1 : NULL;
        if (*p != ',') return NULL;
    }
}

/* Scans a JSON header behind its code; `fields` scans the values of `extFields` into `into`. 0 when it is spelled otherwise. */
static inline int tz_scan_header(const uint8_t *p, const uint8_t *end, TzFields fields, void *into, int64_t *flag, int64_t *opaque) {
    static const struct { const char *name; int key; } keys[] = {
        {"extFields", 1}, {"flag", 2}, {"language", 4}, {"opaque", 8}, {"serializeTypeCurrentRPC", 16}, {"version", 32},
    };
    const uint8_t *name;
    int key, seen = 0;
    int64_t unused;
    size_t i;
    for (*flag = *opaque = 0;; p++) {
        if (p >= end || *p++ != '"') return 0;
        name = p;
        p = memchr(p, '"', end - p);
        if (p == NULL || end - p < 3 || p[1] != ':') return 0;
        for (key = 0, i = 0; i < sizeof(keys) / sizeof(*keys); i++)
            if ((Py_ssize_t)strlen(keys[i].name) == p - name && memcmp(keys[i].name, name, p - name) == 0) key = keys[i].key;
        if (key == 0 || seen & key) return 0;
        seen |= key;
        p += 2;
        switch (key) {
        case 1: p = *p == '{' ? fields(p + 1, end, into) : NULL; break;
        case 2: p = tz_number(p, end, 0, INT32_MAX, flag); break;
        case 8: p = tz_number(p, end, INT32_MIN, INT32_MAX, opaque); break;
        case 32: p = tz_number(p, end, INT32_MIN, INT32_MAX, &unused); break;
        default:
            p = *p == '"' ? tz_text_end(p + 1, end, 0) : NULL;
            if (p != NULL) p++;
        }
        if (p == NULL || p >= end) return 0;
        if (*p == '}') return p + 1 == end && seen & 1;
        if (*p != ',') return 0;
    }
}

/* Scans the JSON header of an ordinary send, code 310, 320 or 10; 0 when it is none, or one that takes a reader of all of JSON. */
static int tz_scan_send(const uint8_t *p, Py_ssize_t size, TzSend *send) {
    static const struct { const char *text; int code; } codes[] = {{"{\"code\":310,", 310}, {"{\"code\":320,", 320}, {"{\"code\":10,", 10}};
    size_t i, length = 0;
    if (size < 16) return 0;
    for (i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
        length = strlen(codes[i].text);
        if (memcmp(p, codes[i].text, length) == 0) break;
    }
    if (i == sizeof(codes) / sizeof(*codes)) return 0;
    send->code = codes[i].code;
    send->reconsumed = send->batch = 0;
    send->access_key_size = send->signature_size = 0;
    return tz_scan_header(p + length, p + size, tz_send_fields, send, &send->command_flag, &send->opaque);
}

/* Writes a property string without its escapes; how many bytes these are, or -1 without room or with what is no ASCII. */
static inline Py_ssize_t tz_unescape(const uint8_t *p, Py_ssize_t size, uint8_t *out, Py_ssize_t room) {
    const uint8_t *end = p + size;
    uint8_t *to = out, *stop = out + room;
    int c;
    while (p < end) {
        if (to == stop) return -1;
        c = *p++;
        if (c == '\\' && (c = tz_escape(&p, end)) <= 0) return -1;
        *to++ = (uint8_t)c;
    }
    return to - out;
}

/* Whether a text has letters and digits alone. */
static inline int tz_alnum(const uint8_t *p, Py_ssize_t size) {
    const uint8_t *end = p + size;
    for (; p < end; p++)
        if (!((*p >= '0' && *p <= '9') || ((*p | 32) >= 'a' && (*p | 32) <= 'z'))) return 0;
    return 1;
}

/* Writes a number in decimal; behind it. */
static inline uint8_t *tz_put_number(uint8_t *p, int64_t value) {
    uint8_t digits[20];
    int count = 0;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    if (value < 0) *p++ = '-';
    do digits[count++] = (uint8_t)('0' + left % 10);
    while ((left /= 10) != 0);
    while (count) *p++ = digits[--count];
    return p;
}

/* Writes a number as sixteen capital hexadecimal digits; behind them. */
static inline uint8_t *tz_put_hex(uint8_t *p, uint64_t value) {
    int shift;
    for (shift = 60; shift >= 0; shift -= 4) *p++ = (uint8_t)"0123456789ABCDEF"[value >> shift & 15];
    return p;
}

#endif

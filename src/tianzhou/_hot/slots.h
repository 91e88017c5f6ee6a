/* What the compiled hot functions need of C: slots of Python objects, whole numbers, big-endian bytes, and what is made of these alone. */
#ifndef TIANZHOU_SLOTS_H
#define TIANZHOU_SLOTS_H

#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include "layout.h"
#ifndef TIANZHOU_SOURCE
#define TIANZHOU_SOURCE ""
#endif
/* Where in its object a slot is; -1 when it is none that holds any object. */
static Py_ssize_t tz_offset(PyObject *descriptor) {
    PyMemberDef *member;
    if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
    member = ((PyMemberDescrObject *)descriptor)->d_member;
    return member->type == T_OBJECT_EX ? (Py_ssize_t)member->offset : -1;
}
#define TZ_SLOT(o, at) (*(PyObject **)((char *)(o) + (at)))
#define tz_peek(o, at) TZ_SLOT(o, at)
static inline void tz_set(PyObject *o, Py_ssize_t at, PyObject *value) {
    PyObject *old = TZ_SLOT(o, at);
    Py_INCREF(value);
    TZ_SLOT(o, at) = value;
    Py_XDECREF(old);
}
/* A whole number of 64 bits, or of 32; anything else raises the flag. */
static inline int64_t tz_i64(PyObject *value, int *odd) {
    int overflow = 0;
    int64_t found = 0;
    if (value != NULL && PyLong_Check(value)) found = PyLong_AsLongLongAndOverflow(value, &overflow);
    else overflow = 1;
    *odd |= overflow;
    return found;
}
static inline int64_t tz_i32(PyObject *value, int *odd) {
    int64_t found = tz_i64(value, odd);
    *odd |= found != (int32_t)found;
    return found;
}
static inline uint32_t tz_get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint64_t tz_get64(const uint8_t *p) { return (uint64_t)tz_get32(p) << 32 | tz_get32(p + 4); }
static inline uint8_t *tz_put32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 24); p[1] = (uint8_t)(v >> 16); p[2] = (uint8_t)(v >> 8); p[3] = (uint8_t)v;
    return p + 4;
}
static inline uint8_t *tz_put64(uint8_t *p, uint64_t v) { return tz_put32(tz_put32(p, v >> 32), (uint32_t)v); }
static inline uint8_t *tz_put(uint8_t *p, PyObject *bytes) {
    memcpy(p, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes));
    return p + PyBytes_GET_SIZE(bytes);
}

/* Whether all is ASCII without zeros. */
static inline int tz_plain(const uint8_t *p, Py_ssize_t size) {
    uint64_t word, all = 0;
    Py_ssize_t at = 0;
    for (; at + 8 <= size; at += 8) {
        memcpy(&word, p + at, 8);
        all |= word;
    }
    for (; at < size; at++) all |= p[at];
    return (all & 0x8080808080808080U) == 0 && memchr(p, 0, size) == NULL;
}

/* Java's hash of a text, going on from that of what stands before it. */
static inline uint32_t tz_hash(uint32_t value, const uint8_t *text, Py_ssize_t size) {
    Py_ssize_t at;
    for (at = 0; at < size; at++) value = 31 * value + text[at];
    return value;
}

/* Whether a record of this size and place begins here. */
static inline int tz_is_record(const uint8_t *p, int32_t size, int64_t place) {
    int32_t magic = (int32_t)tz_get32(p + TZ_AT_MAGIC);
    return (int32_t)tz_get32(p) == size && (int64_t)tz_get64(p + TZ_AT_PHYSICAL_OFFSET) == place
        && (magic == TZ_MAGIC_V1 || magic == TZ_MAGIC_V2);
}

/* A unit of a consume queue (store.md 5.1). */
static inline void tz_put_unit(uint8_t *p, int64_t place, int64_t size, int64_t tags) {
    tz_put64(tz_put32(tz_put64(p, (uint64_t)place), (uint32_t)size), (uint64_t)tags);
}

/* Keeps the compiler from moving what stands before it behind it: a process may be killed between any two writes. */
static inline void tz_fence(void) {
#if defined(__GNUC__) || defined(__clang__)
    __asm__ __volatile__("" ::: "memory");
#endif
}

#define TZ_MOST_ENTRIES 128
typedef struct { /* entries of an index: hashes of keys, and where the records begin that have them */
    int count;
    uint32_t hashes[TZ_MOST_ENTRIES];
    int64_t places[TZ_MOST_ENTRIES];
} TzEntries;

/* Adds a key, or several with spaces between them; `head` is the hash of what stands before each. 0 without room. */
static inline int tz_add_keys(
    TzEntries *entries, uint32_t head, const uint8_t *p, Py_ssize_t size, int several, int64_t place) {
    const uint8_t *end = p + size, *upto;
    uint32_t hash;
    for (; p < end; p = upto + 1) {
        upto = several ? memchr(p, ' ', end - p) : end;
        if (upto == NULL) upto = end;
        if (upto == p) continue;
        if (entries->count == TZ_MOST_ENTRIES) return 0;
        hash = tz_hash(head, p, upto - p);
        entries->hashes[entries->count] = hash < 0x80000000U ? hash : (0 - hash) & 0x7FFFFFFF;
        entries->places[entries->count++] = place;
    }
    return 1;
}

/* Writes the `number`-th of the entries as the `at`-th of an index file (store.md 8.2); whether its slot was free. */
static inline int tz_put_entry(
    uint8_t *file, int64_t slot, int64_t entry, const TzEntries *entries, int number, int64_t seconds, int64_t at) {
    int32_t previous = (int32_t)tz_get32(file + slot);
    int is_free = previous <= 0 || previous > at;
    uint8_t *p = tz_put64(tz_put32(file + entry, entries->hashes[number]), (uint64_t)entries->places[number]);
    tz_put32(tz_put32(p, (uint32_t)seconds), is_free ? 0 : (uint32_t)previous);
    tz_fence(); /* a slot that is on the disk says that its entry is whole */
    tz_put32(file + slot, (uint32_t)at);
    return is_free;
}

static inline int tz_ascii(PyObject *o) { return PyUnicode_CheckExact(o) && PyUnicode_IS_COMPACT_ASCII(o); }

/* Where a text begins within another; NULL when it is not in it. */
static inline const uint8_t *tz_find(const uint8_t *p, Py_ssize_t size, const char *text, Py_ssize_t length) {
    const uint8_t *last = p + size - length;
    for (; p <= last; p++) {
        p = memchr(p, text[0], last - p + 1);
        if (p == NULL) return NULL;
        if (memcmp(p, text, length) == 0) return p;
    }
    return NULL;
}

#define TZ_MOST_FIELDS 32

/* What an escape in a JSON text stands for, which `p` is moved behind; -1 for those that are no ASCII character. */
static inline int tz_escape(const uint8_t **p, const uint8_t *end) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const uint8_t *q = *p;
    const char *which;
    int value = 0, digit, i;
    if (q == end) return -1;
    if (*q != 'u') {
        which = *q ? strchr(from, *q) : NULL;
        *p = q + 1;
        return which == NULL ? -1 : to[which - from];
    }
    if (end - q < 5) return -1;
    for (i = 1; i < 5; i++) {
        digit = q[i] >= '0' && q[i] <= '9' ? q[i] - '0' : (q[i] | 32) >= 'a' && (q[i] | 32) <= 'f' ? (q[i] | 32) - 'a' + 10 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    *p = q + 5;
    return value < 128 ? value : -1;
}

/* Writes the values of the fields of a request's JSON header, but for its signature, in the order of their names; how
   many bytes these are, or -1 where that takes a reader of all of JSON. Of two fields with one name, or two objects of
   fields, that reader knows which one counts. */
static Py_ssize_t tz_signed(const uint8_t *header, Py_ssize_t size, uint8_t *out, Py_ssize_t room) {
    struct { const uint8_t *name, *value; Py_ssize_t length, size; } fields[TZ_MOST_FIELDS], one;
    const uint8_t *p = header, *end = header + size, *q;
    uint8_t *to = out;
    int count = 0, i, order, c;
    p = tz_find(header, size < 32 ? size : 32, ",\"extFields\":{", 14);
    if (p == NULL) return -1;
    for (p += 14;; p++) {
        if (p >= end || *p++ != '"') return -1;
        one.name = p;
        p = memchr(p, '"', end - p);
        if (p == NULL || end - p < 4) return -1;
        one.length = p - one.name;
        if (memchr(one.name, '\\', one.length) != NULL || p[1] != ':' || p[2] != '"') return -1;
        for (one.value = p += 3; p < end && *p != '"'; p++) {
            if (*p != '\\') continue;
            p++;
            if (p == end) return -1;
        }
        if (end - p < 2) return -1;
        one.size = p++ - one.value;
        for (i = count; i > 0; i--) {
            order = memcmp(fields[i - 1].name, one.name, fields[i - 1].length < one.length ? fields[i - 1].length : one.length);
            if (order == 0 && fields[i - 1].length == one.length) return -1;
            if (order < 0 || (order == 0 && fields[i - 1].length < one.length)) break;
            fields[i] = fields[i - 1];
        }
        fields[i] = one;
        if (*p == '}') { count++; break; }
        if (*p != ',' || ++count == TZ_MOST_FIELDS) return -1;
    }
    if (memchr(p, '\\', end - p) != NULL || tz_find(p, end - p, "\"extFields\"", 11) != NULL) return -1;
    for (i = 0; i < count; i++) {
        if (fields[i].length == 9 && memcmp(fields[i].name, "Signature", 9) == 0) continue;
        if (fields[i].size > room - (to - out)) return -1;
        for (p = fields[i].value, q = p + fields[i].size; p < q;) {
            c = *p++;
            if (c == '\\' && (c = tz_escape(&p, q)) < 0) return -1;
            *to++ = (uint8_t)c;
        }
    }
    return to - out;
}

#endif

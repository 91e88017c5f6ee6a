/* What the compiled hot functions need of C: slots of Python objects, whole numbers, big-endian bytes. */
#ifndef TIANZHOU_SLOTS_H
#define TIANZHOU_SLOTS_H

#include <Python.h>
#include <structmember.h>
#include <stdint.h>
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

/* Keeps the compiler from moving what stands before it behind it: a process may be killed between any two writes. */
static inline void tz_fence(void) {
#if defined(__GNUC__) || defined(__clang__)
    __asm__ __volatile__("" ::: "memory");
#endif
}

static inline int tz_ascii(PyObject *o) { return PyUnicode_CheckExact(o) && PyUnicode_IS_COMPACT_ASCII(o); }

#endif

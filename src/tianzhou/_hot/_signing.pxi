# Included by _compiled.pyx: HMAC-SHA1 of requests (wire.md 11.1).

cdef extern from "hmac_sha1.h":
    enum:
        TZ_BLOCK, TZ_DIGEST, TZ_DIGEST_TEXT
    ctypedef struct Hmac "TzHmac":
        pass
    bint tz_has_sha1()
    void tz_begin_hmac(Hmac *, const uint8_t *)
    void tz_hmac(const Hmac *, const uint8_t *, size_t, const uint8_t *, size_t, uint8_t *)
    void tz_put_digest(const uint8_t *, uint8_t *)
    bint tz_same(const uint8_t *, const uint8_t *, size_t)

HAS_SHA1 = tz_has_sha1()


def begin_hmac(str secret_key):
    cdef Hmac start
    cdef bytes key = _signing.hmac_key(secret_key)
    tz_begin_hmac(&start, <Place>PyBytes_AS_STRING(key))
    return PyBytes_FromStringAndSize(<const char *>&start, sizeof(Hmac))


cdef void digest(const Hmac *start, bytes content, body, uint8_t *out) except *:
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    tz_hmac(start, <Place>PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content), <Place>view.buf, view.len, out)
    PyBuffer_Release(&view)


cdef const Hmac *begun(bytes start) except NULL:
    if PyBytes_GET_SIZE(start) != sizeof(Hmac):
        raise ValueError("these bytes are no state of an HMAC")
    return <const Hmac *>PyBytes_AS_STRING(start)


cdef bytes text_of(bytes start, bytes content, body):
    cdef uint8_t of[TZ_DIGEST]
    cdef uint8_t text[TZ_DIGEST_TEXT]
    digest(begun(start), content, body, of)
    tz_put_digest(of, text)
    return PyBytes_FromStringAndSize(<const char *>text, TZ_DIGEST_TEXT)


def hmac_text(bytes start not None, bytes content not None, body):
    return text_of(start, content, body).decode("ascii")


def is_hmac(bytes start not None, bytes content not None, body, str claimed not None):
    return _signing.hmac.compare_digest(claimed.encode("utf-8", "replace"), text_of(start, content, body))


cdef bint is_signed(const Hmac *start, Place header, Py_ssize_t size, Place signature, Py_ssize_t signature_size, Place body,
                    Py_ssize_t body_size, uint8_t *content, Py_ssize_t room) noexcept:
    """Whether a request has the signature of the account whose HMAC has begun; `content` has room for what is signed."""
    cdef uint8_t of[TZ_DIGEST]
    cdef uint8_t text[TZ_DIGEST_TEXT]
    cdef Py_ssize_t signed = tz_signed(header, size, content, room)
    if signed < 0 or signature_size != TZ_DIGEST_TEXT:
        return False
    tz_hmac(start, content, signed, body, body_size, of)
    tz_put_digest(of, text)
    return tz_same(text, signature, TZ_DIGEST_TEXT)

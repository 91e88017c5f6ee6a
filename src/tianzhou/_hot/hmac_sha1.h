/* HMAC-SHA1 by the SHA instructions of x86 processors (wire.md 11.1); elsewhere there is none, and `signing.py` serves. */

#ifndef TIANZHOU_HMAC_SHA1_H
#define TIANZHOU_HMAC_SHA1_H

#include <stdint.h>
#include <string.h>

typedef struct { uint32_t word[5]; } TzSha1;
typedef struct { TzSha1 inner, outer; } TzHmac; /* behind the block that holds the secret, each */

enum { TZ_BLOCK = 64, TZ_DIGEST = 20, TZ_DIGEST_TEXT = 28 };

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

#define TZ_SHA __attribute__((target("sha,sse4.1,ssse3")))

/* Leaf 7 says whether there are SHA instructions, leaf 1 whether there are SSSE3 and SSE4.1. */
static int tz_has_sha1(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 9) || !(c & 1u << 19)) return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29);
}

/* Four rounds; each word of the schedule takes the place of that of sixteen rounds before. */
#define TZ_ROUNDS(step, kind) do { \
    next = state; \
    rest = (step) == 0 ? _mm_add_epi32(rest, w[0]) : _mm_sha1nexte_epu32(rest, w[(step) % 4]); \
    state = _mm_sha1rnds4_epu32(state, rest, kind); \
    rest = next; \
    if ((step) < 16) \
        w[(step) % 4] = _mm_sha1msg2_epu32( \
            _mm_xor_si128(_mm_sha1msg1_epu32(w[(step) % 4], w[((step) + 1) % 4]), w[((step) + 2) % 4]), \
            w[((step) + 3) % 4]); \
} while (0)
#define TZ_TWENTY(step, kind) \
    TZ_ROUNDS(step, kind); TZ_ROUNDS((step) + 1, kind); TZ_ROUNDS((step) + 2, kind); \
    TZ_ROUNDS((step) + 3, kind); TZ_ROUNDS((step) + 4, kind)

TZ_SHA static void tz_sha1_blocks(TzSha1 *hash, const uint8_t *p, size_t count) {
    const __m128i order = _mm_set_epi64x(0x0001020304050607LL, 0x08090a0b0c0d0e0fLL); /* first word on top, big endian */
    __m128i state = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)hash->word), 0x1b);
    __m128i rest = _mm_set_epi32((int)hash->word[4], 0, 0, 0);
    __m128i w[4], next, state_before, rest_before;
    int i;
    for (; count > 0; count--, p += TZ_BLOCK) {
        state_before = state;
        rest_before = rest;
        for (i = 0; i < 4; i++) w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), order);
        TZ_TWENTY(0, 0);
        TZ_TWENTY(5, 1);
        TZ_TWENTY(10, 2);
        TZ_TWENTY(15, 3);
        rest = _mm_sha1nexte_epu32(rest, rest_before);
        state = _mm_add_epi32(state, state_before);
    }
    _mm_storeu_si128((__m128i *)hash->word, _mm_shuffle_epi32(state, 0x1b));
    hash->word[4] = (uint32_t)_mm_extract_epi32(rest, 3);
}
#else
static int tz_has_sha1(void) { return 0; }
static void tz_sha1_blocks(TzSha1 *hash, const uint8_t *p, size_t count) { (void)hash; (void)p; (void)count; }
#endif

/* Hashes what is left of a text of which whole blocks have been hashed: `tail` bytes of 128, of `size` in all. */
static void tz_sha1_end(TzSha1 *hash, uint8_t *text, size_t tail, uint64_t size, uint8_t *digest) {
    size_t blocks = tail + 9 <= TZ_BLOCK ? 1 : 2;
    int i;
    text[tail] = 0x80;
    memset(text + tail + 1, 0, blocks * TZ_BLOCK - tail - 9);
    for (i = 0; i < 8; i++) text[blocks * TZ_BLOCK - 1 - i] = (uint8_t)(size * 8 >> 8 * i);
    tz_sha1_blocks(hash, text, blocks);
    for (i = 0; i < TZ_DIGEST; i++) digest[i] = (uint8_t)(hash->word[i / 4] >> (24 - 8 * (i % 4)));
}

static TzSha1 tz_sha1_keyed(const uint8_t *key, uint8_t mask) {
    TzSha1 hash = {{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
    uint8_t block[TZ_BLOCK];
    int i;
    for (i = 0; i < TZ_BLOCK; i++) block[i] = key[i] ^ mask;
    tz_sha1_blocks(&hash, block, 1);
    return hash;
}

/* `key` is a whole block. */
static void tz_begin_hmac(TzHmac *start, const uint8_t *key) {
    start->inner = tz_sha1_keyed(key, 0x36);
    start->outer = tz_sha1_keyed(key, 0x5c);
}

/* HMAC of two texts that follow each other. */
static void tz_hmac(const TzHmac *start, const uint8_t *head, size_t head_size, const uint8_t *body, size_t body_size,
                    uint8_t *digest) {
    TzSha1 inner = start->inner, outer = start->outer;
    uint64_t size = TZ_BLOCK + (uint64_t)head_size + body_size;
    size_t whole = head_size / TZ_BLOCK, left = head_size % TZ_BLOCK, room;
    uint8_t text[2 * TZ_BLOCK];
    tz_sha1_blocks(&inner, head, whole);
    memcpy(text, head + whole * TZ_BLOCK, left);
    room = left == 0 ? 0 : TZ_BLOCK - left < body_size ? TZ_BLOCK - left : body_size;
    memcpy(text + left, body, room);
    left += room;
    if (left == TZ_BLOCK) {
        tz_sha1_blocks(&inner, text, 1);
        left = 0;
    }
    if (left == 0) { /* else the body ends within the block that the head has begun */
        body += room;
        body_size -= room;
        tz_sha1_blocks(&inner, body, body_size / TZ_BLOCK);
        left = body_size % TZ_BLOCK;
        memcpy(text, body + body_size - left, left);
    }
    tz_sha1_end(&inner, text, left, size, text);
    tz_sha1_end(&outer, text, TZ_DIGEST, TZ_BLOCK + TZ_DIGEST, digest);
}

/* A digest in base64: 28 characters. */
static void tz_put_digest(const uint8_t *digest, uint8_t *text) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t three;
    int i, k;
    for (i = 0; i < TZ_DIGEST; i += 3) {
        three = (uint32_t)digest[i] << 16 | (uint32_t)digest[i + 1] << 8 | (i + 2 < TZ_DIGEST ? digest[i + 2] : 0);
        for (k = 0; k < 4; k++) *text++ = (uint8_t)letters[three >> (18 - 6 * k) & 63];
    }
    text[-1] = '=';
}

/* Whether two texts are the same; takes as long wherever they differ. */
static int tz_same(const uint8_t *text, const uint8_t *other, size_t size) {
    volatile uint8_t differs = 0;
    while (size--) differs |= *text++ ^ *other++;
    return differs == 0;
}

#endif

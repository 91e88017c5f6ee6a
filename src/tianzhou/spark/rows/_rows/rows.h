/* What the compiled way from records to columns needs of C: big-endian bytes, and whether there are only ASCII's. */
#ifndef TIANZHOU_ROWS_H
#define TIANZHOU_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifndef TIANZHOU_SOURCE
#define TIANZHOU_SOURCE ""
#endif

static inline uint16_t tz_get16(const uint8_t *p) { return (uint16_t)((uint16_t)p[0] << 8 | p[1]); }
static inline uint32_t tz_get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
/* tianzhou.model.timestamps.MIN_TIME_MS and MAX_TIME_MS */
#define TZ_MIN_TIME_MS (-62135424000000LL)
#define TZ_MAX_TIME_MS 253402127999999LL

static inline uint64_t tz_get64(const uint8_t *p) { return (uint64_t)tz_get32(p) << 32 | tz_get32(p + 4); }
static inline int tz_ascii(const uint8_t *p, size_t size) {
    uint64_t word, seen = 0;
    for (; size >= sizeof word; p += sizeof word, size -= sizeof word) {
        memcpy(&word, p, sizeof word);
        seen |= word;
    }
    for (; size; p++, size--) seen |= *p;
    return !(seen & UINT64_C(0x8080808080808080));
}

#endif

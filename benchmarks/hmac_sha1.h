// HMAC-SHA1 and base64, for load tools that sign what they send (wire.md §11.1).
#include <stdint.h>
#include <string.h>

typedef struct { uint32_t h[5]; uint64_t size; uint8_t block[64]; } Sha1;

static uint32_t rol(uint32_t v, int n) { return v << n | v >> (32 - n); }
static void sha1_block(Sha1 *s, const uint8_t *p) {
  uint32_t w[80], a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3], e = s->h[4];
  for (int i = 0; i < 16; i++) w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
  for (int i = 16; i < 80; i++) w[i] = rol(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  for (int i = 0; i < 80; i++) {
    uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 ? b ^ c ^ d : i < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
    uint32_t k = i < 20 ? 0x5A827999 : i < 40 ? 0x6ED9EBA1 : i < 60 ? 0x8F1BBCDC : 0xCA62C1D6;
    uint32_t next = rol(a, 5) + f + e + k + w[i];
    e = d; d = c; c = rol(b, 30); b = a; a = next;
  }
  s->h[0] += a; s->h[1] += b; s->h[2] += c; s->h[3] += d; s->h[4] += e;
}
static void sha1_add(Sha1 *s, const uint8_t *p, size_t n) {
  size_t used = s->size % 64;
  s->size += n;
  if (used) {
    size_t room = 64 - used < n ? 64 - used : n;
    memcpy(s->block + used, p, room);
    if (used + room < 64) return;
    sha1_block(s, s->block);
    p += room; n -= room;
  }
  for (; n >= 64; p += 64, n -= 64) sha1_block(s, p);
  memcpy(s->block, p, n);
}
static void sha1_end(Sha1 *s, uint8_t *out) {
  uint64_t bits = s->size * 8;
  uint8_t tail[72] = {0x80};
  size_t pad = (s->size % 64 < 56 ? 56 : 120) - s->size % 64;
  for (int i = 0; i < 8; i++) tail[pad + i] = bits >> (56 - 8 * i);
  sha1_add(s, tail, pad + 8);
  for (int i = 0; i < 20; i++) out[i] = s->h[i / 4] >> (24 - 8 * (i % 4));
}
static Sha1 sha1_begin(const char *key, uint8_t mask) { // with the block that HMAC puts first; keys up to 64 bytes
  Sha1 s = {{0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0}, 0, {0}};
  uint8_t pad[64];
  memset(pad, mask, 64);
  for (size_t i = 0; key[i] && i < 64; i++) pad[i] ^= (uint8_t)key[i];
  sha1_add(&s, pad, 64);
  return s;
}
static void base64_20(const uint8_t *in, uint8_t *out) { // 20 bytes, 28 characters
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int i = 0; i < 21; i += 3) {
    uint32_t v = in[i] << 16 | in[i + 1] << 8 | (i + 2 < 20 ? in[i + 2] : 0);
    for (int k = 0; k < 4; k++) *out++ = letters[v >> (18 - 6 * k) & 63];
  }
  out[-1] = '=';
}

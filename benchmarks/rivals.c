// rivals: loadgen's load for other systems: -x resp (Redis Streams), nats (JetStream), amqp (RabbitMQ, AMQP 0-9-1).
//   put    one message that the server has to keep, acknowledged: XADD; PUB to a stream with an inbox; basic.publish
//          of a persistent message under publisher confirms. Spread over 8 streams, subjects or queues.
//   fetch  -n messages a request, connection i from stream i: XRANGE round and round; a pull consumer's next batch,
//          until the stream is at its end. AMQP has no request for a batch.
// -c connections, -w in flight on each, -t seconds after -W of warming, -M ends after so many messages, -P reads the
// CPU time of that process, -Q the queue's type (amqp). One JSON line on standard output.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "measuring.h"

enum { RING = 1 << 16, IN = 1 << 22, OUT = 1 << 21, QUEUES = 8, SLOTS = 256 };

typedef struct { int fd, id, want_out, drained; u8 *in, *out; size_t in_len, out_at, out_len; u64 next, acked, first; u64 *sent_ns; int *left; char (*cursor)[32]; } Conn;
typedef struct {
  const char *name;
  void (*open)(Conn *);               // blocking: all that comes before the first message
  void (*put)(Conn *);                // one message into the out buffer
  void (*fetch)(Conn *);              // one request for a batch; null where there is none
  size_t (*reply)(Conn *, u8 *, size_t); // take one reply; bytes it had, 0 when not all of it is there
} Protocol;

static int port, conns = 1, window = 1, size = 1024, seconds = 3, per = 32, warm = 1, fetching = 0, drained = 0;
static u64 most = 0, keys = 0, done, bytes, bad;
static const char *queue_type = "classic", *servers = "";
static u8 *body;

static void fail(const char *what, const u8 *text, size_t n) { fprintf(stderr, "%s: %.*s\n", what, (int)(n > 300 ? 300 : n), text); exit(1); }
static void refuse(const u8 *text, size_t n) { if (++bad < 4) fprintf(stderr, "bad reply: %.*s\n", (int)(n > 300 ? 300 : n), text); }
static u8 *room(Conn *c, size_t n) {
  if (c->out_len + n > OUT) { memmove(c->out, c->out + c->out_at, c->out_len -= c->out_at); c->out_at = 0; }
  if (c->out_len + n > OUT) fail("the server does not read", 0, 0);
  u8 *p = c->out + c->out_len;
  c->out_len += n;
  return p;
}
static void add(Conn *c, const void *what, size_t n) { memcpy(room(c, n), what, n); }
static void addf(Conn *c, const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  add(c, text, n);
}
static void add_body(Conn *c) { u8 *p = room(c, size); memcpy(p, body, size); char key[16]; snprintf(key, sizeof key, "%015lu", keys++); memcpy(p, key, 15); }
static void sent(Conn *c) { c->sent_ns[c->next++ % RING] = now_ns(); }
static void answered(Conn *c, u64 which, u64 messages) { record_ns(now_ns() - c->sent_ns[which % RING]); done += messages; c->acked++; }
static void flush(Conn *c) {
  while (c->out_at < c->out_len) {
    ssize_t r = write(c->fd, c->out + c->out_at, c->out_len - c->out_at);
    if (r < 0 && errno == EAGAIN) break;
    if (r < 0) { perror("write"); exit(1); }
    c->out_at += r;
  }
  if (c->out_at == c->out_len) c->out_at = c->out_len = 0;
}
static u8 *wait_for(Conn *c, const char *text) { // blocking, before the first message: read until there is this text
  flush(c);
  for (;;) {
    u8 *p = memmem(c->in, c->in_len, text, strlen(text));
    if (p) return p;
    ssize_t r = read(c->fd, c->in + c->in_len, IN - c->in_len);
    if (r <= 0) fail("the server ended the connection", c->in, c->in_len);
    c->in_len += r;
    if (memmem(c->in, c->in_len, "-ERR", 4) || memmem(c->in, c->in_len, "\"error\"", 7)) fail("refused", c->in, c->in_len);
  }
}

// ---- Redis
static void resp_open(Conn *c) { addf(c, "PING\r\n"); wait_for(c, "PONG\r\n"); c->in_len = 0; }
static void resp_put(Conn *c) {
  addf(c, "*5\r\n$4\r\nXADD\r\n$6\r\nbench%d\r\n$1\r\n*\r\n$1\r\nb\r\n$%d\r\n", (int)((c->next + c->id) % QUEUES), size);
  add_body(c);
  add(c, "\r\n", 2);
  sent(c);
}
static void resp_fetch(Conn *c) { // replies come in order: request k goes on where request k - window ended
  char *from = c->cursor[c->next % window], count[16];
  int digits = snprintf(count, sizeof count, "%d", per);
  addf(c, "*6\r\n$6\r\nXRANGE\r\n$6\r\nbench%d\r\n$%d\r\n%s\r\n$1\r\n+\r\n$5\r\nCOUNT\r\n$%d\r\n%s\r\n", c->id % QUEUES, (int)strlen(from), from, digits, count);
  sent(c);
}
static size_t resp_length(const u8 *p, size_t n, const u8 **last) { // of one value; where its last element begins
  const u8 *end = memmem(p, n, "\r\n", 2);
  if (!end) return 0;
  size_t at = end + 2 - p;
  long count = atol((const char *)p + 1);
  if (*p == '$' && count >= 0) at += count + 2;
  if (*p == '*') for (long k = 0; k < count; k++) {
    if (at >= n) return 0;
    size_t one = resp_length(p + at, n - at, 0);
    if (!one) return 0;
    if (last) *last = p + at;
    at += one;
  }
  return at <= n ? at : 0;
}
static size_t resp_reply(Conn *c, u8 *p, size_t n) {
  const u8 *last = 0;
  size_t length = resp_length(p, n, &last);
  if (!length) return 0;
  u64 messages = *p == '*' ? (u64)atol((char *)p + 1) : 1;
  if (*p == '-') { refuse(p, length); messages = 0; }
  if (fetching) {
    char *to = c->cursor[c->acked % window];
    strcpy(to, "-");
    if (messages == (u64)per) { // *2\r\n$15\r\n<id>\r\n
      const u8 *id = (const u8 *)memmem(last + 4, 16, "\r\n", 2) + 2;
      snprintf(to, 32, "(%.*s", (int)((const u8 *)memmem(id, 30, "\r\n", 2) - id), id);
    }
  }
  answered(c, c->acked, messages);
  return length;
}

// ---- NATS
static void nats_ask(Conn *c, const char *subject, const char *json) {
  addf(c, "PUB %s _I.%03d.setup %zu\r\n%s\r\n", subject, c->id, strlen(json), json);
  wait_for(c, "}\r\n");
  c->in_len = 0;
}
static void nats_open(Conn *c) {
  char json[512], subject[128];
  wait_for(c, "\r\n"); // INFO
  c->in_len = 0;
  addf(c, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\nSUB _I.%03d.* 1\r\nPING\r\n", c->id);
  wait_for(c, "PONG\r\n");
  c->in_len = 0;
  if (c->id == 0) nats_ask(c, "$JS.API.STREAM.CREATE.BENCH", "{\"name\":\"BENCH\",\"subjects\":[\"bench.*\"],\"storage\":\"file\",\"retention\":\"limits\",\"num_replicas\":1}");
  if (!fetching) return;
  snprintf(subject, sizeof subject, "$JS.API.CONSUMER.DURABLE.CREATE.BENCH.C%d_%d", getpid(), c->id);
  snprintf(json, sizeof json, "{\"stream_name\":\"BENCH\",\"config\":{\"durable_name\":\"C%d_%d\",\"ack_policy\":\"none\",\"deliver_policy\":\"all\",\"replay_policy\":\"instant\",\"filter_subject\":\"bench.%d\"}}", getpid(), c->id, c->id % QUEUES);
  nats_ask(c, subject, json);
}
static void nats_put(Conn *c) {
  addf(c, "PUB bench.%d _I.%03d.%09lu %d\r\n", (int)((c->next + c->id) % QUEUES), c->id, c->next, size);
  add_body(c);
  add(c, "\r\n", 2);
  sent(c);
}
static void nats_fetch(Conn *c) {
  char json[64];
  int n = snprintf(json, sizeof json, "{\"batch\":%d,\"no_wait\":true}", per);
  c->left[c->next % RING] = per;
  addf(c, "PUB $JS.API.CONSUMER.MSG.NEXT.BENCH.C%d_%d _I.%03d.%09lu %d\r\n%s\r\n", getpid(), c->id, c->id, c->next, n, json);
  sent(c);
}
static size_t nats_reply(Conn *c, u8 *p, size_t n) {
  u8 *end = memmem(p, n < 512 ? n : 512, "\r\n", 2);
  if (!end) return 0;
  size_t line = end + 2 - p;
  if (*p == 'P') { if (p[1] == 'I') add(c, "PONG\r\n", 6); return line; }
  int with_head = *p == 'H'; // HMSG subject sid [reply] head total, or MSG subject sid [reply] total
  if (!with_head && *p != 'M') { refuse(p, line); return line; }
  u8 *number = end;
  while (number[-1] != ' ') number--;
  size_t length = line + atol((char *)number) + 2;
  if (n < length) return 0;
  u64 which = strtoull((char *)p + (with_head ? 5 : 4) + 7, 0, 10); // behind "_I.000."
  if (!fetching) {
    int refused = with_head || memmem(p + line, length - line, "\"error\"", 7) != 0;
    if (refused) refuse(p, length);
    answered(c, which, !refused);
  } else if (with_head) { // a status: there are no more messages
    if (!memmem(p + line, length - line, " 404", 4) && !memmem(p + line, length - line, " 408", 4)) refuse(p, length);
    c->drained = 1; c->acked++;
  } else {
    done++; // it comes under its own subject, batch after batch
    if (--c->left[c->acked % RING] == 0) answered(c, c->acked, 0);
  }
  return length;
}

// ---- RabbitMQ
static u8 *put16(u8 *p, u32 v) { p[0] = v >> 8; p[1] = v; return p + 2; }
static u8 *put_short(u8 *p, const char *text) { *p = strlen(text); memcpy(p + 1, text, *p); return p + 1 + *p; }
static u8 *put_long(u8 *p, const char *text, u32 n) { put32(p, n); memcpy(p + 4, text, n); return p + 4 + n; }
static void amqp_frame(Conn *c, int kind, int channel, const u8 *payload, size_t n) {
  u8 *p = room(c, n + 8);
  p[0] = kind; put16(p + 1, channel); put32(p + 3, n); memcpy(p + 7, payload, n); p[7 + n] = 0xCE;
}
static void amqp_expect(Conn *c, u32 class_, u32 method) { // blocking: the next frame has to be this method
  flush(c);
  while (c->in_len < 7 || c->in_len < 8 + (size_t)get32(c->in + 3)) {
    ssize_t r = read(c->fd, c->in + c->in_len, IN - c->in_len);
    if (r <= 0) fail("the server ended the connection", c->in, c->in_len);
    c->in_len += r;
  }
  if (get32(c->in + 7) != (class_ << 16 | method)) fail("refused", c->in + 11, get32(c->in + 3));
  size_t n = 8 + get32(c->in + 3);
  memmove(c->in, c->in + n, c->in_len -= n);
}
static void amqp_ask(Conn *c, int channel, u32 class_, u32 method, const u8 *arguments, size_t n) {
  u8 payload[512];
  put32(payload, class_ << 16 | method);
  memcpy(payload + 4, arguments, n);
  amqp_frame(c, 1, channel, payload, n + 4);
}
static void amqp_open(Conn *c) {
  u8 text[512], *p = text;
  add(c, "AMQP\0\0\x09\x01", 8);
  amqp_expect(c, 10, 10);
  put32(p, 0);
  p = put_short(put_long(put_short(p + 4, "PLAIN"), "\0guest\0guest", 12), "en_US");
  amqp_ask(c, 0, 10, 11, text, p - text);
  amqp_expect(c, 10, 30);
  p = put16(text, 1); put32(p, 131072); p = put16(p + 4, 0);
  amqp_ask(c, 0, 10, 31, text, p - text);
  p = put_short(put_short(text, "/"), ""); *p++ = 0;
  amqp_ask(c, 0, 10, 40, text, p - text);
  amqp_expect(c, 10, 41);
  p = put_short(text, "");
  amqp_ask(c, 1, 20, 10, text, p - text);
  amqp_expect(c, 20, 11);
  for (int k = 0; k < QUEUES; k++) { // durable, of a type
    char name[32];
    snprintf(name, sizeof name, "%s%d", queue_type, k);
    p = put_short(put16(text, 0), name); *p++ = 2;
    u8 *table = p;
    p = put_short(p + 4, "x-queue-type"); *p++ = 'S'; p = put_long(p, queue_type, strlen(queue_type));
    put32(table, p - table - 4);
    amqp_ask(c, 1, 50, 10, text, p - text);
    amqp_expect(c, 50, 11);
  }
  text[0] = 0;
  amqp_ask(c, 1, 85, 10, text, 1);
  amqp_expect(c, 85, 11);
}
static void amqp_put(Conn *c) {
  u8 text[64], *p = put16(text, 0);
  char name[32];
  snprintf(name, sizeof name, "%s%d", queue_type, (int)((c->next + c->id) % QUEUES));
  p = put_short(put_short(p, ""), name); *p++ = 0;
  amqp_ask(c, 1, 60, 40, text, p - text);
  p = put16(put16(text, 60), 0); put32(p, 0); put32(p + 4, size); p = put16(p + 8, 0x1000); *p++ = 2; // persistent
  amqp_frame(c, 2, 1, text, p - text);
  u8 head[7] = {3, 0, 1};
  put32(head + 3, size);
  add(c, head, 7); add_body(c); add(c, "\xCE", 1);
  sent(c);
}
static size_t amqp_reply(Conn *c, u8 *p, size_t n) { // basic.ack: a tag from 1 on, and whether all up to it
  if (n < 7 || n < 8 + (size_t)get32(p + 3)) return 0;
  size_t length = 8 + get32(p + 3);
  u32 method = p[0] == 1 ? get32(p + 7) : 0;
  if (method == (60 << 16 | 80) || method == (60 << 16 | 120)) {
    u64 tag = (u64)get32(p + 11) << 32 | get32(p + 15);
    int refused = method == (60 << 16 | 120);
    for (u64 k = p[19] & 1 ? c->first : tag - 1; k < tag; k++) { // what was confirmed already has no time any more
      if (!c->sent_ns[k % RING]) continue;
      if (refused) refuse((const u8 *)"basic.nack", 10);
      answered(c, k, !refused);
      c->sent_ns[k % RING] = 0;
    }
    while (c->first < c->next && !c->sent_ns[c->first % RING]) c->first++;
  } else if (p[0] != 8) fail("the server says", p + 11, length > 12 ? length - 12 : 0);
  return length;
}

static const Protocol protocols[] = {
  {"resp", resp_open, resp_put, resp_fetch, resp_reply},
  {"nats", nats_open, nats_put, nats_fetch, nats_reply},
  {"amqp", amqp_open, amqp_put, 0, amqp_reply},
};

static void open_conn(Conn *c, int id, const Protocol *protocol, int epoll) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int one = 1;
  *c = (Conn){.fd = socket(AF_INET, SOCK_STREAM, 0), .id = id, .in = malloc(IN), .out = malloc(OUT), .sent_ns = calloc(RING, 8), .left = calloc(RING, sizeof(int)), .cursor = calloc(window, 32)};
  if (connect(c->fd, (void *)&a, sizeof a)) { perror("connect"); exit(1); }
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  for (int k = 0; k < window; k++) strcpy(c->cursor[k], "-");
  protocol->open(c);
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
  epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
}
static void ask(Conn *c, const Protocol *protocol, int epoll) { // keep as many in flight as asked for
  while (!c->drained && c->next - c->acked < (u64)window) fetching ? protocol->fetch(c) : protocol->put(c);
  flush(c);
  int want = c->out_len > 0;
  if (want != c->want_out) {
    struct epoll_event e = {.events = EPOLLIN | (want ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
    c->want_out = want;
  }
}

int main(int argc, char **argv) {
  const Protocol *protocol = 0;
  for (int o; (o = getopt(argc, argv, "p:x:m:c:w:s:t:n:W:M:P:Q:")) != -1;) switch (o) {
    case 'p': port = atoi(optarg); break;
    case 'x': for (int k = 0; k < 3; k++) if (!strcmp(protocols[k].name, optarg)) protocol = protocols + k; break;
    case 'm': fetching = !strcmp(optarg, "fetch"); break;
    case 'c': conns = atoi(optarg); break;
    case 'w': window = atoi(optarg); break;
    case 's': size = atoi(optarg); break;
    case 't': seconds = atoi(optarg); break;
    case 'n': per = atoi(optarg); break;
    case 'W': warm = atoi(optarg); break;
    case 'M': most = strtoull(optarg, 0, 10); warm = 0; seconds = 600; break;
    case 'P': servers = optarg; break;
    case 'Q': queue_type = optarg; break;
    default: return 2;
  }
  if (!protocol || (fetching && !protocol->fetch) || conns > 999 || window > SLOTS || size < 16) { fprintf(stderr, "-x resp, nats or amqp (without fetch), at most 999 connections, window %d, size from 16\n", SLOTS); return 2; }
  int epoll = epoll_create1(0);
  keys = now_ns() / 1000;
  body = malloc(size);
  for (int i = 0; i < size; i++) body[i] = 'a' + i * 7 % 26;
  Conn *all = calloc(conns, sizeof *all);
  for (int i = 0; i < conns; i++) open_conn(all + i, i, protocol, epoll);
  for (int i = 0; i < conns; i++) ask(all + i, protocol, epoll);

  u64 measure = now_ns() + warm * 1000000000ull, end = measure + seconds * 1000000000ull, began = 0, last = 0;
  double load_cpu = 0, server_cpu = 0;
  struct epoll_event ev[256];
  for (;;) {
    int got = epoll_wait(epoll, ev, 256, 1000);
    u64 t = now_ns();
    if (!began && t >= measure) { began = t; done = bytes = bad = 0; memset(hist, 0, sizeof hist); load_cpu = own_cpu(); server_cpu = cpu_of_all(servers); }
    if (t >= end || drained == conns || (most && (done >= most || bad > 10000))) break;
    if (got == 0 && fetching && done) break; // a batch that never becomes full: the end of what there is
    if (got == 0) fprintf(stderr, "no reply for 1 s\n");
    if (got) last = t;
    for (int j = 0; j < got; j++) {
      Conn *c = ev[j].data.ptr;
      ssize_t r = ev[j].events & (EPOLLIN | EPOLLHUP) ? read(c->fd, c->in + c->in_len, IN - c->in_len) : 0;
      if (r < 0 && errno != EAGAIN) { perror("read"); return 1; }
      if (r == 0 && ev[j].events & (EPOLLIN | EPOLLHUP)) { fprintf(stderr, "connection closed by the server\n"); return 1; }
      if (r > 0) { c->in_len += r; bytes += r; }
      size_t at = 0, one;
      int before = c->drained;
      while (at < c->in_len && (one = protocol->reply(c, c->in + at, c->in_len - at))) at += one;
      memmove(c->in, c->in + at, c->in_len -= at);
      drained += c->drained && !before;
      ask(c, protocol, epoll);
    }
  }
  double s = ((fetching && last > began && now_ns() < end ? last : now_ns()) - began) / 1e9;
  print_figures(fetching ? "fetch" : "put", done, s, bytes, own_cpu() - load_cpu, cpu_of_all(servers) - server_cpu, bad, 0);
  return bad ? 2 : 0;
}

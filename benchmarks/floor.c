// floor: what the machine itself takes for the load tool's messages. It reads the same frames, stores the same bytes in
// mapped files and writes the same replies as a broker, on one thread, and does nothing else: what is wrong ends it,
// nothing is flushed, found again after a start, looked up by key, counted or refused.
//
//   floor PORT FOLDER
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

enum { QUEUES = 10, TOPICS = 64, ROOM = 1 << 22, AHEAD = 1 << 22, HEAD = 88, REST = 3 };
#define SEGMENT (1ul << 30)

typedef struct { int fd; size_t len; u8 *in; } Conn;
typedef struct { u8 *at; u32 size; } Record;
typedef struct { Record *records; u64 count, room, offset; Conn *waits; int opaque, most; } Queue;

static struct { char name[128]; Queue queues[QUEUES]; } topics[TOPICS];
static const char *folder;
static u8 *segment, *out;
static u64 base = -SEGMENT, position = SEGMENT, made;
static size_t out_len;

static void put32(u8 *p, u32 v) { v = htonl(v); memcpy(p, &v, 4); }
static u32 get32(const u8 *p) { u32 v; memcpy(&v, p, 4); return ntohl(v); }
static void put64(u8 *p, u64 v) { put32(p, v >> 32); put32(p + 4, v); }
static void need(int holds, const char *what) { if (!holds) { perror(what); exit(1); } }

static u8 *text(const u8 *header, size_t len, const char *key) { // where a field's value begins
  u8 *p = memmem(header, len, key, strlen(key));
  need(p != 0, key);
  return p + strlen(key);
}
static Queue *find_queue(const u8 *name, int number) {
  int k = 0;
  size_t len = (u8 *)strchr((char *)name, '"') - name;
  while (*topics[k].name && (strncmp(topics[k].name, (char *)name, len) || topics[k].name[len])) need(++k < TOPICS, "topics");
  memcpy(topics[k].name, name, len);
  need(number >= 0 && number < QUEUES, "queue");
  return topics[k].queues + number;
}

// ---- the log
static u8 *place(size_t size) { // of the next record
  if (position + size + 8 > SEGMENT) {
    char path[4096];
    base += SEGMENT;
    snprintf(path, sizeof path, "%s/%020lu", folder, base);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    need(fd >= 0 && !ftruncate(fd, SEGMENT), path);
    segment = mmap(0, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need(segment != MAP_FAILED, "mmap");
    close(fd);
    position = made = 0;
  }
  if (position + size > made) {
    u64 until = made + AHEAD + size < SEGMENT ? (made + AHEAD + size) & ~4095ul : SEGMENT;
    need(!madvise(segment + made, until - made, MADV_POPULATE_WRITE), "madvise");
    made = until;
  }
  u8 *p = segment + position;
  position += size;
  return p;
}
static void store(Queue *queue, int number, const u8 *name, const u8 *properties, size_t properties_len, const u8 *body, size_t len) {
  size_t name_len = (u8 *)strchr((char *)name, '"') - name, size = HEAD + len + REST + name_len + properties_len;
  u8 *p = place(size), *rest = p + HEAD + len;
  put32(p, size); put32(p + 4, 0xDAA320A7); put32(p + 12, number); put64(p + 20, queue->count); put64(p + 28, base + position - size);
  put32(p + 84, len);
  memcpy(p + HEAD, body, len);
  *rest++ = name_len;
  memcpy(rest, name, name_len);
  rest += name_len;
  rest[0] = properties_len >> 8; rest[1] = properties_len;
  memcpy(rest + 2, properties, properties_len);
  if (queue->count == queue->room) queue->records = realloc(queue->records, (queue->room = queue->room * 2 + 1024) * sizeof(Record));
  queue->records[queue->count++] = (Record){p, size};
}

// ---- replies
static void reply(const char *header, u8 *body_end) { // behind it there are the records already
  size_t len = strlen(header);
  u8 *p = out + out_len;
  put32(p, body_end ? body_end - p - 4 : (long)len + 4); put32(p + 4, len);
  memcpy(p + 8, header, len);
  out_len = body_end ? body_end - out : out_len + 8 + len;
}
static void flush(Conn *c) {
  for (size_t at = 0; at < out_len;) { ssize_t r = send(c->fd, out + at, out_len - at, MSG_NOSIGNAL); if (r <= 0) break; at += r; }
  out_len = 0;
}
static void answer_pull(Queue *queue, u64 offset, int most, int opaque) {
  char header[512];
  u64 stop = offset + most < queue->count ? offset + most : queue->count;
  int len = snprintf(header, sizeof header, "{\"code\":%d,\"extFields\":{\"suggestWhichBrokerId\":\"0\",\"groupSysFlag\":\"0\",\"nextBeginOffset\":\"%lu\",\"maxOffset\":\"%lu\",\"minOffset\":\"0\",\"topicSysFlag\":\"0\"},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":%d,\"remark\":\"FOUND\",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":453}", stop > offset ? 0 : 19, stop, queue->count, opaque);
  u8 *p = out + out_len + 8 + len;
  for (; offset < stop; offset++) { memcpy(p, queue->records[offset].at, queue->records[offset].size); p += queue->records[offset].size; }
  reply(header, p);
}

static void serve(Conn *c, u8 *frame, size_t len) {
  size_t head = get32(frame + 4) & 0xFFFFFF, body_len = len - 4 - head;
  u8 *header = frame + 8, *body = header + head;
  int code = atoi((char *)text(header, head, "\"code\":")), opaque = atoi((char *)text(header, head, "\"opaque\":"));
  char line[512];
  if (code == 310 || code == 320) {
    u8 *name = text(header, head, "\"b\":\""), *properties = text(header, head, "\"i\":\"");
    int number = atoi((char *)text(header, head, "\"e\":\""));
    Queue *queue = find_queue(name, number);
    u64 offset = queue->count, at = base + position;
    if (code == 310) store(queue, number, name, properties, (u8 *)strchr((char *)properties, '"') - properties, body, body_len);
    else for (u8 *p = body; p < body + body_len; p += get32(p)) {
      u32 n = get32(p + 16);
      store(queue, number, name, p + 22 + n, get32(p) - 22 - n, p + 20, n);
    }
    snprintf(line, sizeof line, "{\"code\":0,\"extFields\":{\"queueId\":\"%d\",\"transactionId\":\"7F0000010A1B2C3D4E5F000000000000\",\"queueOffset\":\"%lu\",\"msgId\":\"7F00000100002A9F%016lX\",\"MSG_REGION\":\"DefaultRegion\",\"TRACE_ON\":\"true\"},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":453}", number, offset, at, opaque);
    reply(line, 0);
    if (queue->waits) { // on its own connection, at once
      size_t before = out_len;
      answer_pull(queue, queue->offset, queue->most, queue->opaque);
      send(queue->waits->fd, out + before, out_len - before, MSG_NOSIGNAL);
      out_len = before;
      queue->waits = 0;
    }
    return;
  }
  Queue *queue = find_queue(text(header, head, "\"topic\":\""), atoi((char *)text(header, head, "\"queueId\":\"")));
  if (code == 30) {
    snprintf(line, sizeof line, "{\"code\":0,\"extFields\":{\"offset\":\"%lu\"},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":453}", queue->count, opaque);
    reply(line, 0);
    return;
  }
  need(code == 11, "request code");
  u64 offset = strtoull((char *)text(header, head, "\"queueOffset\":\""), 0, 10);
  int most = atoi((char *)text(header, head, "\"maxMsgNums\":\""));
  if (offset >= queue->count && atoi((char *)text(header, head, "\"suspendTimeoutMillis\":\""))) {
    queue->waits = c; queue->opaque = opaque; queue->offset = offset; queue->most = most;
  } else answer_pull(queue, offset, most, opaque);
}

int main(int argc, char **argv) {
  need(argc == 3, "usage: floor PORT FOLDER");
  folder = argv[2];
  out = malloc(ROOM * 4);
  int one = 1, door = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  need(!bind(door, (void *)&a, sizeof a) && !listen(door, 128), "listen");
  struct epoll_event events[256], e = {.events = EPOLLIN, .data.ptr = 0};
  epoll_ctl(epoll, EPOLL_CTL_ADD, door, &e);
  for (;;) for (int k = 0, got = epoll_wait(epoll, events, 256, -1); k < got; k++) {
    Conn *c = events[k].data.ptr;
    if (!c) {
      c = calloc(1, sizeof *c);
      *c = (Conn){.fd = accept(door, 0, 0), .in = malloc(ROOM)};
      setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      e.data.ptr = c;
      epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
      continue;
    }
    ssize_t r = recv(c->fd, c->in + c->len, 131072 < ROOM - 1 - c->len ? 131072 : ROOM - 1 - c->len, MSG_DONTWAIT);
    if (r <= 0) { // what it waits for is forgotten; the rest stays, as so few connect
      for (int t = 0; t < TOPICS; t++) for (int q = 0; q < QUEUES; q++) if (topics[t].queues[q].waits == c) topics[t].queues[q].waits = 0;
      close(c->fd);
      continue;
    }
    c->len += r;
    c->in[c->len] = 0;
    size_t at = 0;
    for (; c->len - at >= 4 && c->len - at >= 4 + (size_t)get32(c->in + at); at += 4 + get32(c->in + at)) {
      serve(c, c->in + at, get32(c->in + at));
      if (out_len > ROOM) flush(c);
    }
    memmove(c->in, c->in + at, c->len -= at);
    flush(c);
  }
}

/* Headers of ordinary pulls, scanned without making objects of them (wire.md 6.1); what `sends.h` says of spellings holds but for zeros. */
#ifndef TIANZHOU_PULLS_H
#define TIANZHOU_PULLS_H

#include "sends.h"

/* The texts of a pull; the first TZ_KEY_TEXTS are part of its key. */
enum {
    TZ_TEXT_GROUP, TZ_TEXT_TOPIC, TZ_TEXT_KIND, TZ_TEXT_SUBSCRIPTION, TZ_KEY_TEXTS,
    TZ_TEXT_ACCESS_KEY = TZ_KEY_TEXTS, TZ_TEXT_SIGNATURE, TZ_TEXTS
};

typedef struct {
    const uint8_t *texts[TZ_TEXTS]; /* NULL for none */
    Py_ssize_t sizes[TZ_TEXTS];
    int64_t queue_id, most, sys_flag, sub_version, suspend; /* of the request, the same for all of a consumer and queue */
    int64_t opaque, offset, commit;
} TzPull;

/* What a field of a pull is, as the bit by which it is noted that it has come. */
enum {
    TZ_PULL_GROUP = 1, TZ_PULL_TOPIC = 2, TZ_PULL_QUEUE = 4, TZ_PULL_OFFSET = 8, TZ_PULL_MOST = 16, TZ_PULL_FLAGS = 32,
    TZ_PULL_COMMIT = 64, TZ_PULL_SUSPEND = 128, TZ_PULL_VERSION = 256, TZ_PULL_NEEDED = 511, TZ_PULL_KIND = 512,
    TZ_PULL_SUBSCRIPTION = 1024, TZ_PULL_BROKER = 2048, TZ_PULL_ACCESS_KEY = 4096, TZ_PULL_SIGNATURE = 8192,
    TZ_PULL_BYTES = 16384
};

static inline int tz_pull_field(const uint8_t *name, Py_ssize_t size) {
    static const struct { const char *name; int field; } names[] = {
        {"queueOffset", TZ_PULL_OFFSET}, {"commitOffset", TZ_PULL_COMMIT}, {"queueId", TZ_PULL_QUEUE},
        {"consumerGroup", TZ_PULL_GROUP}, {"topic", TZ_PULL_TOPIC}, {"maxMsgNums", TZ_PULL_MOST},
        {"sysFlag", TZ_PULL_FLAGS}, {"suspendTimeoutMillis", TZ_PULL_SUSPEND}, {"subVersion", TZ_PULL_VERSION},
        {"expressionType", TZ_PULL_KIND}, {"subscription", TZ_PULL_SUBSCRIPTION}, {"bname", TZ_PULL_BROKER},
        {"AccessKey", TZ_PULL_ACCESS_KEY}, {"Signature", TZ_PULL_SIGNATURE}, {"maxMsgBytes", TZ_PULL_BYTES},
    };
    size_t i;
    for (i = 0; i < sizeof(names) / sizeof(*names); i++)
        if ((Py_ssize_t)strlen(names[i].name) == size && memcmp(names[i].name, name, size) == 0) return names[i].field;
    return 0;
}

static inline const uint8_t *tz_pull_text(const uint8_t *p, const uint8_t *end, int which, TzPull *pull) {
    const uint8_t *stop = tz_text_end(p, end, 0);
    if (stop != NULL) {
        pull->texts[which] = p;
        pull->sizes[which] = stop - p;
    }
    return stop;
}

/* A number of a pull, which some tools write with zeros in front, to have all their frames of one length. */
static inline const uint8_t *tz_padded(const uint8_t *p, const uint8_t *end, int64_t least, int64_t most, int64_t *value) {
    while (end - p > 1 && *p == '0' && p[1] >= '0' && p[1] <= '9') p++;
    return tz_number(p, end, least, most, value);
}

static inline const uint8_t *tz_pull_value(const uint8_t *p, const uint8_t *end, int field, TzPull *pull) {
    int64_t unused;
    switch (field) {
    case TZ_PULL_QUEUE: return tz_padded(p, end, INT32_MIN, INT32_MAX, &pull->queue_id);
    case TZ_PULL_MOST: return tz_padded(p, end, INT32_MIN, INT32_MAX, &pull->most);
    case TZ_PULL_FLAGS: return tz_padded(p, end, INT32_MIN, INT32_MAX, &pull->sys_flag);
    case TZ_PULL_OFFSET: return tz_padded(p, end, INT64_MIN, INT64_MAX, &pull->offset);
    case TZ_PULL_COMMIT: return tz_padded(p, end, INT64_MIN, INT64_MAX, &pull->commit);
    case TZ_PULL_VERSION: return tz_padded(p, end, INT64_MIN, INT64_MAX, &pull->sub_version);
    case TZ_PULL_BYTES: return tz_padded(p, end, INT32_MIN, INT32_MAX, &unused);
    case TZ_PULL_SUSPEND: return tz_padded(p, end, INT64_MIN, INT64_MAX, &pull->suspend);
    case TZ_PULL_GROUP: return tz_pull_text(p, end, TZ_TEXT_GROUP, pull);
    case TZ_PULL_TOPIC: return tz_pull_text(p, end, TZ_TEXT_TOPIC, pull);
    case TZ_PULL_KIND: return tz_pull_text(p, end, TZ_TEXT_KIND, pull);
    case TZ_PULL_SUBSCRIPTION: return tz_pull_text(p, end, TZ_TEXT_SUBSCRIPTION, pull);
    case TZ_PULL_ACCESS_KEY: return tz_pull_text(p, end, TZ_TEXT_ACCESS_KEY, pull);
    case TZ_PULL_SIGNATURE: return tz_pull_text(p, end, TZ_TEXT_SIGNATURE, pull);
    }
    return tz_text_end(p, end, 0);
}

/* The fields of a pull, behind their opening brace; where they end, behind the closing one, or NULL. */
static inline const uint8_t *tz_pull_fields(const uint8_t *p, const uint8_t *end, void *into) {
    TzPull *pull = into;
    const uint8_t *name;
    int field, seen = 0;
    for (;; p++) {
        if (p >= end || *p++ != '"') return NULL;
        name = p;
        p = memchr(p, '"', end - p);
        if (p == NULL || end - p < 4 || p[1] != ':' || p[2] != '"') return NULL;
        field = tz_pull_field(name, p - name);
        if (field == 0 || seen & field) return NULL;
        seen |= field;
        p = tz_pull_value(p + 3, end, field, pull);
        if (p == NULL || end - p < 2 || *p++ != '"') return NULL;
        if (*p == '}') return (seen & TZ_PULL_NEEDED) == TZ_PULL_NEEDED ? p + 1 : NULL;
        if (*p != ',') return NULL;
    }
}

/* Scans the JSON header of an ordinary pull with a reply; 0 when it is none, or one that takes a reader of all of JSON. */
static int tz_scan_pull(const uint8_t *p, Py_ssize_t size, TzPull *pull) {
    int64_t flag;
    memset(pull, 0, sizeof(*pull));
    if (size < 16 || memcmp(p, "{\"code\":11,", 11) != 0) return 0;
    return tz_scan_header(p + 11, p + size, tz_pull_fields, pull, &flag, &pull->opaque) && flag == 0;
}

#endif

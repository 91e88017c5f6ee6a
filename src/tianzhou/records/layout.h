/* Where the fields of a commit-log record are; printed by `python -m tianzhou.records.layout`. */
#ifndef TIANZHOU_LAYOUT_H
#define TIANZHOU_LAYOUT_H

#define TZ_AT_SIZE 0
#define TZ_AT_MAGIC 4
#define TZ_AT_BODY_CRC 8
#define TZ_AT_QUEUE_ID 12
#define TZ_AT_FLAG 16
#define TZ_AT_QUEUE_OFFSET 20
#define TZ_AT_PHYSICAL_OFFSET 28
#define TZ_AT_SYS_FLAG 36
#define TZ_AT_BORN_TIMESTAMP 40
#define TZ_AT_BORN_HOST 48
#define TZ_AT_BORN_PORT 52
#define TZ_AT_STORE_TIMESTAMP 56
#define TZ_AT_STORE_HOST 64
#define TZ_AT_STORE_PORT 68
#define TZ_AT_RECONSUME_TIMES 72
#define TZ_AT_PREPARED_TRANSACTION_OFFSET 76
#define TZ_AT_BODY_SIZE 84
#define TZ_HEAD_SIZE 88
#define TZ_OVERHEAD 91
#define TZ_UP_TO_PLACE 36
#define TZ_BLANK_SIZE 8
#define TZ_MAGIC_V1 (-626843481)
#define TZ_MAGIC_V2 (-626843477)
#define TZ_TRANSACTION_BITS 12
#define TZ_PREPARED 4
#define TZ_ROLLBACK 12
#define TZ_HOST_BITS 48
#define TZ_INNER_BATCH 128
#define TZ_INNER_BATCH_BITS 192

#endif

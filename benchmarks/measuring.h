// What the load tools share: time, a histogram of latencies, and the CPU time of the server under load.
#ifndef MEASURING_H
#define MEASURING_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

static u64 now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (u64)t.tv_sec * 1000000000ull + t.tv_nsec; }
static void put32(u8 *p, u32 v) { p[0] = v >> 24; p[1] = v >> 16; p[2] = v >> 8; p[3] = v; }
static u32 get32(const u8 *p) { return (u32)p[0] << 24 | (u32)p[1] << 16 | (u32)p[2] << 8 | p[3]; }

// 32 buckets per power of two
static u64 hist[64 * 32];
static void record_ns(u64 ns) { int e = 63 - __builtin_clzll(ns | 1); hist[e < 5 ? (int)ns : (e - 4) * 32 + (int)((ns >> (e - 5)) & 31)]++; }
static double percentile_us(double q) {
  u64 total = 0, seen = 0;
  for (int i = 0; i < 64 * 32; i++) total += hist[i];
  for (int i = 0; i < 64 * 32; i++) if ((seen += hist[i]) > total * q) return (i < 32 ? i : (double)((1ull << (i / 32 + 4)) | ((u64)(i & 31) << (i / 32 - 1)))) / 1e3;
  return 0;
}

static double cpu_of(int pid) { // user and system seconds of a process; 0 when there is none to look at
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *f = pid ? fopen(path, "r") : 0;
  if (!f) return 0;
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = 0;
  char *p = strrchr(text, ')');
  unsigned long user = 0, system = 0;
  if (p) sscanf(p + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
  return (double)(user + system) / sysconf(_SC_CLK_TCK);
}
static double cpu_of_all(const char *pids) { // of a comma list of processes
  double sum = 0;
  for (char *rest; *pids; pids = *rest == ',' ? rest + 1 : "") { sum += cpu_of(strtol(pids, &rest, 10)); }
  return sum;
}
static double own_cpu(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}
static void print_figures(const char *mode, u64 done, double s, u64 bytes, double load_cpu, double server_cpu, u64 bad, u64 late) {
  printf("{\"mode\":\"%s\",\"msgs\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"rx_MBps\":%.1f,\"gen_cpu\":%.2f,\"cpu_us\":%.2f,\"bad\":%lu,\"late\":%lu,\"done\":%lu}\n",
         mode, done / s, percentile_us(.5), percentile_us(.99), percentile_us(.999), bytes / s / 1e6, load_cpu / s, server_cpu * 1e6 / (done ? done : 1), bad, late, done);
}
#endif

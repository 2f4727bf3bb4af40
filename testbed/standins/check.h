/* What the C programs of the test bed share: checks that print one line each (TAP), a fatbin made in memory, and
 * libcuda's private table. No header of NVIDIA's is used: each program declares what it calls. */
#ifndef VGPU_STANDINS_CHECK_H
#define VGPU_STANDINS_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* No program uses all of this. */
#define SHARED static __attribute__((unused))

SHARED int checks, failures;

/* One check of a number. Returns whether it held. */
SHARED int check(const char *name, long long got, long long expected)
{
    checks++;
    if (got == expected) {
        printf("ok %s\n", name);
        return 1;
    }
    failures++;
    printf("not ok %s: got %lld expected %lld\n", name, got, expected);
    return 0;
}

/* One check with two right answers: where CUDA's own versions differ, or its manual leaves it open. */
SHARED int check_either(const char *name, long long got, long long one, long long other)
{
    return check(name, got, got == other ? other : one);
}

SHARED int check_text(const char *name, const char *got, const char *expected)
{
    checks++;
    if (got && strcmp(got, expected) == 0) {
        printf("ok %s\n", name);
        return 1;
    }
    failures++;
    printf("not ok %s: got %s expected %s\n", name, got ? got : "(null)", expected);
    return 0;
}

SHARED int check_true(const char *name, int holds)
{
    return check(name, !!holds, 1);
}

SHARED void skip(const char *name, const char *why)
{
    checks++;
    printf("ok %s # skip %s\n", name, why);
}

/* The last line, and the exit code. */
SHARED int finish(void)
{
    printf("1..%d\n", checks);
    if (failures)
        printf("# %d of %d failed\n", failures, checks);
    fflush(stdout);
    return failures ? 1 : 0;
}

/* What the device is able to do, as the arguments say. */
SHARED int data;       /* "data": it keeps what is copied to it, and streams wait for functions of the host */
SHARED int graphs_run; /* "graphs": it runs them */
SHARED int kernels;    /* "kernels": it accepts code and launches */
SHARED int counted;    /* how many devices there are */

SHARED void abilities(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        data |= strcmp(argv[i], "data") == 0;
        graphs_run |= strcmp(argv[i], "graphs") == 0;
        kernels |= strcmp(argv[i], "kernels") == 0;
    }
}

/* A handle and an address that are none. */
#define BOGUS ((void *)0x123450)
/* The per-thread default stream. */
#define PER_THREAD ((void *)2)

SHARED int is_child; /* exit handlers of a forked child check nothing */

/* Runs `child` in a forked process and answers its exit code, or minus the signal that ended it. */
SHARED int forked(int (*child)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        is_child = 1;
        exit(child()); /* with exit handlers: they must not touch what is the parent's */
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Fills memory with numbers that look random. */
SHARED void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)((seed = seed * 1664525 + 1013904223) >> 24);
}

/* Whether what came back is what went: only where the device keeps data. */
SHARED void same(const char *name, const void *a, const void *b, size_t count)
{
    if (data)
        check(name, memcmp(a, b, count), 0);
    else
        skip(name, "the device keeps no data");
}

/* --- a fatbin with one PTX entry ------------------------------------------------------------------- */

/* What __cudaRegisterFatBinary gets. */
struct fatbin_wrapper {
    uint32_t magic, version;
    const void *data;
    void *rest;
};

struct fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t payload_bytes;
    /* the only entry */
    uint16_t kind, entry_version;
    uint32_t entry_header_bytes;
    uint64_t entry_payload_bytes;
    uint32_t compressed_bytes, unknown;
    uint16_t minor, major;
    uint32_t arch, name_offset, name_bytes;
    uint64_t flags, zero, uncompressed_bytes;
    char text[4096];
};

/* An uncompressed container around PTX text, of PTX version 7.0 for compute capability 5.0. */
SHARED void fatbin_make(struct fatbin *fatbin, const char *text)
{
    size_t bytes = (strlen(text) + 1 + 7) & ~(size_t)7;
    if (bytes > sizeof fatbin->text)
        abort();
    memset(fatbin, 0, sizeof *fatbin);
    fatbin->magic = 0xba55ed50;
    fatbin->version = 1;
    fatbin->header_bytes = 16;
    fatbin->payload_bytes = 64 + bytes;
    fatbin->kind = 1;
    fatbin->entry_version = 0x101;
    fatbin->entry_header_bytes = 64;
    fatbin->entry_payload_bytes = bytes;
    fatbin->major = 7;
    fatbin->arch = 50;
    fatbin->flags = 0x11;
    strcpy(fatbin->text, text);
}

SHARED void fatbin_wrap(struct fatbin_wrapper *wrapper, const struct fatbin *fatbin)
{
    wrapper->magic = 0x466243b1;
    wrapper->version = 1;
    wrapper->data = fatbin;
    wrapper->rest = NULL;
}

/* Code with a kernel of 100 bytes of parameters (twelve of 8 bytes and one of 4), one that adds a number to each of
 * n words, and a variable of 16 bytes. */
SHARED const char PTX[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .global .align 4 .b8 table[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};\n"
    ".visible .entry hundred(\n"
    "  .param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3, .param .u64 p4, .param .u64 p5,\n"
    "  .param .u64 p6, .param .u64 p7, .param .u64 p8, .param .u64 p9, .param .u64 p10, .param .u64 p11,\n"
    "  .param .u32 p12\n"
    ")\n{\n  ret;\n}\n"
    ".visible .entry add(.param .u64 words, .param .u32 n, .param .u32 number)\n{\n"
    "  .reg .pred %p<2>;\n  .reg .b32 %r<8>;\n  .reg .b64 %rd<5>;\n"
    "  ld.param.u64 %rd1, [words];\n  ld.param.u32 %r1, [n];\n  ld.param.u32 %r2, [number];\n"
    "  mov.u32 %r3, %ctaid.x;\n  mov.u32 %r4, %ntid.x;\n  mov.u32 %r5, %tid.x;\n"
    "  mad.lo.s32 %r6, %r3, %r4, %r5;\n  setp.ge.u32 %p1, %r6, %r1;\n  @%p1 bra done;\n"
    "  cvta.to.global.u64 %rd2, %rd1;\n  mul.wide.u32 %rd3, %r6, 4;\n  add.s64 %rd4, %rd2, %rd3;\n"
    "  ld.global.u32 %r7, [%rd4];\n  add.s32 %r7, %r7, %r2;\n  st.global.u32 [%rd4], %r7;\n"
    "done:\n  ret;\n}\n";

/* --- libcuda's private table ------------------------------------------------------------------------ */

struct counters {
    uint64_t messages, round_trips, waits, sleeps, doorbells, bytes_in, bytes_out;
};

struct table {
    size_t bytes;
    uint32_t version, reserved;
    int (*life)(void);
    int (*device_count)(int *);
    int (*device)(int, const void **);
    int (*visible)(int, int *);
    int (*memory_info)(int, uint64_t *, uint64_t *);
    int (*gemm)(void *, const void *);
    int (*solve)(void *, const void *);
    int (*matmul)(void *, const void *);
    int (*vector)(void *, const void *, void *);
    int (*abilities)(uint32_t *);
    int (*counters)(struct counters *);
    int (*done)(uint64_t *);
    int (*echo)(int);
};

static const uint8_t TABLE_UUID[16] = {0x76, 0x67, 0x70, 0x75, 0x2d, 0x72, 0x75, 0x6e,
                                       0x8f, 0x1c, 0x4e, 0x5b, 0xa2, 0x90, 0x37, 0xd1};

extern int cuGetExportTable(const void **table, const void *uuid);

SHARED const struct table *table(void)
{
    const void *found = NULL;
    if (cuGetExportTable(&found, TABLE_UUID) != 0 || !found)
        return NULL;
    const struct table *answer = found;
    return answer->bytes == sizeof *answer && answer->version == 4 ? answer : NULL;
}

/* Messages that the process has sent. */
SHARED uint64_t messages(const struct table *table)
{
    struct counters counters;
    memset(&counters, 0, sizeof counters);
    return table->counters(&counters) == 0 ? counters.messages : UINT64_MAX;
}

#endif

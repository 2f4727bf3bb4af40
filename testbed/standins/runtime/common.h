/* What the parts share. Part of runtime.c. */
#ifndef VGPU_STANDINS_RUNTIME_COMMON_H
#define VGPU_STANDINS_RUNTIME_COMMON_H

#include "common.h"

/* Runs `child` in a forked process and answers its exit code, or minus the signal that ended it. */
static int forked(int (*child)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        exit(child()); /* with exit handlers: they must not touch what is the parent's */
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)((seed = seed * 1664525 + 1013904223) >> 24);
}

/* Whether what came back is what went: only where the device keeps data. */
static void same(const char *name, const void *a, const void *b, size_t count)
{
    if (data)
        check(name, memcmp(a, b, count), 0);
    else
        skip(name, "the device keeps no data");
}

#endif

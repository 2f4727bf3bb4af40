/* Calls for `vgpu-run trace`: one that fails, one in a forked child, and one that never returns. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetCount(int *count);

static void *ask(void *unused) {
    int version;
    for (int call = 0; call < 30000; call++)
        cuDriverGetVersion(&version);
    return unused;
}

int main(void) {
    int number;
    if (cuInit(0) || cuDeviceGetCount(&number) || number < 1)
        return 2;
    if (cuDeviceGet(&number, 99) == 0)
        return 3;
    pthread_t threads[2];
    for (int thread = 0; thread < 2; thread++)
        pthread_create(&threads[thread], 0, ask, 0);
    for (int thread = 0; thread < 2; thread++)
        pthread_join(threads[thread], 0);
    pid_t child = fork();
    if (child == 0) {
        cuDeviceGetCount(&number);
        _exit(0);
    }
    waitpid(child, 0, 0);
    /* No such address: the process dies inside the call. */
    cuDeviceGetCount((int *)8);
    return 4;
}

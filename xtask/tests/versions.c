/* Loads libraries of the runtime into one process, each with names of its own, and prints what each answers to
 * cudaRuntimeGetVersion: found by its name alone, and by name and version. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **sonames)
{
    void *objects[8];
    if (count > 8) return 2;
    for (int i = 1; i < count; i++) {
        objects[i] = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
        if (!objects[i]) { fprintf(stderr, "%s\n", dlerror()); return 3; }
    }
    for (int i = 1; i < count; i++) {
        int (*plain)(int *) = (int (*)(int *))dlsym(objects[i], "cudaRuntimeGetVersion");
        int (*versioned)(int *) = (int (*)(int *))dlvsym(objects[i], "cudaRuntimeGetVersion", sonames[i]);
        int found[2] = {0, 0};
        if (!plain || plain != versioned) return 4;
        if (plain(&found[0]) || versioned(&found[1]) || found[0] != found[1]) return 5;
        printf("%s %d\n", sonames[i], found[0] / 1000);
    }
    return 0;
}

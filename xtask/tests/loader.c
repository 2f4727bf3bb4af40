/* Calls stubs through the real loader: loader OBJECT NAME STATUS calls a status function twice and fails
 * unless both answers are STATUS; `float`, `struct` and `data` in place of STATUS expect zeros of those kinds. */
#include <complex.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct description {
    int x, y, z, w, kind;
};

int main(int count, char **arguments)
{
    if (count != 4) return 2;
    void *object = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!object) { fprintf(stderr, "%s\n", dlerror()); return 3; }
    void *symbol = dlsym(object, arguments[2]);
    if (!symbol) { fprintf(stderr, "%s\n", dlerror()); return 4; }
    const char *kind = arguments[3];
    for (int call = 0; call < 2; call++) {
        if (!strcmp(kind, "float")) {
            double complex (*function)(int) = (double complex (*)(int))symbol;
            if (function(7) != 0) return 5;
        } else if (!strcmp(kind, "struct")) {
            struct description (*function)(int) = (struct description (*)(int))symbol;
            struct description answer = function(7);
            static const struct description none;
            if (memcmp(&answer, &none, sizeof none)) return 5;
        } else if (!strcmp(kind, "data")) {
            *(volatile int *)symbol += call;
        } else {
            int (*function)(void *, long, double) = (int (*)(void *, long, double))symbol;
            int answer = function(&answer, 1, 2.0);
            if (answer != atoi(kind)) { fprintf(stderr, "answer %d\n", answer); return 5; }
        }
    }
    return 0;
}

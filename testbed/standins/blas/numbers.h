/* What comes out of products and solves. All numbers are small and whole, and so are the sums: every type holds them, so that
 * each result has one right answer, to the bit but for the sign of nought. */

/* How a batch is handed in. */
enum form { PLAIN, STRIDED, ARRAYS };

/* A number of a type that is here, at most this long. */
#define LONGEST 8

static size_t type_bytes(int type)
{
    return type == R_64F ? 8 : type == R_16F || type == R_16BF ? 2 : type == R_8I ? 1 : 4;
}

/* A half of a number that has one. */
static uint16_t half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = (bits >> 16) & 0x8000, exponent = ((bits >> 23) & 255) - 112, fraction = (bits >> 13) & 1023;
    return value == 0 ? 0 : (uint16_t)(sign | (exponent << 10) | fraction);
}

static void put(void *place, int type, double value)
{
    value = value == 0 ? 0 : value;
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    uint16_t narrow = type == R_16F ? half(single) : (uint16_t)(bits >> 16);
    int32_t whole = (int32_t)value;
    const void *bytes = type == R_64F ? (void *)&value : type == R_32F ? (void *)&single
        : type == R_32I || type == R_8I ? (void *)&whole : (void *)&narrow;
    memcpy(place, bytes, type_bytes(type));
}

/* Whole numbers from -3 to 3 without a pattern. */
static double any(void)
{
    static uint32_t seed = 1;
    seed = seed * 1664525 + 1013904223;
    return (int)((seed >> 16) % 7) - 3;
}

/* What the tests of numbers use of device memory: three matrices of a batch, arrays of their addresses, two scalars. */
#define ROOM (4 << 20)
#define COUNT 3
static char *device_memory;
static char *matrices_at(int which)
{
    return device_memory + ROOM * (size_t)which;
}
static char *arrays_at(int which)
{
    return device_memory + 3 * ROOM + 64 * which;
}
static char *scalars_at(int which)
{
    return device_memory + 3 * ROOM + 512 + 64 * which;
}

/* A matrix of whole numbers for each product of a batch, here and on the device. */
struct matrices {
    int which, type, rows, columns, lead;
    size_t count; /* of elements, from one product's matrix to the next's */
    double *numbers;
    char *bytes;
};

static struct matrices make(int which, int type, int rows, int columns)
{
    struct matrices made = {which, type, rows, columns, rows + which + 1, 0, NULL, NULL};
    made.count = (size_t)made.lead * (size_t)columns + 5;
    size_t all = made.count * COUNT;
    made.numbers = malloc(all * sizeof *made.numbers);
    made.bytes = malloc(all * LONGEST);
    if (!made.numbers || !made.bytes || all * type_bytes(type) > ROOM)
        abort();
    for (size_t i = 0; i < all; i++)
        made.numbers[i] = any();
    return made;
}

static double *at(struct matrices *matrices, int product, int row, int column)
{
    return &matrices->numbers[(size_t)product * matrices->count + (size_t)column * (size_t)matrices->lead + (size_t)row];
}

/* Makes the device's numbers these. */
static void send(struct matrices *matrices)
{
    size_t all = matrices->count * COUNT, bytes = type_bytes(matrices->type);
    for (size_t i = 0; i < all; i++)
        put(matrices->bytes + i * bytes, matrices->type, matrices->numbers[i]);
    char *addresses[COUNT];
    for (int i = 0; i < COUNT; i++)
        addresses[i] = matrices_at(matrices->which) + (size_t)i * matrices->count * bytes;
    int status = cuMemcpyHtoD_v2(matrices_at(matrices->which), matrices->bytes, all * bytes);
    status |= cuMemcpyHtoD_v2(arrays_at(matrices->which), addresses, sizeof addresses);
    if (status)
        check("copying to the device", status, 0);
}

/* Whether the device's numbers are these, those between the matrices too. */
static void agree(const char *name, struct matrices *matrices)
{
    size_t all = matrices->count * COUNT * type_bytes(matrices->type), bytes = type_bytes(matrices->type);
    char *found = malloc(all);
    if (!found)
        abort();
    check_either("copying from the device", cuMemcpyDtoH_v2(found, matrices_at(matrices->which), all), 0, 0);
    size_t wrong = 0;
    for (size_t i = 0; i < all; i += bytes) {
        put(matrices->bytes + i, matrices->type, matrices->numbers[i / bytes]);
        /* A nought may have either sign. */
        if (matrices->numbers[i / bytes] == 0 && matrices->type != R_32I)
            found[i + bytes - 1] &= 0x7f;
        wrong += memcmp(found + i, matrices->bytes + i, bytes) != 0;
    }
    check(name, (long long)wrong, 0);
    free(found);
}

static void drop(struct matrices *matrices)
{
    free(matrices->numbers);
    free(matrices->bytes);
}

/* A product: types of A and B, of C, what is computed in, type of the scalars. */
static void product(enum form form, int on_device, const int types[4], const int ops[2], int m, int n, int k)
{
    char name[160];
    double factors[2] = {2, -1};
    char scalars[2][LONGEST];
    struct matrices a = ops[0] ? make(0, types[0], k, m) : make(0, types[0], m, k);
    struct matrices b = ops[1] ? make(1, types[0], n, k) : make(1, types[0], k, n);
    struct matrices c = make(2, types[1], m, n);
    in alpha = scalars[0], beta = scalars[1];
    send(&a), send(&b), send(&c);
    for (int i = 0; i < 2; i++) {
        put(scalars[i], types[3], factors[i]);
        if (cuMemcpyHtoD_v2(scalars_at(i), scalars[i], LONGEST))
            abort();
    }
    if (on_device)
        alpha = scalars_at(0), beta = scalars_at(1);
    cublasSetPointerMode_v2(handle, on_device);
    int status = form == PLAIN
        ? cublasGemmEx(handle, ops[0], ops[1], m, n, k, alpha, matrices_at(0), types[0], a.lead, matrices_at(1), types[0],
                       b.lead, beta, matrices_at(2), types[1], c.lead, types[2], -1)
        : form == STRIDED
        ? cublasGemmStridedBatchedEx(handle, ops[0], ops[1], m, n, k, alpha, matrices_at(0), types[0], a.lead,
                                     (stride)a.count, matrices_at(1), types[0], b.lead, (stride)b.count, beta,
                                     matrices_at(2), types[1], c.lead, (stride)c.count, COUNT, types[2], -1)
        : cublasGemmBatchedEx_64(handle, ops[0], ops[1], m, n, k, alpha, arrays_at(0), types[0], a.lead, arrays_at(1),
                                 types[0], b.lead, beta, arrays_at(2), types[1], c.lead, COUNT, types[2], -1);
    cublasSetPointerMode_v2(handle, 0);
    snprintf(name, sizeof name, "product of %d types %d %d in %d, operations %d %d, %d x %d x %d", form, types[0], types[1],
             types[2], ops[0], ops[1], m, n, k);
    check(name, status, OK);
    for (int i = 0; i < (form == PLAIN ? 1 : COUNT); i++)
        for (int column = 0; column < n; column++)
            for (int row = 0; row < m; row++) {
                double sum = 0, *old = at(&c, i, row, column);
                for (int depth = 0; depth < k; depth++)
                    sum += *(ops[0] ? at(&a, i, depth, row) : at(&a, i, row, depth))
                        * *(ops[1] ? at(&b, i, column, depth) : at(&b, i, depth, column));
                *old = factors[0] * sum + factors[1] * *old;
            }
    strcat(name, ": numbers");
    agree(name, &c);
    drop(&a), drop(&b), drop(&c);
}

/* A solve in f32: B is made from a solution, and the diagonal of A of powers of two. */
static void triangle(int batched, int side, int fill, int operation, int unit, int m, int n)
{
    static const double DIAGONAL[4] = {1, -2, 4, 0.5};
    char name[160];
    int order = side ? n : m, count = batched ? COUNT : 1;
    const float alpha = 2;
    struct matrices a = make(0, R_32F, order, order), b = make(1, R_32F, m, n), x = make(1, R_32F, m, n);
    memcpy(b.numbers, x.numbers, x.count * COUNT * sizeof *x.numbers);
    for (int i = 0; i < COUNT; i++)
        for (int column = 0; column < order; column++)
            for (int row = 0; row < order; row++) {
                double *number = at(&a, i, row, column);
                if (row == column)
                    *number = unit ? 1 : DIAGONAL[(row + i) % 4];
                else if (fill ? row > column : row < column)
                    *number = 0;
            }
    for (int i = 0; i < count; i++)
        for (int column = 0; column < n; column++)
            for (int row = 0; row < m; row++) {
                double sum = 0;
                for (int depth = 0; depth < order; depth++) {
                    int from = side ? depth : row, to = side ? column : depth;
                    double factor = *(operation ? at(&a, i, to, from) : at(&a, i, from, to));
                    sum += factor * *(side ? at(&x, i, row, depth) : at(&x, i, depth, column));
                }
                *at(&b, i, row, column) = sum / alpha;
            }
    /* What is not of the triangle does not count. */
    for (int i = 0; i < COUNT; i++)
        for (int column = 0; column < order; column++)
            for (int row = 0; row < order; row++)
                if ((row == column && unit) || (row != column && (fill ? row > column : row < column)))
                    *at(&a, i, row, column) = 1000;
    send(&a), send(&b);
    int status = batched
        ? cublasStrsmBatched(handle, side, fill, operation, unit, m, n, &alpha, arrays_at(0), a.lead, arrays_at(1), b.lead, COUNT)
        : cublasStrsm_v2(handle, side, fill, operation, unit, m, n, &alpha, matrices_at(0), a.lead, matrices_at(1), b.lead);
    snprintf(name, sizeof name, "solve %d, side %d fill %d operation %d unit %d, %d x %d", batched, side, fill, operation, unit, m, n);
    check(name, status, OK);
    strcat(name, ": numbers");
    agree(name, &x);
    drop(&a), drop(&b), drop(&x);
}

/* A product with a vector in f32; vectors are rows of matrices, of which the first counts. */
static void vector(int operation, int m, int n, int gaps)
{
    char name[160];
    int depth = operation ? m : n, length = operation ? n : m;
    const float alpha = 3, beta = -2;
    struct matrices a = make(0, R_32F, m, n);
    struct matrices x = gaps ? make(1, R_32F, 1, depth) : make(1, R_32F, depth, 1);
    struct matrices y = gaps > 1 ? make(2, R_32F, 1, length) : make(2, R_32F, length, 1);
    send(&a), send(&x), send(&y);
    int status = cublasSgemv_v2(handle, operation, m, n, &alpha, matrices_at(0), a.lead, matrices_at(1), gaps ? x.lead : 1, &beta,
                                matrices_at(2), gaps > 1 ? y.lead : 1);
    snprintf(name, sizeof name, "product with a vector, operation %d, %d x %d, gaps %d", operation, m, n, gaps);
    check(name, status, OK);
    for (int i = 0; i < length; i++) {
        double sum = 0, *old = gaps > 1 ? at(&y, 0, 0, i) : at(&y, 0, i, 0);
        for (int j = 0; j < depth; j++)
            sum += *(operation ? at(&a, 0, j, i) : at(&a, 0, i, j)) * *(gaps ? at(&x, 0, 0, j) : at(&x, 0, j, 0));
        *old = alpha * sum + beta * *old;
    }
    strcat(name, ": numbers");
    agree(name, &y);
    /* And the result scaled. */
    check("cublasSscal_v2", cublasSscal_v2(handle, length, &beta, matrices_at(2), gaps > 1 ? y.lead : 1), OK);
    for (int i = 0; i < length; i++)
        *(gaps > 1 ? at(&y, 0, 0, i) : at(&y, 0, i, 0)) *= beta;
    agree("cublasSscal_v2: numbers", &y);
    drop(&a), drop(&x), drop(&y);
}

static void numbers(void)
{
    static const int KINDS[][4] = {
        {R_32F, R_32F, AS_32F, R_32F}, {R_32F, R_32F, AS_TF32, R_32F}, {R_16F, R_32F, AS_32F, R_32F},
        {R_16F, R_16F, AS_32F, R_32F}, {R_16F, R_16F, AS_16F, R_16F}, {R_16BF, R_32F, AS_32F, R_32F},
        {R_16BF, R_16BF, AS_32F, R_32F}, {R_64F, R_64F, AS_64F, R_64F}, {R_8I, R_32I, AS_32I, R_32I},
        {R_8I, R_32F, AS_32F, R_32F},
    };
    static const int OPS[][2] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 2}};
    for (size_t kind = 0; kind < sizeof KINDS / sizeof *KINDS; kind++)
        for (size_t ops = 0; ops < sizeof OPS / sizeof *OPS; ops++)
            for (int form = PLAIN; form <= ARRAYS; form++)
                /* The sums stay below 256, up to which bf16 has every whole number. */
                product((enum form)form, (int)ops & 1, KINDS[kind], OPS[ops], 5, 7, 11);
    product(PLAIN, 0, KINDS[0], OPS[1], 300, 270, 600);
    product(STRIDED, 1, KINDS[2], OPS[2], 130, 1, 700);
    product(PLAIN, 0, KINDS[0], OPS[0], 4, 5, 0);
    for (int bits = 0; bits < 32; bits++)
        triangle(bits & 1, bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1, bits >> 4, 7, 5);
    for (int operation = 0; operation < 3; operation++)
        for (int gaps = 0; gaps < 3; gaps++)
            vector(operation, 19, 300, gaps);
}

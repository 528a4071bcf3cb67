/* One lookup of one key in one function, from the Python object to the answer.
 *
 * In: a key and checked vectors, newest first; out: whether one of them reports it, or -1: the key is
 * none of those that hash_python.h knows.
 *
 * The cost of a lookup beside Python's own loop is the number of instructions before the next lookup
 * can begin: the processor works on some 300 at a time, and while a line is on its way from memory
 * only those go on. So the usual case, one blocked vector, has a function of its own, without an
 * instruction for other cases.
 *
 * Not here: whether the vectors may be asked at all (single_key.pxi).
 */
#ifndef BLOOMSTORE_SINGLE_KEY_H
#define BLOOMSTORE_SINGLE_KEY_H

#include "hash_python.h"
#include "vector.h"
#include "line_avx2.h"

/* A program that asks rarely finds nothing of this in the caches: the fields of the usual case stand
 * together at the front. */
typedef struct bloom_one {
    int (*ask)(const struct bloom_one *, PyObject *);
    bloom_seeds seeds;
    unsigned hashes; /* of the one blocked vector */
    const uint8_t *bits;
    uint64_t lines;
    const bloom_vector *vectors;
    size_t count;
} bloom_one;

static inline int bloom_any_has(
    const bloom_vector *vectors, size_t count, uint64_t h1, uint64_t h2
) {
    size_t i;
    for (i = 0; i < count; i++)
        if (bloom_has(vectors + i, h1, h2)) return 1;
    return 0;
}

BLOOM_APART static int bloom_ask_any(const bloom_one *one, PyObject *key) {
    bloom_print made;
    if (!bloom_print_of(key, &one->seeds, &made)) return -1;
    return bloom_any_has(one->vectors, one->count, made.h1, made.h2);
}

#if BLOOM_HAS_WIDE
/* One blocked vector. No function is called; keys that need one are left to bloom_ask_any. */
BLOOM_AVX2 static int bloom_ask_wide(const bloom_one *one, PyObject *key) {
    bloom_print made;
    if (!bloom_print_if(key, &one->seeds, &made, 0)) return bloom_ask_any(one, key);
    return bloom_wide_has(
        one->bits + bloom_high64(made.h1, one->lines) * 64, made.h1, made.h2, one->hashes);
}
#endif

/* Chooses the function that asks these vectors. */
static inline void bloom_point_at(bloom_one *one, const bloom_vector *vectors, size_t count) {
    one->vectors = vectors;
    one->count = count;
    one->ask = bloom_ask_any;
#if BLOOM_HAS_WIDE
    if (count == 1 && vectors->kind == BLOOM_BLOCKED && bloom_width >= BLOOM_256
        && vectors->hashes <= BLOOM_WIDE_HASHES) {
        one->ask = bloom_ask_wide;
        one->hashes = vectors->hashes;
        one->bits = vectors->bits;
        one->lines = vectors->lines;
    }
#endif
}

#endif

/* The fingerprints of many keys that lie in one buffer: integers, or text between offsets.
 *
 * In: the buffer and Murmur's seed; out: two words per key. Threads take keys of their own.
 *
 * Not here: Murmur (murmur.h), keys that are Python objects (pykey.h).
 */
#ifndef BLOOMSTORE_PRINTS_H
#define BLOOMSTORE_PRINTS_H

#include "murmur.h"
#include "threads.h"
#include "wide_murmur.h"

typedef struct {
    const uint64_t *keys; /* NULL: slices are given */
    const uint8_t *text;
    int64_t length;
    const int64_t *offsets; /* n + 1 of them, from outside: not checked yet */
    uint32_t seed;
    size_t n;
    uint64_t *out;
    size_t done; /* fewer than n: the next slice is not inside of the text */
} bloom_buffer;

static inline void bloom_put_print(uint64_t *out, bloom_print made) {
    out[0] = made.h1;
    out[1] = made.h2;
}

static void bloom_print_buffer(void *job) {
    bloom_buffer *given = (bloom_buffer *)job;
    uint64_t *out = given->out;
    size_t i, n = given->n;
    if (given->keys) {
        bloom_print_integers(given->keys, n, given->seed, out);
        i = n;
    } else {
        for (i = 0; i < n; i++) {
            int64_t start = given->offsets[i], end = given->offsets[i + 1];
            if (start < 0 || end < start || end > given->length) break;
            bloom_put_print(
                out + 2 * i, bloom_murmur(given->text + start, (size_t)(end - start), given->seed));
        }
    }
    given->done = i;
}

/* Hashes all keys in so many threads; returns how many were hashed up to the first wrong slice. */
static size_t bloom_prints_of_buffer(const bloom_buffer *all, unsigned parts) {
    bloom_buffer given[BLOOM_MOST_PARTS];
    unsigned part;
    for (part = 0; part < parts; part++) {
        size_t start = bloom_part_start(all->n, part, parts);
        given[part] = *all;
        given[part].n = bloom_part_start(all->n, part + 1, parts) - start;
        given[part].out += 2 * start;
        if (all->keys) given[part].keys += start;
        else given[part].offsets += start;
    }
    bloom_do_all(bloom_print_buffer, given, sizeof *given, parts);
    for (part = 0; part < parts; part++)
        if (given[part].done < given[part].n)
            return bloom_part_start(all->n, part, parts) + given[part].done;
    return all->n;
}

#endif

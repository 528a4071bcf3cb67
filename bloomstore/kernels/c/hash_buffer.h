/* The fingerprints of many keys that lie in one buffer: integers, or text between offsets.
 *
 * In: the buffer and Murmur's seed; out: two words per key. Threads take keys of their own.
 *
 * Not here: Murmur (murmur.h), keys that are Python objects (hash_python.h).
 */
#ifndef BLOOMSTORE_HASH_BUFFER_H
#define BLOOMSTORE_HASH_BUFFER_H

#include "murmur.h"
#include "threads.h"
#include "murmur_avx512.h"
#include "text_avx512.h"

typedef struct {
    const uint64_t *keys; /* NULL: slices are given */
    const uint8_t *text;
    int64_t length;
    const int64_t *offsets; /* n + 1 of them, from outside: not checked yet */
    uint32_t seed;
    size_t n;
    uint64_t *out;
    size_t done; /* fewer than n: the next slice is not inside the text */
} bloom_buffer;

static inline void bloom_put_print(uint64_t *out, bloom_print made) {
    out[0] = made.h1;
    out[1] = made.h2;
}

static BLOOM_INLINE int bloom_is_inside(const bloom_buffer *given, size_t i) {
    int64_t start = given->offsets[i], end = given->offsets[i + 1];
    return start >= 0 && end >= start && end <= given->length;
}

#if BLOOM_HAS_WIDE
/* The fingerprints of the slices from `at` on, which is a short one: as many as go together. */
BLOOM_AVX512 static size_t bloom_print_short_slices(const bloom_buffer *given, size_t at) {
    bloom_texts texts;
    size_t i, n = given->n - at < BLOOM_TEXTS ? given->n - at : BLOOM_TEXTS;
    for (i = 0; i < n && bloom_is_inside(given, at + i); i++) {
        const int64_t *offsets = given->offsets + at + i;
        if (offsets[1] - offsets[0] > BLOOM_TEXT_BYTES) break;
        bloom_put_text(&texts, i, given->text + offsets[0], (size_t)(offsets[1] - offsets[0]));
    }
    bloom_print_texts(&texts, i, given->seed, given->out + 2 * at);
    return i;
}
#endif

/* The fingerprints of all slices up to the first that is not inside the text. */
static size_t bloom_print_slices(const bloom_buffer *given) {
    size_t i = 0;
    while (i < given->n && bloom_is_inside(given, i)) {
        const uint8_t *from = given->text + given->offsets[i];
        size_t bytes = (size_t)(given->offsets[i + 1] - given->offsets[i]);
#if BLOOM_HAS_WIDE
        if (bytes <= BLOOM_TEXT_BYTES && bloom_width >= BLOOM_512) {
            i += bloom_print_short_slices(given, i);
            continue;
        }
#endif
        bloom_put_print(given->out + 2 * i, bloom_murmur(from, bytes, given->seed));
        i++;
    }
    return i;
}

static void bloom_print_buffer(void *job) {
    bloom_buffer *given = (bloom_buffer *)job;
    if (given->keys) {
        bloom_print_integers(given->keys, given->n, given->seed, given->out);
        given->done = given->n;
    } else {
        given->done = bloom_print_slices(given);
    }
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

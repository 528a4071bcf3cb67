/* Large adds by several threads, without atomics: each sets the bits of its own lines or slices.
 *
 * In: a checked vector and fingerprints; out: the bits, marks and counts that bloom_insert (insert.h)
 * gives.
 *
 * Every thread goes through all keys in order and skips the lines or slices of the others. So each
 * bit is set by the first key that has it, as with one thread, and marks and counts are the same.
 *
 *     blocked   a key is one line and belongs to the thread that has the line
 *     sliced    a thread computes the hashes of its slices only
 *     plain     not here: every thread would compute all hashes, and two took four times the
 *               processor time of one
 *
 * Invariants
 *   1. No byte of the vector is read or written by two threads, not even to set nothing.
 *   2. Each thread has marks of its own, joined at the end: marks of neighbouring keys share a line,
 *      which two writers would take from each other.
 *
 * Half of the lines of 10^6 keys take 4.8 ns per key, all of them by one thread 7.3; of 10^7 keys 6.0
 * and 10.6. Four of seven slices take 17 and all of them 27.
 */
#ifndef BLOOMSTORE_INSERT_THREADS_H
#define BLOOMSTORE_INSERT_THREADS_H

#include <stdlib.h>

#include "insert.h"
#include "threads.h"

/* Keys looked through together for those of one thread. Byte by byte half of the lines take 6.0
 * ns per key with 32, 6.4 with 16, 6.7 with 64. */
#ifndef BLOOM_SET_WINDOW
#define BLOOM_SET_WINDOW 32
#endif

typedef struct {
    const bloom_vector *v;
    const uint64_t *prints;
    size_t n;
    uint64_t first, end; /* of a blocked vector lines, else slices */
    uint8_t *is_new;     /* zeros for n keys, or NULL if not wanted */
    int64_t bits;
} bloom_share;

/* The least h1 whose line is this one or a later one, of the lines 1 .. count - 1. */
static uint64_t bloom_least_of_line(uint64_t line, uint64_t count) {
    uint64_t least = 0, step;
    for (step = UINT64_C(1) << 63; step; step >>= 1)
        if (bloom_high64(least + step - 1, count) < line) least += step;
    return least;
}

/* Picks this thread's keys out of each window, asks for their lines, then sets the bits. h1 shows
 * whose a key is: one comparison, where the number of the line would need a multiplication. */
static BLOOM_INLINE int64_t bloom_share_lines(
    bloom_line_setter set, const bloom_share *share, unsigned hashes
) {
    const bloom_vector v = *share->v;
    uint64_t least = share->first ? bloom_least_of_line(share->first, v.lines) : 0;
    uint64_t most = share->end < v.lines ? bloom_least_of_line(share->end, v.lines) - 1 : UINT64_MAX;
    uint16_t ours[BLOOM_SET_WINDOW + 1];
    uint8_t *lines[BLOOM_SET_WINDOW];
    int64_t total = 0;
    size_t start;
    for (start = 0; start < share->n; start += BLOOM_SET_WINDOW) {
        const uint64_t *prints = share->prints + 2 * start;
        unsigned i, keys = 0, window = BLOOM_SET_WINDOW;
        if (share->n - start < window) window = (unsigned)(share->n - start);
        for (i = 0; i < window; i++) {
            ours[keys] = (uint16_t)i;
            keys += prints[2 * i] - least <= most - least; /* a branch would be mispredicted */
        }
        for (i = 0; i < keys; i++) {
            lines[i] = v.bits + 64 * bloom_high64(prints[2 * (size_t)ours[i]], v.lines);
            BLOOM_PREFETCH_TO_WRITE(lines[i]);
        }
        for (i = 0; i < keys; i++) {
            const uint64_t *print = prints + 2 * (size_t)ours[i];
            unsigned bits = set(lines[i], print[0], print[1], hashes);
            if (share->is_new) share->is_new[start + ours[i]] = bits != 0;
            total += bits;
        }
    }
    return total;
}

static int64_t bloom_share_bytes(const bloom_share *share) {
    int64_t total = 0;
    BLOOM_WITH_CONSTANT(
        share->v->hashes, total = bloom_share_lines(bloom_line_set, share, hashes))
    return total;
}

#if BLOOM_HAS_WIDE
BLOOM_AVX2 static int64_t bloom_share_wide(const bloom_share *share) {
    int64_t total = 0;
    BLOOM_WITH_CONSTANT(
        share->v->hashes, total = bloom_share_lines(bloom_wide_set, share, hashes))
    return total;
}
#endif

/* Keys of a sliced vector: the bits of hashes first .. end - 1 only. */
static int64_t bloom_share_slices(const bloom_share *share) {
    const bloom_vector v = *share->v;
    unsigned from = (unsigned)share->first, to = (unsigned)share->end, j;
    bloom_queue queue;
    int64_t total = 0;
    size_t i;
    for (i = 0; i < share->n + BLOOM_AHEAD; i++) {
        uint64_t *addresses = queue.addresses[i % BLOOM_AHEAD];
        if (i >= BLOOM_AHEAD) {
            unsigned bits = 0;
            for (j = from; j < to; j++) {
                uint8_t *byte = v.bits + (addresses[j] >> 3), bit = 1u << (addresses[j] & 7);
                bits += !(*byte & bit);
                *byte |= bit;
            }
            if (share->is_new) share->is_new[i - BLOOM_AHEAD] = bits != 0;
            total += bits;
        }
        if (i < share->n) {
            const uint64_t *print = share->prints + 2 * i;
            bloom_some_addresses(&v, print[0], print[1], from, to, addresses);
            for (j = from; j < to; j++) BLOOM_PREFETCH_TO_WRITE(v.bits + (addresses[j] >> 3));
        }
    }
    return total;
}

static void bloom_do_share(void *job) {
    bloom_share *share = (bloom_share *)job;
    if (share->v->kind != BLOOM_BLOCKED) share->bits = bloom_share_slices(share);
#if BLOOM_HAS_WIDE
    else if (bloom_width >= BLOOM_256) share->bits = bloom_share_wide(share);
#endif
    else share->bits = bloom_share_bytes(share);
}

/* How many threads can share an add to this vector, of those that there may be. */
static inline unsigned bloom_shares_of(const bloom_vector *v, unsigned threads) {
    uint64_t most = v->kind == BLOOM_BLOCKED ? v->lines : v->step_bits ? v->hashes : 1;
    if (most > BLOOM_MOST_PARTS) most = BLOOM_MOST_PARTS;
    return threads < most ? threads : (unsigned)most;
}

/* Sets the bits of all keys in 2 .. bloom_shares_of(v) threads; returns how many were not set.
 * `is_new` may be NULL. -1, and nothing is set: no memory. */
static int64_t bloom_insert_in_parts(
    const bloom_vector *v, const uint64_t *prints, size_t n, uint8_t *is_new, unsigned parts
) {
    bloom_share shares[BLOOM_MOST_PARTS];
    uint8_t *marks = NULL;
    int64_t total = 0;
    unsigned part;
    size_t i, things = v->kind == BLOOM_BLOCKED ? v->lines : v->hashes;
    if (is_new) {
        marks = (uint8_t *)calloc(parts - 1, n);
        if (!marks) return -1;
        memset(is_new, 0, n);
    }
    for (part = 0; part < parts; part++) {
        bloom_share *share = shares + part;
        share->v = v;
        share->prints = prints;
        share->n = n;
        share->first = bloom_part_start(things, part, parts);
        share->end = bloom_part_start(things, part + 1, parts);
        share->is_new = part && marks ? marks + (part - 1) * n : is_new;
    }
    bloom_do_all(bloom_do_share, shares, sizeof *shares, parts);
    for (part = 0; part < parts; part++) {
        total += shares[part].bits;
        if (part && marks)
            for (i = 0; i < n; i++) is_new[i] |= marks[(part - 1) * n + i];
    }
    free(marks);
    return total;
}

/* The same as bloom_insert, by so many threads, each worth `least` keys. Only one can stop at a
 * limit: several take keys that fit even if all their bits are new, as long as there are enough of
 * them (and memory for their marks). */
static void bloom_insert_shared(
    const bloom_vector *v, const uint64_t *prints, size_t n, uint8_t *is_new, bloom_change *change,
    unsigned threads, size_t least
) {
    size_t taken = 0, i;
    bloom_change rest;
    for (;;) {
        int64_t fit = (change->bits_left - change->bits) / (int64_t)v->hashes, bits;
        size_t keys = n - taken;
        unsigned parts;
        if (fit > change->keys_left) fit = change->keys_left;
        if (fit < (int64_t)keys) keys = fit < 0 ? 0 : (size_t)fit;
        parts = bloom_shares_of(v, keys / least < threads ? (unsigned)(keys / least) : threads);
        if (parts < 2) break;
        bits = bloom_insert_in_parts(v, prints + 2 * taken, keys, is_new + taken, parts);
        if (bits < 0) break;
        for (i = taken; i < taken + keys; i++) change->keys_left -= is_new[i];
        change->bits += bits;
        taken += keys;
    }
    rest = *change;
    rest.bits_left -= rest.bits;
    rest.bits = 0;
    bloom_insert(v, prints + 2 * taken, n - taken, is_new + taken, &rest);
    change->keys_left = rest.keys_left;
    change->bits += rest.bits;
    change->taken = (int64_t)taken + rest.taken;
}

#endif

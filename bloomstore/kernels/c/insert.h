/* Loops over many fingerprints that set bits: insert, apply, one add, and flags of touched blocks.
 *
 * In: a checked vector (vector.h) and fingerprints as pairs of words; out: set bits and what they
 * changed, equal to those of numpy_twin.py. No Python object is touched, so it all runs without the
 * GIL.
 *
 * Memory decides the speed. A probe of a large vector waits about 100 ns for a cache line, but many
 * lines can be on their way at once: every loop here first computes addresses for a number of keys
 * and asks for their lines (prefetch), and only then looks at the bits.
 *
 * Invariants
 *   1. insert, apply and add only set bits of a vector; mark sets flags and leaves the vector alone.
 *   2. insert goes through the keys in order, because each key depends on the ones before it.
 *
 * Not here: what adding would change (preview.h), counting (count.h), lookups (find.h), the meaning
 * of addresses (vector.h), checks of arguments (compiled.pyx).
 */
#ifndef BLOOMSTORE_INSERT_H
#define BLOOMSTORE_INSERT_H

#include "insert_blocked.h"
#include "vector.h"

/* Keys whose lines are on their way while one key is inserted. */
#ifndef BLOOM_AHEAD
#define BLOOM_AHEAD 16
#endif

typedef struct {
    int64_t bits_left;
    int64_t keys_left;
    int64_t taken; /* keys gone through */
    int64_t bits;  /* bits newly set by them */
} bloom_change;

/* The addresses of the next BLOOM_AHEAD keys, each computed once, when its lines are asked for. */
typedef struct {
    uint64_t addresses[BLOOM_AHEAD][BLOOM_MAX_HASHES];
} bloom_queue;

static BLOOM_INLINE const uint64_t *bloom_queue_key(
    bloom_queue *queue, const bloom_vector *v, const uint64_t *prints, size_t i, int to_write
) {
    uint64_t *addresses = queue->addresses[i % BLOOM_AHEAD];
    unsigned j, lines = v->kind == BLOOM_BLOCKED ? 1 : v->hashes;
    bloom_addresses(v, prints[2 * i], prints[2 * i + 1], addresses);
    for (j = 0; j < lines; j++) {
        if (to_write) BLOOM_PREFETCH_TO_WRITE(v->bits + (addresses[j] >> 3));
        else BLOOM_PREFETCH(v->bits + (addresses[j] >> 3));
    }
    return addresses;
}

/* Whether one more new key may come. */
static inline int bloom_fits(const bloom_change *change, unsigned hashes) {
    return change->bits_left - change->bits >= (int64_t)hashes && change->keys_left >= 1;
}

/* The same as bloom_insert below for a blocked vector: a key is one line, so only pointers to
 * lines wait in the queue. */
static BLOOM_INLINE void bloom_insert_lines(
    const bloom_vector *v, unsigned hashes, const uint64_t *prints, size_t n, uint8_t *is_new,
    bloom_change *change
) {
    uint8_t *lines[BLOOM_AHEAD], *bits_of_all = v->bits;
    uint64_t count = v->lines;
    int64_t bits_left = change->bits_left, keys_left = change->keys_left, total = 0;
    size_t i;
    for (i = 0; i < n + BLOOM_AHEAD; i++) {
        if (i >= BLOOM_AHEAD) {
            size_t at = i - BLOOM_AHEAD;
            uint8_t *line = lines[at % BLOOM_AHEAD];
            uint64_t h1 = prints[2 * at], h2 = prints[2 * at + 1];
            unsigned bits;
            if (bits_left - total >= (int64_t)hashes && keys_left >= 1)
                bits = bloom_line_set(line, h1, h2, hashes);
            else { /* from here on only keys that are not new may pass */
                bits = 0;
                if (!bloom_line_has(line, h1, h2, hashes)) break;
            }
            is_new[at] = bits != 0;
            keys_left -= bits != 0;
            total += bits;
        }
        if (i < n) {
            uint8_t *line = bits_of_all + bloom_high64(prints[2 * i], count) * 64;
            BLOOM_PREFETCH_TO_WRITE(line);
            lines[i % BLOOM_AHEAD] = line;
        }
    }
    change->keys_left = keys_left;
    change->bits = total;
    change->taken = (int64_t)(i - BLOOM_AHEAD);
}

/* Keys that fit even if all their bits are new need no look at the limits; the others do. */
static void bloom_insert_blocked(
    const bloom_vector *v, const uint64_t *prints, size_t n, uint8_t *is_new, bloom_change *change
) {
    bloom_change rest = *change;
    size_t taken = 0, i;
    for (;;) {
        int64_t fit = rest.bits_left / (int64_t)v->hashes, bits;
        size_t keys = n - taken;
        if (fit > rest.keys_left) fit = rest.keys_left;
        if (fit < (int64_t)keys) keys = fit < BLOOM_LINES ? 0 : (size_t)fit;
        if (!keys) break;
        bits = bloom_set_lines(v, prints + 2 * taken, keys, is_new + taken);
        for (i = taken; i < taken + keys; i++) rest.keys_left -= is_new[i];
        rest.bits_left -= bits;
        change->bits += bits;
        taken += keys;
    }
    BLOOM_WITH_CONSTANT(
        v->hashes,
        bloom_insert_lines(v, hashes, prints + 2 * taken, n - taken, is_new + taken, &rest))
    change->bits += rest.bits;
    change->keys_left = rest.keys_left;
    change->taken = (int64_t)taken + rest.taken;
}

static void bloom_insert(
    const bloom_vector *vector, const uint64_t *prints, size_t n, uint8_t *is_new,
    bloom_change *change
) {
    const bloom_vector v = *vector; /* a copy: stores into bits cannot change it */
    bloom_queue queue;
    size_t i;
    unsigned j;
    if (v.kind == BLOOM_BLOCKED) {
        bloom_insert_blocked(&v, prints, n, is_new, change);
        return;
    }
    for (i = 0; i < n && i < BLOOM_AHEAD; i++) bloom_queue_key(&queue, &v, prints, i, 1);
    for (i = 0; i < n; i++) {
        const uint64_t *addresses = queue.addresses[i % BLOOM_AHEAD];
        unsigned bits = 0;
        if (bloom_fits(change, v.hashes)) {
            for (j = 0; j < v.hashes; j++) {
                uint8_t *byte = v.bits + (addresses[j] >> 3), bit = 1u << (addresses[j] & 7);
                bits += !(*byte & bit);
                *byte |= bit;
            }
        } else { /* from here on only keys that are not new may pass */
            for (j = 0; j < v.hashes; j++) bits += !bloom_bit(v.bits, addresses[j]);
            if (bits) break;
        }
        is_new[i] = bits != 0;
        change->keys_left -= bits != 0;
        change->bits += bits;
        if (i + BLOOM_AHEAD < n) bloom_queue_key(&queue, &v, prints, i + BLOOM_AHEAD, 1);
    }
    change->taken = (int64_t)i;
}

/* One key: how many bits it has set, 0 if it was reported; -1, and nothing is set, if it is new and
 * there is no room. The flag of each of its bits, by address >> shift, is set first, unless flags is
 * NULL: all of them are set. */
static inline int bloom_add(
    const bloom_vector *v, uint64_t h1, uint64_t h2, int has_room, uint8_t *flags, unsigned shift
) {
    uint64_t addresses[BLOOM_MAX_HASHES];
    unsigned j;
    int bits = 0;
    if (!has_room) return bloom_has(v, h1, h2) ? 0 : -1;
    if (v->kind == BLOOM_BLOCKED) {
        uint64_t number = bloom_high64(h1, v->lines);
        uint8_t *line = v->bits + number * 64;
        if (flags) flags[(number * 512) >> shift] = 1;
        BLOOM_WITH_CONSTANT(v->hashes, bits = (int)bloom_line_set(line, h1, h2, hashes))
        return bits;
    }
    bloom_addresses(v, h1, h2, addresses);
    if (flags)
        for (j = 0; j < v->hashes; j++) flags[addresses[j] >> shift] = 1;
    for (j = 0; j < v->hashes; j++) {
        bits += !bloom_bit(v->bits, addresses[j]);
        bloom_set_bit(v->bits, addresses[j]);
    }
    return bits;
}

/* Keys after which is looked whether all flags are set: then no later key can set one. */
#ifndef BLOOM_MARKS
#define BLOOM_MARKS 64
#endif

/* Sets the flags of all bits of these keys, by address >> shift. */
static void bloom_mark(
    const bloom_vector *v, const uint64_t *prints, size_t n, uint8_t *flags, size_t count,
    unsigned shift
) {
    uint64_t addresses[BLOOM_MAX_HASHES];
    size_t i;
    unsigned j;
    for (i = 0; i < n; i++) {
        if (i % BLOOM_MARKS == 0 && !memchr(flags, 0, count)) return;
        if (v->kind == BLOOM_BLOCKED) {
            flags[(bloom_high64(prints[2 * i], v->lines) * 512) >> shift] = 1;
            continue;
        }
        bloom_addresses(v, prints[2 * i], prints[2 * i + 1], addresses);
        for (j = 0; j < v->hashes; j++) flags[addresses[j] >> shift] = 1;
    }
}

static void bloom_apply(const bloom_vector *vector, const uint64_t *prints, size_t n) {
    const bloom_vector v = *vector;
    bloom_queue queue;
    size_t i;
    unsigned j;
    for (i = 0; i < n && i < BLOOM_AHEAD; i++) bloom_queue_key(&queue, &v, prints, i, 1);
    for (i = 0; i < n; i++) {
        const uint64_t *addresses = queue.addresses[i % BLOOM_AHEAD];
        for (j = 0; j < v.hashes; j++) bloom_set_bit(v.bits, addresses[j]);
        if (i + BLOOM_AHEAD < n) bloom_queue_key(&queue, &v, prints, i + BLOOM_AHEAD, 1);
    }
}

#endif

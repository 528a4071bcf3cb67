/* Loops over many fingerprints: insert, preview, apply, and counting set bits.
 *
 * In: checked vectors (vector.h) and fingerprints as pairs of words; out: answers or set bits,
 * equal to those of numpy_twin.py. No Python object is touched, so it all runs without the GIL.
 *
 * Memory decides the speed. A probe of a large vector waits about 100 ns for a cache line, but many
 * lines can be on their way at once: every loop here first computes addresses for a number of keys
 * and asks for their lines (prefetch), and only then looks at the bits.
 *
 * Invariants
 *   1. preview, mark and count write nothing to a vector; insert and apply only set bits.
 *   2. Keys are gone through in order where the order matters (insert, preview).
 *
 * Not here: lookups (find.h), the meaning of addresses (vector.h), checks of arguments (compiled.pyx).
 */
#ifndef BLOOMSTORE_KERNELS_H
#define BLOOMSTORE_KERNELS_H

#include <stdlib.h>

#include "find.h"
#include "insert_blocked.h"
#include "vector.h"

/* Keys whose lines are on their way while one key is inserted. */
#ifndef BLOOM_AHEAD
#define BLOOM_AHEAD 16
#endif

/* insert, preview, apply ------------------------------------------------------------- */

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

/* The same as bloom_insert below for a blocked vector: a key is one line, so that only the places
 * of lines wait in the queue. */
static BLOOM_INLINE void bloom_insert_lines(
    const bloom_vector *v, unsigned hashes, const uint64_t *prints, size_t n, uint8_t *is_new,
    bloom_change *change
) {
    uint8_t *lines[BLOOM_AHEAD], *bits_of_all = v->bits;
    uint64_t blocks = v->blocks;
    int64_t bits_left = change->bits_left, keys_left = change->keys_left, total = 0;
    size_t i;
    for (i = 0; i < n + BLOOM_AHEAD; i++) {
        if (i >= BLOOM_AHEAD) {
            size_t at = i - BLOOM_AHEAD;
            uint8_t *line = lines[at % BLOOM_AHEAD];
            uint64_t h1 = prints[2 * at], h2 = prints[2 * at + 1];
            unsigned bits;
            if (bits_left - total >= (int64_t)hashes && keys_left >= 1)
                bits = bloom_block_set(line, h1, h2, hashes);
            else { /* from here on only keys that are not new may pass */
                bits = 0;
                if (!bloom_block_has(line, h1, h2, hashes)) break;
            }
            is_new[at] = bits != 0;
            keys_left -= bits != 0;
            total += bits;
        }
        if (i < n) {
            uint8_t *line = bits_of_all + bloom_high64(prints[2 * i], blocks) * 64;
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
        uint64_t number = bloom_high64(h1, v->blocks);
        uint8_t *line = v->bits + number * 64;
        if (flags) flags[(number * 512) >> shift] = 1;
        BLOOM_WITH_CONSTANT(v->hashes, bits = (int)bloom_block_set(line, h1, h2, hashes))
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

/* How many bits one key would set: a preview of one key. */
static inline int bloom_missing(const bloom_vector *v, uint64_t h1, uint64_t h2) {
    uint64_t addresses[BLOOM_MAX_HASHES];
    unsigned i, j;
    int bits = 0;
    bloom_addresses(v, h1, h2, addresses);
    for (j = 0; j < v->hashes; j++) {
        if (bloom_bit(v->bits, addresses[j])) continue;
        for (i = 0; i < j && addresses[i] != addresses[j]; i++) {}
        bits += i == j;
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
            flags[(bloom_high64(prints[2 * i], v->blocks) * 512) >> shift] = 1;
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

/* The addresses that earlier keys of a preview would have set: open addressing, at most half full.
 * A place holds address + 1, and 0 when it is free. */
typedef struct {
    uint64_t *places;
    uint64_t mask;
    unsigned shift;
} bloom_seen;

static inline uint64_t bloom_seen_start(const bloom_seen *seen, uint64_t address) {
    return (address * UINT64_C(0x9E3779B97F4A7C15)) >> seen->shift;
}

/* Where the address is or would be. */
static inline uint64_t *bloom_seen_place(const bloom_seen *seen, uint64_t address) {
    uint64_t place = bloom_seen_start(seen, address);
    while (seen->places[place] && seen->places[place] != address + 1)
        place = (place + 1) & seen->mask;
    return seen->places + place;
}

/* The same for a blocked vector, in copies of the lines that the keys need: one place to look up per
 * key instead of one per hash. 10^4 keys of six hashes took 80 ns each by addresses, 24 so. */
typedef struct {
    uint32_t *places; /* number of a copy + 1, or 0: open addressing, at most half full */
    uint64_t *lines;  /* which line a copy is of */
    uint8_t *copies;
    uint32_t count;
} bloom_copies;

static inline uint8_t *bloom_copy_of_line(
    bloom_copies *made, const bloom_seen *seen, const uint8_t *bits, uint64_t line
) {
    uint64_t place = bloom_seen_start(seen, line);
    uint32_t number;
    while ((number = made->places[place]) && made->lines[number - 1] != line)
        place = (place + 1) & seen->mask;
    if (!number) {
        number = made->places[place] = ++made->count;
        made->lines[number - 1] = line;
        memcpy(made->copies + 64 * (size_t)(number - 1), bits + 64 * line, 64);
    }
    return made->copies + 64 * (size_t)(number - 1);
}

static int bloom_preview_lines(
    const bloom_vector *v, const uint64_t *prints, size_t n, uint8_t *is_new, bloom_change *change
) {
    bloom_copies made = {NULL, NULL, NULL, 0};
    bloom_seen seen = {NULL, 15, 60};
    size_t i;
    while (seen.mask + 1 < 2 * n) seen.mask = 2 * seen.mask + 1, seen.shift--;
    made.places = (uint32_t *)calloc(seen.mask + 1, sizeof(uint32_t));
    made.lines = (uint64_t *)malloc(n * sizeof(uint64_t) + 1);
    made.copies = (uint8_t *)malloc(64 * n + 1);
    if (made.places && made.lines && made.copies) {
        for (i = 0; i < n && i < BLOOM_AHEAD; i++)
            BLOOM_PREFETCH(v->bits + 64 * bloom_high64(prints[2 * i], v->blocks));
        for (i = 0; i < n; i++) {
            uint64_t h1 = prints[2 * i], h2 = prints[2 * i + 1];
            uint8_t *line = bloom_copy_of_line(&made, &seen, v->bits, bloom_high64(h1, v->blocks));
            unsigned bits = 0;
            if (bloom_fits(change, v->hashes)) bits = bloom_block_set(line, h1, h2, v->hashes);
            else if (!bloom_block_has(line, h1, h2, v->hashes)) break;
            is_new[i] = bits != 0;
            change->keys_left -= bits != 0;
            change->bits += bits;
            if (i + BLOOM_AHEAD < n) {
                uint64_t next = bloom_high64(prints[2 * (i + BLOOM_AHEAD)], v->blocks);
                BLOOM_PREFETCH(v->bits + 64 * next);
                BLOOM_PREFETCH_TO_WRITE(made.places + bloom_seen_start(&seen, next));
            }
        }
        change->taken = (int64_t)i;
    } else {
        change->taken = -1;
    }
    free(made.places);
    free(made.lines);
    free(made.copies);
    return change->taken < 0 ? -1 : 0;
}

/* Like insert, but nothing is set: in a copy of a small vector, or by remembering addresses.
 * 0, or -1: no memory. */
static int bloom_preview(
    const bloom_vector *vector, const uint64_t *prints, size_t n, uint8_t *is_new,
    bloom_change *change
) {
    bloom_vector v = *vector;
    bloom_queue queue;
    bloom_seen seen;
    uint64_t most = (uint64_t)n * v.hashes, places = 16;
    size_t i;
    unsigned j;
    if (change->bits_left < 0) most = 0;
    else if ((uint64_t)change->bits_left < most) most = (uint64_t)change->bits_left;
    seen.shift = 60;
    while (places < 2 * most) places *= 2, seen.shift--;
    if (v.bytes <= places * sizeof(uint64_t)) {
        v.bits = (uint8_t *)malloc(v.bytes);
        if (!v.bits) return -1;
        memcpy(v.bits, vector->bits, v.bytes);
        bloom_insert(&v, prints, n, is_new, change);
        free(v.bits);
        return 0;
    }
    if (v.kind == BLOOM_BLOCKED) return bloom_preview_lines(&v, prints, n, is_new, change);
    seen.mask = places - 1;
    seen.places = (uint64_t *)calloc(places, sizeof(uint64_t));
    if (!seen.places) return -1;
    for (i = 0; i < n && i < BLOOM_AHEAD; i++) bloom_queue_key(&queue, &v, prints, i, 0);
    for (i = 0; i < n; i++) {
        const uint64_t *addresses = queue.addresses[i % BLOOM_AHEAD];
        uint64_t unset[BLOOM_MAX_HASHES];
        int fits = bloom_fits(change, v.hashes);
        unsigned some = 0, bits = 0;
        for (j = 0; j < v.hashes; j++) {
            unset[some] = addresses[j];
            some += !bloom_bit(v.bits, addresses[j]);
        }
        for (j = 0; j < some; j++) {
            uint64_t *place = bloom_seen_place(&seen, unset[j]);
            bits += !*place;
            if (fits) *place = unset[j] + 1;
        }
        if (bits && !fits) break;
        is_new[i] = bits != 0;
        change->keys_left -= bits != 0;
        change->bits += bits;
        if (i + BLOOM_AHEAD < n) {
            const uint64_t *next = bloom_queue_key(&queue, &v, prints, i + BLOOM_AHEAD, 0);
            for (j = 0; j < v.hashes; j++)
                BLOOM_PREFETCH_TO_WRITE(seen.places + bloom_seen_start(&seen, next[j]));
        }
    }
    change->taken = (int64_t)i;
    free(seen.places);
    return 0;
}

/* counting bits ---------------------------------------------------------------------- */

static inline unsigned bloom_popcount(uint64_t word) {
#if defined(__GNUC__) || defined(__clang__)
    return (unsigned)__builtin_popcountll(word);
#else
    word -= (word >> 1) & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + ((word >> 2) & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    return (unsigned)((word * UINT64_C(0x0101010101010101)) >> 56);
#endif
}

BLOOM_POPCOUNT static uint64_t bloom_count(const uint8_t *bytes, size_t n) {
    uint64_t count = 0, word;
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        memcpy(&word, bytes + i, 8);
        count += bloom_popcount(word);
    }
    for (; i < n; i++) count += bloom_popcount(bytes[i]);
    return count;
}

#endif

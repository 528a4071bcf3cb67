/* What adding keys would change, found out without setting a bit.
 *
 * In: a checked vector, fingerprints and limits; out: the same numbers as bloom_insert gives. Earlier
 * keys of the call count as added: their bits are remembered in a copy of a small vector, in copies
 * of the lines of a blocked one, or as addresses.
 *
 * Not here: setting the bits (insert.h).
 */
#ifndef BLOOMSTORE_PREVIEW_H
#define BLOOMSTORE_PREVIEW_H

#include <stdlib.h>

#include "insert.h"

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

/* The addresses that earlier keys of a preview would have set: open addressing, at most half full.
 * A slot has address + 1 in it, or 0 when it is free. */
typedef struct {
    uint64_t *slots;
    uint64_t mask;
    unsigned shift;
} bloom_seen;

static inline uint64_t bloom_seen_start(const bloom_seen *seen, uint64_t address) {
    return (address * UINT64_C(0x9E3779B97F4A7C15)) >> seen->shift;
}

/* Where the address is or would be. */
static inline uint64_t *bloom_seen_slot(const bloom_seen *seen, uint64_t address) {
    uint64_t slot = bloom_seen_start(seen, address);
    while (seen->slots[slot] && seen->slots[slot] != address + 1)
        slot = (slot + 1) & seen->mask;
    return seen->slots + slot;
}

/* The same for a blocked vector, in copies of the lines that the keys need: one slot to look up per
 * key instead of one per hash. 10^4 keys of six hashes took 80 ns each by addresses, 24 so. */
typedef struct {
    uint32_t *slots; /* number of a copy + 1, or 0: open addressing, at most half full */
    uint64_t *lines;  /* which line a copy is of */
    uint8_t *copies;
    uint32_t count;
} bloom_copies;

static inline uint8_t *bloom_copy_of_line(
    bloom_copies *made, const bloom_seen *seen, const uint8_t *bits, uint64_t line
) {
    uint64_t slot = bloom_seen_start(seen, line);
    uint32_t number;
    while ((number = made->slots[slot]) && made->lines[number - 1] != line)
        slot = (slot + 1) & seen->mask;
    if (!number) {
        number = made->slots[slot] = ++made->count;
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
    made.slots = (uint32_t *)calloc(seen.mask + 1, sizeof(uint32_t));
    made.lines = (uint64_t *)malloc(n * sizeof(uint64_t) + 1);
    made.copies = (uint8_t *)malloc(64 * n + 1);
    if (made.slots && made.lines && made.copies) {
        for (i = 0; i < n && i < BLOOM_AHEAD; i++)
            BLOOM_PREFETCH(v->bits + 64 * bloom_high64(prints[2 * i], v->lines));
        for (i = 0; i < n; i++) {
            uint64_t h1 = prints[2 * i], h2 = prints[2 * i + 1];
            uint8_t *line = bloom_copy_of_line(&made, &seen, v->bits, bloom_high64(h1, v->lines));
            unsigned bits = 0;
            if (bloom_fits(change, v->hashes)) bits = bloom_line_set(line, h1, h2, v->hashes);
            else if (!bloom_line_has(line, h1, h2, v->hashes)) break;
            is_new[i] = bits != 0;
            change->keys_left -= bits != 0;
            change->bits += bits;
            if (i + BLOOM_AHEAD < n) {
                uint64_t next = bloom_high64(prints[2 * (i + BLOOM_AHEAD)], v->lines);
                BLOOM_PREFETCH(v->bits + 64 * next);
                BLOOM_PREFETCH_TO_WRITE(made.slots + bloom_seen_start(&seen, next));
            }
        }
        change->taken = (int64_t)i;
    } else {
        change->taken = -1;
    }
    free(made.slots);
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
    uint64_t most = (uint64_t)n * v.hashes, slots = 16;
    size_t i;
    unsigned j;
    if (change->bits_left < 0) most = 0;
    else if ((uint64_t)change->bits_left < most) most = (uint64_t)change->bits_left;
    seen.shift = 60;
    while (slots < 2 * most) slots *= 2, seen.shift--;
    if (v.bytes <= slots * sizeof(uint64_t)) {
        v.bits = (uint8_t *)malloc(v.bytes);
        if (!v.bits) return -1;
        memcpy(v.bits, vector->bits, v.bytes);
        bloom_insert(&v, prints, n, is_new, change);
        free(v.bits);
        return 0;
    }
    if (v.kind == BLOOM_BLOCKED) return bloom_preview_lines(&v, prints, n, is_new, change);
    seen.mask = slots - 1;
    seen.slots = (uint64_t *)calloc(slots, sizeof(uint64_t));
    if (!seen.slots) return -1;
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
            uint64_t *slot = bloom_seen_slot(&seen, unset[j]);
            bits += !*slot;
            if (fits) *slot = unset[j] + 1;
        }
        if (bits && !fits) break;
        is_new[i] = bits != 0;
        change->keys_left -= bits != 0;
        change->bits += bits;
        if (i + BLOOM_AHEAD < n) {
            const uint64_t *next = bloom_queue_key(&queue, &v, prints, i + BLOOM_AHEAD, 0);
            for (j = 0; j < v.hashes; j++)
                BLOOM_PREFETCH_TO_WRITE(seen.slots + bloom_seen_start(&seen, next[j]));
        }
    }
    change->taken = (int64_t)i;
    free(seen.slots);
    return 0;
}

#endif

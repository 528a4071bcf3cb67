/* Loops over many fingerprints: find, insert, preview, apply, and counting set bits.
 *
 * In: checked vectors (vector.h) and fingerprints as pairs of words; out: answers or set bits,
 * equal to those of numpy_kernels.py. No Python object is touched, so it all runs without the GIL.
 *
 * Memory decides the speed. A probe of a large vector waits about 100 ns for a cache line, but many
 * lines can be on their way at once: every loop here first computes addresses for a number of keys
 * and asks for their lines (prefetch), and only then looks at the bits.
 *
 * Invariants
 *   1. find, preview and count write nothing to a vector; insert and apply only set bits.
 *   2. Keys are gone through in order where the order matters (insert, preview).
 *
 * Not here: the meaning of addresses (vector.h), checks of arguments (compiled.pyx).
 */
#ifndef BLOOMSTORE_KERNELS_H
#define BLOOMSTORE_KERNELS_H

#include <stdlib.h>

#include "murmur.h"
#include "vector.h"

/* Keys asked together: all that is kept for them, 7.5 KiB, stays in the first cache. Absent keys
 * of an in-cache vector take 9, 8 and 7.5 ns at 128, 256 and 512, but from 512 on blocked vectors
 * are slower: their lines push each other out before they are looked at. */
#ifndef BLOOM_WINDOW
#define BLOOM_WINDOW 256
#endif

/* Keys whose lines are on their way while one key is inserted. */
#ifndef BLOOM_AHEAD
#define BLOOM_AHEAD 16
#endif

/* A round for this many keys or fewer runs in a copy of the loop. With one loop for all rounds an
 * absent key took 15 ns, with a copy for the short ones 8. Likely why (not seen in counters): short
 * rounds read what was stored a moment ago, the processor learns to let that load wait for earlier
 * stores, and then it waits in the long rounds too, where nothing is pending. */
#ifndef BLOOM_FEW
#define BLOOM_FEW 16
#endif

/* find ------------------------------------------------------------------------------ */

/* Working memory of one find: found48 holds [group][key of the window][hash of the group]. */
typedef struct {
    uint64_t addresses[BLOOM_WINDOW];
    uint16_t asked[BLOOM_WINDOW];   /* keys of the window that no vector has reported yet */
    uint16_t left[2][BLOOM_WINDOW]; /* those of them whose bits were all set so far, by turns */
    uint64_t *found48;
    unsigned groups_ready;
} bloom_work;

/* The H3 addresses of a window for eight hashes at once, made when a vector first needs them. */
BLOOM_WIDE static void bloom_window_addresses(
    const uint64_t *rows, const uint64_t *prints, unsigned keys, uint64_t *out
) {
    unsigned i;
    for (i = 0; i < keys; i++)
        bloom_eight_addresses(rows, prints[2 * (size_t)i], out + i * (size_t)BLOOM_GROUP);
}

/* Ask hash j for the keys in `from`; put those whose bit is set into `out` and return how many.
 * No branch: at fill 1/2 it would be mispredicted for every second key (20 ns, not 8). */
static BLOOM_INLINE unsigned bloom_round(
    const bloom_vector *v, int is_h3, const uint64_t *prints, unsigned j, uint64_t *addresses,
    const uint64_t *found48, const uint16_t *from, unsigned keys, uint16_t *out
) {
    const uint8_t *bits = v->bits;
    uint64_t slice_bits = v->slice_bits, base = j * v->step_bits;
    unsigned i, kept = 0, shift = v->shift;
    for (i = 0; i < keys; i++) {
        const uint64_t *print = prints + 2 * (size_t)from[i];
        uint64_t address = base;
        if (is_h3) address += found48[from[i] * (size_t)BLOOM_GROUP] >> shift;
        else address += bloom_position(print[0], print[1], j, slice_bits);
        addresses[i] = address;
        BLOOM_PREFETCH(bits + (address >> 3));
    }
    for (i = 0; i < keys; i++) {
        out[kept] = from[i];
        kept += bloom_bit(bits, addresses[i]);
    }
    return kept;
}

/* The keys of `left` whose bits are all set in a plain or sliced vector. */
static BLOOM_INLINE unsigned bloom_rounds(
    const bloom_vector *v, int is_h3, const uint64_t *prints, unsigned window, bloom_work *work,
    unsigned keys, const uint16_t **left
) {
    const uint64_t *found48 = NULL;
    unsigned j;
    for (j = 0; j < v->hashes && keys; j++) {
        uint16_t *out = work->left[j & 1];
        if (is_h3) {
            unsigned group = j / BLOOM_GROUP;
            uint64_t *made = work->found48 + group * (size_t)(BLOOM_WINDOW * BLOOM_GROUP);
            if (group == work->groups_ready) {
                bloom_window_addresses(v->tables->rows[group], prints, window, made);
                work->groups_ready++;
            }
            found48 = made + j % BLOOM_GROUP;
        }
        if (keys > BLOOM_FEW)
            keys = bloom_round(v, is_h3, prints, j, work->addresses, found48, *left, keys, out);
        else
            keys = bloom_round(v, is_h3, prints, j, work->addresses, found48, *left, keys, out);
        *left = out;
    }
    return keys;
}

static unsigned bloom_rounds_spread(
    const bloom_vector *v, const uint64_t *prints, unsigned window, bloom_work *work,
    unsigned keys, const uint16_t **left
) {
    return bloom_rounds(v, 0, prints, window, work, keys, left);
}

static unsigned bloom_rounds_h3(
    const bloom_vector *v, const uint64_t *prints, unsigned window, bloom_work *work,
    unsigned keys, const uint16_t **left
) {
    return bloom_rounds(v, 1, prints, window, work, keys, left);
}

/* The same for a blocked vector: one line holds all bits of a key, so there is one round. */
static unsigned bloom_round_blocked(
    const bloom_vector *v, const uint64_t *prints, bloom_work *work, unsigned keys,
    const uint16_t **left
) {
    const uint16_t *from = *left;
    const uint8_t *bits = v->bits;
    uint64_t blocks = v->blocks;
    uint16_t *out = work->left[0];
    unsigned i, kept = 0;
    for (i = 0; i < keys; i++) {
        uint64_t byte = bloom_high64(prints[2 * (size_t)from[i]], blocks) * 64;
        work->addresses[i] = byte;
        BLOOM_PREFETCH(bits + byte);
    }
    BLOOM_WITH_CONSTANT(v->hashes, for (i = 0; i < keys; i++) {
        const uint64_t *print = prints + 2 * (size_t)from[i];
        out[kept] = from[i];
        kept += bloom_block_has(bits + work->addresses[i], print[0], print[1], hashes);
    })
    *left = out;
    return kept;
}

/* Which keys any vector reports: vector after vector and hash after hash for a window of keys.
 * Key after key took 3.7 times as long at 12 stages. `found` must be zero; 0, or -1: no memory. */
static int bloom_find(
    const bloom_vector *vectors, size_t count, const uint64_t *prints, size_t n, uint8_t *found
) {
    bloom_work work;
    size_t start, at;
    unsigned i, groups = 0;
    for (at = 0; at < count; at++)
        if (vectors[at].kind == BLOOM_H3 && vectors[at].hashes > groups * BLOOM_GROUP)
            groups = (vectors[at].hashes + BLOOM_GROUP - 1) / BLOOM_GROUP;
    work.found48 = NULL;
    if (groups) {
        size_t words = (size_t)BLOOM_WINDOW * BLOOM_GROUP * groups;
        work.found48 = (uint64_t *)malloc(words * sizeof(uint64_t));
        if (!work.found48) return -1;
    }
    for (start = 0; start < n; start += BLOOM_WINDOW) {
        unsigned window = (unsigned)(n - start < BLOOM_WINDOW ? n - start : BLOOM_WINDOW);
        const uint64_t *here = prints + 2 * start;
        uint8_t *answers = found + start;
        unsigned asked = window;
        work.groups_ready = 0;
        for (i = 0; i < window; i++) work.asked[i] = (uint16_t)i;
        for (at = 0; at < count && asked; at++) {
            const bloom_vector *v = vectors + at;
            const uint16_t *left = work.asked;
            unsigned kept, still = 0;
            if (v->kind == BLOOM_BLOCKED)
                kept = bloom_round_blocked(v, here, &work, asked, &left);
            else if (v->kind == BLOOM_H3)
                kept = bloom_rounds_h3(v, here, window, &work, asked, &left);
            else
                kept = bloom_rounds_spread(v, here, window, &work, asked, &left);
            for (i = 0; i < kept; i++) answers[left[i]] = 1;
            if (!kept || at + 1 == count) continue;
            for (i = 0; i < asked; i++) {
                uint16_t key = work.asked[i];
                work.asked[still] = key;
                still += !answers[key];
            }
            asked = still;
        }
    }
    free(work.found48);
    return 0;
}

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

static void bloom_insert_blocked(
    const bloom_vector *v, const uint64_t *prints, size_t n, uint8_t *is_new, bloom_change *change
) {
    BLOOM_WITH_CONSTANT(v->hashes, bloom_insert_lines(v, hashes, prints, n, is_new, change))
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
 * there is no room. */
static inline int bloom_add(const bloom_vector *v, uint64_t h1, uint64_t h2, int has_room) {
    uint64_t addresses[BLOOM_MAX_HASHES];
    unsigned j;
    int bits = 0;
    if (!has_room) return bloom_has(v, h1, h2) ? 0 : -1;
    if (v->kind == BLOOM_BLOCKED) {
        uint8_t *line = v->bits + bloom_high64(h1, v->blocks) * 64;
        return (int)bloom_block_set(line, h1, h2, v->hashes);
    }
    bloom_addresses(v, h1, h2, addresses);
    for (j = 0; j < v->hashes; j++) {
        bits += !bloom_bit(v->bits, addresses[j]);
        bloom_set_bit(v->bits, addresses[j]);
    }
    return bits;
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

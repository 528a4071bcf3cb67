/* Which keys do vectors report: a window of keys at a time.
 *
 * In: checked vectors (vector.h) and fingerprints as pairs of words, or integer keys; out: answers,
 * equal to those of numpy_twin.find. No Python object is touched, nothing is written to a vector.
 *
 * Not here: the meaning of addresses (vector.h), setting bits (insert.h), checks (compiled.pyx).
 */
#ifndef BLOOMSTORE_FIND_H
#define BLOOMSTORE_FIND_H

#include <stdlib.h>

#include "murmur.h"
#include "threads.h"
#include "vector.h"
#include "line_avx2.h"
#include "murmur_avx512.h"

/* Keys asked together: all that is kept for them, 7.5 KiB, stays in the first cache. Absent keys
 * of an in-cache vector take 9, 8 and 7.5 ns at 128, 256 and 512, but from 512 on blocked vectors
 * are slower: their lines push each other out before they are looked at. */
#ifndef BLOOM_WINDOW
#define BLOOM_WINDOW 256
#endif

/* Without wide registers a blocked vector is asked for so many hashes first, and for the others by
 * those keys that are left: of absent keys an eighth at fill 1/2. They take 6.6 ns instead of 9.3 at
 * six hashes, 7.5 instead of 12 at nine. While most keys are present all hashes are asked at once:
 * two rounds would take up to 3 ns more. */
#ifndef BLOOM_FIRST
#define BLOOM_FIRST 3
#endif

/* A round for this many keys or fewer runs in a copy of the loop. With one loop for all rounds an
 * absent key took 15 ns, with a copy for the short ones 8. Likely why (not seen in counters): short
 * rounds read what was stored a moment ago, the processor learns to let that load wait for earlier
 * stores, and then it waits in the long rounds too, where nothing is pending. */
#ifndef BLOOM_FEW
#define BLOOM_FEW 16
#endif

/* Working memory of one find: addresses48 holds [group][key of the window][hash of the group]. */
typedef struct {
    uint64_t addresses[BLOOM_WINDOW];
    uint16_t asked[BLOOM_WINDOW];   /* keys of the window that no vector has reported yet */
    uint16_t left[2][BLOOM_WINDOW]; /* those of them whose bits were all set so far, by turns */
    uint64_t *addresses48;
    unsigned groups_ready;
    int are_mostly_kept; /* by the last blocked vector: most keys are present, or it is overfull */
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
    const uint64_t *addresses48, const uint16_t *from, unsigned keys, uint16_t *out
) {
    const uint8_t *bits = v->bits;
    uint64_t slice_bits = v->slice_bits, base = j * v->step_bits;
    unsigned i, kept = 0, shift = v->shift;
    for (i = 0; i < keys; i++) {
        const uint64_t *print = prints + 2 * (size_t)from[i];
        uint64_t address = base;
        if (is_h3) address += addresses48[from[i] * (size_t)BLOOM_GROUP] >> shift;
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
    const uint64_t *addresses48 = NULL;
    unsigned j;
    for (j = 0; j < v->hashes && keys; j++) {
        uint16_t *out = work->left[j & 1];
        if (is_h3) {
            unsigned group = j / BLOOM_GROUP;
            uint64_t *made = work->addresses48 + group * (size_t)(BLOOM_WINDOW * BLOOM_GROUP);
            if (group == work->groups_ready) {
                bloom_window_addresses(v->tables->rows[group], prints, window, made);
                work->groups_ready++;
            }
            addresses48 = made + j % BLOOM_GROUP;
        }
        if (keys > BLOOM_FEW)
            keys = bloom_round(v, is_h3, prints, j, work->addresses, addresses48, *left, keys, out);
        else
            keys = bloom_round(v, is_h3, prints, j, work->addresses, addresses48, *left, keys, out);
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

/* The keys whose bits are all set in a blocked vector, where one line holds all bits of a key: after
 * the first hashes, and then after the others. Without `from`, all keys of the window are asked. */
static BLOOM_INLINE unsigned bloom_lines(
    const bloom_vector *v, const uint64_t *prints, bloom_work *work, const uint16_t *from,
    unsigned keys, unsigned first, unsigned hashes
) {
    const uint8_t *bits = v->bits;
    uint64_t count = v->lines, *starts = work->addresses;
    uint16_t *some = work->left[1], *out = work->left[0];
    unsigned i, kept = 0, left = 0;
    for (i = 0; i < keys; i++) {
        uint64_t byte = bloom_high64(prints[2 * (size_t)(from ? from[i] : i)], count) * 64;
        starts[i] = byte;
        BLOOM_PREFETCH(bits + byte);
    }
    for (i = 0; i < keys; i++) {
        unsigned key = from ? from[i] : i;
        const uint64_t *print = prints + 2 * (size_t)key;
        if (first == hashes) out[left] = (uint16_t)key;
        else some[left] = (uint16_t)i;
        left += bloom_line_has_some(bits + starts[i], print[0], print[1], 0, first);
    }
    work->are_mostly_kept = 2 * left > keys;
    if (first == hashes) return left;
    for (i = 0; i < left; i++) {
        unsigned at = some[i], key = from ? from[at] : at;
        const uint64_t *print = prints + 2 * (size_t)key;
        out[kept] = (uint16_t)key;
        kept += bloom_line_has_some(bits + starts[at], print[0], print[1], first, hashes);
    }
    return kept;
}

#if BLOOM_HAS_WIDE
/* The same for up to BLOOM_WIDE_HASHES in wide registers: seven hashes cost no more than three. */
BLOOM_AVX2 static unsigned bloom_lines_wide(
    const bloom_vector *v, const uint64_t *prints, bloom_work *work, const uint16_t *from,
    unsigned keys
) {
    const uint8_t *bits = v->bits;
    uint64_t count = v->lines, *starts = work->addresses;
    uint16_t *some = work->left[1], *out = work->left[0];
    unsigned i, kept = 0, left = 0, hashes = v->hashes;
    for (i = 0; i < keys; i++) {
        uint64_t byte = bloom_high64(prints[2 * (size_t)(from ? from[i] : i)], count) * 64;
        starts[i] = byte;
        BLOOM_PREFETCH(bits + byte);
    }
    if (hashes <= 7) {
        for (i = 0; i < keys; i++) {
            unsigned key = from ? from[i] : i;
            out[kept] = (uint16_t)key;
            kept += (unsigned)bloom_wide_has_some(
                bits + starts[i], prints[2 * (size_t)key + 1], hashes);
        }
        return kept;
    }
    for (i = 0; i < keys; i++) {
        unsigned key = from ? from[i] : i;
        some[left] = (uint16_t)i;
        left += (unsigned)bloom_wide_has_some(bits + starts[i], prints[2 * (size_t)key + 1], 7);
    }
    for (i = 0; i < left; i++) {
        unsigned at = some[i], key = from ? from[at] : at;
        const uint64_t *print = prints + 2 * (size_t)key;
        out[kept] = (uint16_t)key;
        kept += (unsigned)bloom_wide_has_some(
            bits + starts[at], bloom_line_word(print[0], print[1], 1), hashes - 7);
    }
    return kept;
}
#endif

static unsigned bloom_round_blocked(
    const bloom_vector *v, const uint64_t *prints, bloom_work *work, unsigned keys, int are_all,
    const uint16_t **left
) {
    const uint16_t *from = are_all ? NULL : *left;
    unsigned kept = 0;
    *left = work->left[0];
#if BLOOM_HAS_WIDE
    if (bloom_width >= BLOOM_256 && v->hashes <= BLOOM_WIDE_HASHES)
        return bloom_lines_wide(v, prints, work, from, keys);
#endif
    if (work->are_mostly_kept || v->hashes <= BLOOM_FIRST) {
        BLOOM_WITH_CONSTANT(
            v->hashes, kept = bloom_lines(v, prints, work, from, keys, hashes, hashes))
    } else {
        BLOOM_WITH_CONSTANT(
            v->hashes, kept = bloom_lines(v, prints, work, from, keys, BLOOM_FIRST, hashes))
    }
    return kept;
}

/* Makes the working memory for these vectors; 0, or -1: no memory. bloom_end_find gives it back. */
static int bloom_begin_find(bloom_work *work, const bloom_vector *vectors, size_t count) {
    size_t at;
    unsigned groups = 0;
    for (at = 0; at < count; at++)
        if (vectors[at].kind == BLOOM_H3 && vectors[at].hashes > groups * BLOOM_GROUP)
            groups = (vectors[at].hashes + BLOOM_GROUP - 1) / BLOOM_GROUP;
    work->addresses48 = NULL;
    work->are_mostly_kept = 0;
    if (groups) {
        size_t words = (size_t)BLOOM_WINDOW * BLOOM_GROUP * groups;
        work->addresses48 = (uint64_t *)malloc(words * sizeof(uint64_t));
        if (!work->addresses48) return -1;
    }
    return 0;
}

static void bloom_end_find(bloom_work *work) { free(work->addresses48); }

/* Which keys of a window any vector reports: vector after vector and hash after hash. Key after key
 * took 3.7 times as long at 12 stages. `answers` must be zero. */
static void bloom_find_window(
    bloom_work *work, const bloom_vector *vectors, size_t count, const uint64_t *prints,
    unsigned window, uint8_t *answers
) {
    unsigned i, asked = window;
    size_t at;
    work->groups_ready = 0;
    for (i = 0; i < window; i++) work->asked[i] = (uint16_t)i;
    for (at = 0; at < count && asked; at++) {
        const bloom_vector *v = vectors + at;
        const uint16_t *left = work->asked;
        unsigned kept, still = 0;
        if (v->kind == BLOOM_BLOCKED)
            kept = bloom_round_blocked(v, prints, work, asked, asked == window, &left);
        else if (v->kind == BLOOM_H3)
            kept = bloom_rounds_h3(v, prints, window, work, asked, &left);
        else
            kept = bloom_rounds_spread(v, prints, window, work, asked, &left);
        for (i = 0; i < kept; i++) answers[left[i]] = 1;
        if (!kept || at + 1 == count) continue;
        for (i = 0; i < asked; i++) {
            uint16_t key = work->asked[i];
            work->asked[still] = key;
            still += !answers[key];
        }
        asked = still;
    }
}

static inline unsigned bloom_window_of(size_t n, size_t start) {
    return (unsigned)(n - start < BLOOM_WINDOW ? n - start : BLOOM_WINDOW);
}

/* Keys to ask for: their fingerprints, or integers with the seed of their hash. */
typedef struct {
    const bloom_vector *vectors;
    size_t count;
    const uint64_t *prints; /* NULL: integers are given */
    const uint64_t *keys;
    uint32_t seed;
    size_t n;
    uint8_t *found; /* zeros for n keys */
    int outcome;    /* 0, or -1: no memory */
} bloom_question;

/* Integers are hashed a window at a time: a chunk of fingerprints at a time is as fast (11.5 and 11.7
 * ns per key), but needs memory for them. */
static void bloom_ask(void *job) {
    bloom_question *asked = (bloom_question *)job;
    const uint64_t *prints = asked->prints;
    bloom_work work;
    uint64_t made_here[2 * BLOOM_WINDOW];
    size_t start;
    asked->outcome = bloom_begin_find(&work, asked->vectors, asked->count);
    if (asked->outcome) return;
    for (start = 0; start < asked->n; start += BLOOM_WINDOW) {
        unsigned window = bloom_window_of(asked->n, start);
        if (prints) {
            prints = asked->prints + 2 * start;
        } else {
            bloom_print_integers(asked->keys + start, window, asked->seed, made_here);
        }
        bloom_find_window(
            &work, asked->vectors, asked->count, prints ? prints : made_here, window,
            asked->found + start);
    }
    bloom_end_find(&work);
}

/* Which keys any vector reports, asked by so many threads, each for keys of its own. 0, or -1: no
 * memory. */
static int bloom_find(const bloom_question *all, unsigned parts) {
    bloom_question asked[BLOOM_MOST_PARTS];
    unsigned part;
    for (part = 0; part < parts; part++) {
        size_t start = bloom_part_start(all->n, part, parts);
        asked[part] = *all;
        asked[part].n = bloom_part_start(all->n, part + 1, parts) - start;
        asked[part].found += start;
        if (all->prints) asked[part].prints += 2 * start;
        else asked[part].keys += start;
    }
    bloom_do_all(bloom_ask, asked, sizeof *asked, parts);
    for (part = 0; part < parts; part++)
        if (asked[part].outcome) return -1;
    return 0;
}

#endif

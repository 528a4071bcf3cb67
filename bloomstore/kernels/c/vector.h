/* One vector and the addresses of a fingerprint's bits in it. The C side of layout/.
 *
 *     kind      of layouts          address of hash j
 *     SPREAD    plain, sliced       j * step_bits + high64(mix(h1 + j*h2) * slice_bits)
 *     H3        plain, sliced       j * step_bits + (address48(j, h1) >> shift)
 *     BLOCKED   blocked             512 * line + 9 bits of a word
 *
 * step_bits is 0 for plain vectors, so plain and sliced are one loop.
 *
 * Invariants
 *   1. An address is below 8 * (bytes of the vector) for every fingerprint, because the caller
 *      has checked the geometry and the length. Nothing is checked again here.
 *   2. Bits are read and set a byte at a time: no alignment, no byte order.
 *
 * Not here: lines in wide registers (line_avx2.h), loops over many keys (insert.h, find.h,
 * insert_blocked.h), Python objects (compiled.pyx).
 */
#ifndef BLOOMSTORE_VECTOR_H
#define BLOOMSTORE_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compiler.h"

enum { BLOOM_SPREAD = 1, BLOOM_H3 = 2, BLOOM_BLOCKED = 3 };
enum { BLOOM_MAX_HASHES = 64, BLOOM_GROUP = 8, BLOOM_GROUPS = 8, BLOOM_H3_ROWS = 48 };

/* Runs a statement with `hashes` as a constant, for the numbers that errors of 10 % to 0.01 % lead
 * to: the loop over the hashes of a line is unrolled then, with constant shifts. One lookup of nine
 * hashes takes 8.6 ns instead of 12.5, one add 14 instead of 18. */
#define BLOOM_WITH_CONSTANT(number, statement)                                                   \
    switch (number) {                                                                            \
    case 4: { enum { hashes = 4 }; statement; break; }                                           \
    case 5: { enum { hashes = 5 }; statement; break; }                                           \
    case 6: { enum { hashes = 6 }; statement; break; }                                           \
    case 7: { enum { hashes = 7 }; statement; break; }                                           \
    case 8: { enum { hashes = 8 }; statement; break; }                                           \
    case 9: { enum { hashes = 9 }; statement; break; }                                           \
    case 10: { enum { hashes = 10 }; statement; break; }                                         \
    default: { unsigned hashes = (number); statement; }                                          \
    }

/* H3 tables: [group][byte of the key][value][hash of the group]; groups in use are not NULL. */
typedef struct {
    const uint64_t *rows[BLOOM_GROUPS];
} bloom_tables;

typedef struct {
    uint8_t *bits;
    uint64_t bytes;
    uint64_t slice_bits;
    uint64_t step_bits;
    uint64_t lines;
    const bloom_tables *tables;
    unsigned kind;
    unsigned hashes;
    unsigned shift;
} bloom_vector;

static inline uint64_t bloom_high64(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
    return (uint64_t)(((unsigned __int128)a * b) >> 64);
#else
    uint64_t low = UINT64_C(0xFFFFFFFF), middle = (a >> 32) * (b & low);
    middle += ((a & low) * (b & low)) >> 32;
    return (a >> 32) * (b >> 32) + (middle >> 32)
         + (((a & low) * (b >> 32) + (middle & low)) >> 32);
#endif
}

static inline uint64_t bloom_mix(uint64_t word) {
    return (word ^ (word >> 32)) * UINT64_C(0x9E3779B97F4A7C15);
}

static inline uint64_t bloom_position(uint64_t h1, uint64_t h2, uint64_t j, uint64_t bits) {
    return bloom_high64(bloom_mix(h1 + j * h2), bits);
}

/* Nine bits a time out of a word; seven of them are used before the next word is made. */
static inline uint64_t bloom_line_word(uint64_t h1, uint64_t h2, unsigned index) {
    return index ? bloom_mix(h2 + index * h1) : h2;
}

/* The 48-bit addresses of the eight hashes of a group: one cache line for each byte of the key.
 * One expression over eight lines, so that compilers take the widest registers (5 ns, not 20). */
static BLOOM_INLINE void bloom_eight_addresses(
    const uint64_t *rows, uint64_t key, uint64_t *BLOOM_RESTRICT out
) {
    const uint64_t *line[8];
    unsigned byte, u;
    for (byte = 0; byte < 8; byte++)
        line[byte] = rows + (byte * 256 + ((key >> (8 * byte)) & 255)) * BLOOM_GROUP;
    for (u = 0; u < BLOOM_GROUP; u++)
        out[u] = line[0][u] ^ line[1][u] ^ line[2][u] ^ line[3][u]
               ^ line[4][u] ^ line[5][u] ^ line[6][u] ^ line[7][u];
}

/* The addresses of hashes from .. to - 1 of one fingerprint, each in its place in `out`. Room for
 * BLOOM_MAX_HASHES: H3 fills whole groups. Not for blocked vectors. */
static BLOOM_INLINE void bloom_some_addresses(
    const bloom_vector *v, uint64_t h1, uint64_t h2, unsigned from, unsigned to, uint64_t *out
) {
    unsigned j, group;
    if (v->kind == BLOOM_SPREAD) {
        for (j = from; j < to; j++)
            out[j] = j * v->step_bits + bloom_position(h1, h2, j, v->slice_bits);
        return;
    }
    for (group = from / BLOOM_GROUP; group * BLOOM_GROUP < to; group++)
        bloom_eight_addresses(v->tables->rows[group], h1, out + group * BLOOM_GROUP);
    for (j = from; j < to; j++) out[j] = j * v->step_bits + (out[j] >> v->shift);
}

/* All addresses of one fingerprint. Room for BLOOM_MAX_HASHES. */
static inline void bloom_addresses(
    const bloom_vector *v, uint64_t h1, uint64_t h2, uint64_t *out
) {
    unsigned j;
    if (v->kind == BLOOM_BLOCKED) {
        uint64_t start = bloom_high64(h1, v->lines) * 512, word = h2;
        for (j = 0; j < v->hashes; j++, word >>= 9) {
            if (j % 7 == 0) word = bloom_line_word(h1, h2, j / 7);
            out[j] = start + (word & 511);
        }
    } else {
        bloom_some_addresses(v, h1, h2, 0, v->hashes, out);
    }
}

static inline unsigned bloom_bit(const uint8_t *bits, uint64_t address) {
    return (bits[address >> 3] >> (address & 7)) & 1u;
}

static inline void bloom_set_bit(uint8_t *bits, uint64_t address) {
    bits[address >> 3] |= (uint8_t)(1u << (address & 7));
}

/* Whether the bits of hashes first .. end - 1 of a key are set in its line, as 0 or 1. No branch:
 * the line is there after one miss. */
static BLOOM_INLINE unsigned bloom_line_has_some(
    const uint8_t *line, uint64_t h1, uint64_t h2, unsigned first, unsigned end
) {
    unsigned all = 1, j;
    uint64_t word = bloom_line_word(h1, h2, first / 7) >> (9 * (first % 7));
    BLOOM_UNROLL for (j = first; j < end; j++, word >>= 9) {
        if (j > first && j % 7 == 0) word = bloom_line_word(h1, h2, j / 7);
        all &= bloom_bit(line, word & 511);
    }
    return all;
}

static BLOOM_INLINE unsigned bloom_line_has(
    const uint8_t *line, uint64_t h1, uint64_t h2, unsigned hashes
) {
    return bloom_line_has_some(line, h1, h2, 0, hashes);
}

/* Sets the bits of a key in its line and returns how many were not set. */
static BLOOM_INLINE unsigned bloom_line_set(
    uint8_t *line, uint64_t h1, uint64_t h2, unsigned hashes
) {
    unsigned bits = 0, j;
    uint64_t word = h2;
    BLOOM_UNROLL for (j = 0; j < hashes; j++, word >>= 9) {
        uint8_t *byte, bit;
        if (j && j % 7 == 0) word = bloom_line_word(h1, h2, j / 7);
        byte = line + ((word & 511) >> 3);
        bit = (uint8_t)(1u << (word & 7));
        bits += !(*byte & bit);
        *byte |= bit;
    }
    return bits;
}

/* Whether all bits of one fingerprint are set. Stops at the first that is not. */
static inline int bloom_has(const bloom_vector *v, uint64_t h1, uint64_t h2) {
    unsigned j, group;
    if (v->kind == BLOOM_SPREAD) {
        for (j = 0; j < v->hashes; j++)
            if (!bloom_bit(v->bits, j * v->step_bits + bloom_position(h1, h2, j, v->slice_bits)))
                return 0;
        return 1;
    }
    if (v->kind == BLOOM_BLOCKED) {
        const uint8_t *line = v->bits + bloom_high64(h1, v->lines) * 64;
        unsigned has = 0;
        BLOOM_WITH_CONSTANT(v->hashes, has = bloom_line_has(line, h1, h2, hashes))
        return (int)has;
    }
    for (group = 0; group * BLOOM_GROUP < v->hashes; group++) {
        uint64_t found[BLOOM_GROUP];
        bloom_eight_addresses(v->tables->rows[group], h1, found);
        for (j = group * BLOOM_GROUP; j < v->hashes && j < (group + 1) * BLOOM_GROUP; j++)
            if (!bloom_bit(v->bits, j * v->step_bits + (found[j % BLOOM_GROUP] >> v->shift)))
                return 0;
    }
    return 1;
}

#endif

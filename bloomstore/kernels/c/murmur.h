/* Murmur3 x64 128 (Austin Appleby, public domain algorithm), the fingerprint of an encoded key.
 *
 * In: bytes and a seed; out: two words, h1 = the first 8 bytes of the digest that mmh3 gives, read
 * as little endian, h2 = the other 8. The bytes need no alignment and are read in place.
 *
 * Not here: which bytes and which seed a key has (keys), what is done with the words (vector.h).
 */
#ifndef BLOOMSTORE_MURMUR_H
#define BLOOMSTORE_MURMUR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compiler.h"

typedef struct {
    uint64_t h1, h2;
} bloom_print;

static BLOOM_INLINE uint64_t bloom_rotate(uint64_t word, int by) {
    return (word << by) | (word >> (64 - by));
}

/* Little-endian words. Of the bytes one by one GCC does not always make one load: the tail of a str
 * took 25 instructions more, and the fingerprint of one 12.4 ns instead of 10.1. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static BLOOM_INLINE uint64_t bloom_read64(const uint8_t *from) {
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

static BLOOM_INLINE uint64_t bloom_read32(const uint8_t *from) {
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return word;
}
#else
static BLOOM_INLINE uint64_t bloom_read32(const uint8_t *from) {
    return (uint64_t)from[0] | (uint64_t)from[1] << 8 | (uint64_t)from[2] << 16
         | (uint64_t)from[3] << 24;
}

static BLOOM_INLINE uint64_t bloom_read64(const uint8_t *from) {
    return bloom_read32(from) | bloom_read32(from + 4) << 32;
}
#endif

/* The last 1 to 8 bytes of a key of so many, as if zeros followed. Reads may overlap, which changes
 * nothing, and never leave the key. */
static BLOOM_INLINE uint64_t bloom_read_tail(const uint8_t *end, size_t tail, size_t bytes) {
    const uint8_t *from = end - tail;
    size_t middle = tail / 2;
    if (bytes >= 8) return bloom_read64(end - 8) >> (64 - 8 * tail);
    if (tail >= 4) return bloom_read32(from) | bloom_read32(end - 4) << (8 * (tail - 4));
    return (uint64_t)from[0] | (uint64_t)from[middle] << (8 * middle)
         | (uint64_t)end[-1] << (8 * (tail - 1));
}

static BLOOM_INLINE uint64_t bloom_scramble1(uint64_t word) {
    return bloom_rotate(word * UINT64_C(0x87c37b91114253d5), 31) * UINT64_C(0x4cf5ad432745937f);
}

static BLOOM_INLINE uint64_t bloom_scramble2(uint64_t word) {
    return bloom_rotate(word * UINT64_C(0x4cf5ad432745937f), 33) * UINT64_C(0x87c37b91114253d5);
}

static BLOOM_INLINE uint64_t bloom_avalanche(uint64_t word) {
    word = (word ^ (word >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    word = (word ^ (word >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return word ^ (word >> 33);
}

static BLOOM_INLINE bloom_print bloom_finish(uint64_t h1, uint64_t h2, size_t bytes) {
    bloom_print out;
    h1 ^= bytes;
    h2 ^= bytes;
    h1 += h2;
    h2 += h1;
    h1 = bloom_avalanche(h1);
    h2 = bloom_avalanche(h2);
    out.h1 = h1 + h2;
    out.h2 = h2 + out.h1;
    return out;
}

static BLOOM_INLINE bloom_print bloom_murmur(const void *from, size_t bytes, uint32_t seed) {
    const uint8_t *at = (const uint8_t *)from;
    uint64_t h1 = seed, h2 = seed;
    size_t left = bytes;
    for (; left >= 16; left -= 16, at += 16) {
        h1 ^= bloom_scramble1(bloom_read64(at));
        h1 = (bloom_rotate(h1, 27) + h2) * 5 + 0x52dce729;
        h2 ^= bloom_scramble2(bloom_read64(at + 8));
        h2 = (bloom_rotate(h2, 31) + h1) * 5 + 0x38495ab5;
    }
    if (left > 8) {
        h2 ^= bloom_scramble2(bloom_read_tail(at + left, left - 8, bytes));
        h1 ^= bloom_scramble1(bloom_read64(at));
    } else if (left > 0) {
        h1 ^= bloom_scramble1(bloom_read_tail(at + left, left, bytes));
    }
    return bloom_finish(h1, h2, bytes);
}

/* The same for an integer as 8 little-endian bytes. */
static BLOOM_INLINE bloom_print bloom_murmur_int64(uint64_t key, uint32_t seed) {
    return bloom_finish(seed ^ bloom_scramble1(key), seed, 8);
}

#endif

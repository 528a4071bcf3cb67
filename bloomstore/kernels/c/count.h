/* How many bits of a vector are set.
 *
 * Not here: counting blocks while they are checked (checksum.h).
 */
#ifndef BLOOMSTORE_COUNT_H
#define BLOOMSTORE_COUNT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compiler.h"

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

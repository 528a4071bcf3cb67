/* The bits of one key in its line of 64 bytes, looked at or set in wide registers.
 *
 * In: a line of a blocked vector and a fingerprint; out: what bloom_line_has and bloom_line_set say.
 *
 * Not here: which line (vector.h), loops over keys (find.h, insert_blocked.h, insert_threads.h).
 */
#ifndef BLOOMSTORE_LINE_AVX2_H
#define BLOOMSTORE_LINE_AVX2_H

#include "vector.h"
#include "cpu.h"

#if BLOOM_HAS_WIDE

/* Seven lanes that hold 1, then zeros: from lane 7 - n on, n ones and no more than seven. */
static const uint32_t bloom_ones[15] = {1, 1, 1, 1, 1, 1, 1};

/* The bits that up to seven hashes look for in a line: lane j wants one bit, of word `word` in that
 * half of the line which the highest bit of `is_high` names. */
typedef struct {
    __m256i wanted, word, is_high;
} bloom_asked;

/* Lane j takes the two bytes in which nine bits from bit 9 * j on begin. */
BLOOM_AVX2 static BLOOM_INLINE bloom_asked bloom_wide_ask(uint64_t word, unsigned count) {
    const __m256i bytes = _mm256_setr_epi8(
        0, 1, -1, -1, 1, 2, -1, -1, 2, 3, -1, -1, 3, 4, -1, -1,
        4, 5, -1, -1, 5, 6, -1, -1, 6, 7, -1, -1, -1, -1, -1, -1);
    __m256i ones = _mm256_loadu_si256((const __m256i *)(bloom_ones + 7 - count));
    __m256i bit = _mm256_srlv_epi32(
        _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)word), bytes),
        _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    bloom_asked asked = {
        _mm256_sllv_epi32(ones, _mm256_and_si256(bit, _mm256_set1_epi32(31))),
        _mm256_srli_epi32(bit, 5),
        _mm256_slli_epi32(bit, 23),
    };
    return asked;
}

/* Whether the line has every wanted bit. Only five instructions wait for the line, where bit after bit
 * it is seven times five. */
BLOOM_AVX2 static BLOOM_INLINE int bloom_wide_finds(const uint8_t *line, const bloom_asked *asked) {
    __m256i low = _mm256_loadu_si256((const __m256i *)line);
    __m256i high = _mm256_loadu_si256((const __m256i *)(line + 32));
    __m256 words = _mm256_blendv_ps(
        _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, asked->word)),
        _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, asked->word)),
        _mm256_castsi256_ps(asked->is_high));
    return _mm256_testc_si256(_mm256_castps_si256(words), asked->wanted);
}

/* Whether the bits of `count` hashes, at most seven, are set that this word gives. */
BLOOM_AVX2 static BLOOM_INLINE int bloom_wide_has_some(
    const uint8_t *line, uint64_t word, unsigned count
) {
    bloom_asked asked = bloom_wide_ask(word, count);
    return bloom_wide_finds(line, &asked);
}

enum { BLOOM_WIDE_HASHES = 14 };

/* The same as bloom_line_has, for up to BLOOM_WIDE_HASHES. The line is asked for first, and looked at
 * when all is done that can be done without it. The processor stops some 300 instructions after a
 * load that waits for memory: every one between the prefetch and the load brings the prefetch of the
 * next lookup, in a loop of Python, nearer to that. Without it far hits of str at 0.1 % take 129 ns
 * (tools/bench.py --profile), with it 87 to 98. */
BLOOM_AVX2 static BLOOM_INLINE int bloom_wide_has(
    const uint8_t *line, uint64_t h1, uint64_t h2, unsigned hashes
) {
    bloom_asked first, rest;
    BLOOM_PREFETCH(line);
    first = bloom_wide_ask(h2, hashes < 7 ? hashes : 7);
    if (hashes <= 7) return bloom_wide_finds(line, &first);
    rest = bloom_wide_ask(bloom_line_word(h1, h2, 1), hashes - 7);
    return bloom_wide_finds(line, &first) & bloom_wide_finds(line, &rest);
}

/* The same as bloom_line_set. A shift by 64 or more gives zero, and so does one by less than
 * nothing: of the eight lanes only the one that the bit lies in gets it. */
BLOOM_AVX2 static inline unsigned bloom_wide_set(
    uint8_t *line, uint64_t h1, uint64_t h2, unsigned hashes
) {
    const __m256i one = _mm256_set1_epi64x(1), nine_bits = _mm256_set1_epi64x(511);
    const __m256i low_lanes = _mm256_set_epi64x(192, 128, 64, 0);
    const __m256i high_lanes = _mm256_set_epi64x(448, 384, 320, 256);
    __m256i low = _mm256_setzero_si256(), high = low, word = low, low_line, high_line;
    uint64_t fresh[8];
    unsigned j, bits = 0;
    BLOOM_UNROLL for (j = 0; j < hashes; j++) {
        __m256i bit;
        if (j % 7 == 0) word = _mm256_set1_epi64x((long long)bloom_line_word(h1, h2, j / 7));
        bit = _mm256_and_si256(_mm256_srli_epi64(word, 9 * (int)(j % 7)), nine_bits);
        low = _mm256_or_si256(low, _mm256_sllv_epi64(one, _mm256_sub_epi64(bit, low_lanes)));
        high = _mm256_or_si256(high, _mm256_sllv_epi64(one, _mm256_sub_epi64(bit, high_lanes)));
    }
    low_line = _mm256_loadu_si256((const __m256i *)line);
    high_line = _mm256_loadu_si256((const __m256i *)(line + 32));
    _mm256_storeu_si256((__m256i *)fresh, _mm256_andnot_si256(low_line, low));
    _mm256_storeu_si256((__m256i *)(fresh + 4), _mm256_andnot_si256(high_line, high));
    _mm256_storeu_si256((__m256i *)line, _mm256_or_si256(low_line, low));
    _mm256_storeu_si256((__m256i *)(line + 32), _mm256_or_si256(high_line, high));
    for (j = 0; j < 8; j++) bits += (unsigned)__builtin_popcountll(fresh[j]);
    return bits;
}

#endif
#endif

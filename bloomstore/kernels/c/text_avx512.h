/* Fingerprints of short texts, eight at a time in registers of 512 bits.
 *
 * In: the words of texts, put into columns one by one, and Murmur's seed; out: what bloom_murmur
 * gives for each, two words per text. Texts of different lengths may stand side by side: what a
 * short one lacks is zero, and words of zeros change nothing in Murmur's tail.
 *
 * Why: 10^6 str of 24 characters take 2.9 ns each instead of 6.2, a bulk lookup with them 5.7 instead
 * of 8.7, a bulk add 7.2 instead of 10.8 (python -m tools.compare.registers, AMD EPYC).
 *
 * Not here: integers (murmur_avx512.h), where the texts come from (hash_python.h, hash_buffer.h).
 */
#ifndef BLOOMSTORE_TEXT_AVX512_H
#define BLOOMSTORE_TEXT_AVX512_H

#include "murmur.h"
#include "cpu.h"
#include "murmur_avx512.h"

enum {
    BLOOM_TEXTS = 64,     /* texts in columns at a time: 3.5 KiB */
    BLOOM_TEXT_WHOLE = 2, /* whole pieces of 16 bytes that a text may have: a UUID is one of 36 */
    BLOOM_TEXT_BYTES = 16 * BLOOM_TEXT_WHOLE + 15
};

typedef struct {
    uint64_t bytes[BLOOM_TEXTS];
    uint64_t whole[2 * BLOOM_TEXT_WHOLE][BLOOM_TEXTS];
    uint64_t tail[2][BLOOM_TEXTS];
} bloom_texts;

/* Puts a text of up to BLOOM_TEXT_BYTES into row i of the columns. */
static BLOOM_INLINE void bloom_put_text(
    bloom_texts *texts, size_t i, const uint8_t *at, size_t bytes
) {
    const uint8_t *end = at + bytes;
    uint64_t first = 0, second = 0;
    size_t left = bytes, word;
    texts->bytes[i] = bytes;
    for (word = 0; left >= 16; word += 2, left -= 16, at += 16) {
        texts->whole[word][i] = bloom_read64(at);
        texts->whole[word + 1][i] = bloom_read64(at + 8);
    }
    if (left > 8) {
        first = bloom_read64(at);
        second = bloom_read_tail(end, left - 8, bytes);
    } else if (left > 0) {
        first = bloom_read_tail(end, left, bytes);
    }
    texts->tail[0][i] = first;
    texts->tail[1][i] = second;
}

#if BLOOM_HAS_WIDE

BLOOM_AVX512 static BLOOM_INLINE __m512i bloom_scramble1_of_eight(const uint64_t *words) {
    __m512i out = bloom_times(_mm512_loadu_si512(words), UINT64_C(0x87c37b91114253d5));
    return bloom_times(_mm512_rol_epi64(out, 31), UINT64_C(0x4cf5ad432745937f));
}

BLOOM_AVX512 static BLOOM_INLINE __m512i bloom_scramble2_of_eight(const uint64_t *words) {
    __m512i out = bloom_times(_mm512_loadu_si512(words), UINT64_C(0x4cf5ad432745937f));
    return bloom_times(_mm512_rol_epi64(out, 33), UINT64_C(0x87c37b91114253d5));
}

/* words * 5 + more, for the lanes of the mask; `before` for the others. */
BLOOM_AVX512 static BLOOM_INLINE __m512i bloom_mix_of_eight(
    __m512i before, __mmask8 mask, __m512i words, uint64_t more
) {
    __m512i five = _mm512_add_epi64(words, _mm512_slli_epi64(words, 2));
    return _mm512_mask_add_epi64(before, mask, five, _mm512_set1_epi64((long long)more));
}

BLOOM_AVX512 static BLOOM_INLINE void bloom_print_eight_texts(
    const bloom_texts *texts, size_t i, uint32_t seed, uint64_t *out
) {
    const __m512i bytes = _mm512_loadu_si512(texts->bytes + i);
    __m512i h1 = _mm512_set1_epi64((long long)seed), h2 = h1;
    unsigned piece;
    BLOOM_UNROLL for (piece = 0; piece < BLOOM_TEXT_WHOLE; piece++) {
        __m512i needed = _mm512_set1_epi64(16 * ((long long)piece + 1)), mixed;
        __mmask8 has_piece = _mm512_cmpge_epu64_mask(bytes, needed);
        if (!has_piece) break;
        mixed = _mm512_xor_si512(h1, bloom_scramble1_of_eight(texts->whole[2 * piece] + i));
        mixed = _mm512_add_epi64(_mm512_rol_epi64(mixed, 27), h2);
        h1 = bloom_mix_of_eight(h1, has_piece, mixed, 0x52dce729);
        mixed = _mm512_xor_si512(h2, bloom_scramble2_of_eight(texts->whole[2 * piece + 1] + i));
        mixed = _mm512_add_epi64(_mm512_rol_epi64(mixed, 31), h1);
        h2 = bloom_mix_of_eight(h2, has_piece, mixed, 0x38495ab5);
    }
    h1 = _mm512_xor_si512(h1, bloom_scramble1_of_eight(texts->tail[0] + i));
    h2 = _mm512_xor_si512(h2, bloom_scramble2_of_eight(texts->tail[1] + i));
    bloom_finish_eight(_mm512_xor_si512(h1, bytes), _mm512_xor_si512(h2, bytes), out);
}

/* The fingerprints of the first n texts of the columns. The last eight rows may lack a text, or
 * have an earlier one: their fingerprints are not copied. */
BLOOM_AVX512 static void bloom_print_texts(
    const bloom_texts *texts, size_t n, uint32_t seed, uint64_t *out
) {
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) bloom_print_eight_texts(texts, i, seed, out + 2 * i);
    if (i < n) {
        uint64_t last[16];
        bloom_print_eight_texts(texts, i, seed, last);
        memcpy(out + 2 * i, last, (n - i) * 16);
    }
}

#endif
#endif

/* Which registers the processor has, decided when the code runs: wheels stay portable.
 *
 * In: nothing; out: bloom_width, and the attributes of functions that need so much. A function with
 * such an attribute is only called when bloom_width says that it may be.
 *
 * Not here: what is done in wide registers (line_avx2.h, murmur_avx512.h, text_avx512.h).
 */
#ifndef BLOOMSTORE_CPU_H
#define BLOOMSTORE_CPU_H

#if defined(__GNUC__) && defined(__x86_64__)
#define BLOOM_HAS_WIDE 1
#include <immintrin.h>
#define BLOOM_AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt")))
#define BLOOM_AVX512 __attribute__((target("avx512f,avx512dq,avx2,bmi,bmi2,popcnt")))
#else
#define BLOOM_HAS_WIDE 0
#endif

enum { BLOOM_NARROW = 0, BLOOM_256 = 256, BLOOM_512 = 512 };

/* Bits of the widest registers to use: what bloom_widest says, or less in tests. */
static int bloom_width = BLOOM_NARROW;

static inline int bloom_widest(void) {
#if BLOOM_HAS_WIDE
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi")
        && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt")) {
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
            return BLOOM_512;
        return BLOOM_256;
    }
#endif
    return BLOOM_NARROW;
}

#endif

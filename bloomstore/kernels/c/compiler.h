/* What compilers call by different names: prefetch, inlining, unrolling, copies for wide registers.
 *
 * Where a compiler has none of it the code is the same, and slower.
 */
#ifndef BLOOMSTORE_COMPILER_H
#define BLOOMSTORE_COMPILER_H

#if defined(__GNUC__) || defined(__clang__)
#define BLOOM_PREFETCH(place) __builtin_prefetch((place), 0, 3)
#define BLOOM_PREFETCH_TO_WRITE(place) __builtin_prefetch((place), 1, 3)
#define BLOOM_INLINE inline __attribute__((always_inline))
#define BLOOM_APART __attribute__((noinline))
#define BLOOM_RESTRICT __restrict__
#define BLOOM_UNROLL _Pragma("GCC unroll 16")
#else
#define BLOOM_PREFETCH(place) ((void)(place))
#define BLOOM_PREFETCH_TO_WRITE(place) ((void)(place))
#define BLOOM_INLINE inline
#define BLOOM_APART
#define BLOOM_RESTRICT
#define BLOOM_UNROLL
#endif

/* Wider registers where the processor has them, chosen at load time: wheels stay portable. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define BLOOM_WIDE __attribute__((target_clones("avx2", "default")))
#define BLOOM_POPCOUNT __attribute__((target_clones("avx2", "popcnt", "default")))
#else
#define BLOOM_WIDE
#define BLOOM_POPCOUNT
#endif

#endif

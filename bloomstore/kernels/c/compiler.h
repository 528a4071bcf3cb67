/* Names for what compilers spell differently: prefetch, inlining, unrolling, copies for wide registers.
 *
 * With a compiler that has none of them the code is the same, and slower.
 */
#ifndef BLOOMSTORE_COMPILER_H
#define BLOOMSTORE_COMPILER_H

#if defined(__GNUC__) || defined(__clang__)
#define BLOOM_PREFETCH(address) __builtin_prefetch((address), 0, 3)
#define BLOOM_PREFETCH_TO_WRITE(address) __builtin_prefetch((address), 1, 3)
#define BLOOM_INLINE inline __attribute__((always_inline))
#define BLOOM_APART __attribute__((noinline))
#define BLOOM_RESTRICT __restrict__
#define BLOOM_UNROLL _Pragma("GCC unroll 16")
#else
#define BLOOM_PREFETCH(address) ((void)(address))
#define BLOOM_PREFETCH_TO_WRITE(address) ((void)(address))
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

/* The parts of one large job, each in a thread of its own.
 *
 * In: a function and an array of jobs that share nothing that is written; out: all of them done. The
 * caller takes the first job itself. Threads live as long as the call: nothing is left for a fork to
 * break, and a part that gets no thread (none left, or a system without pthreads) is done by the
 * caller. One costs 25 us to begin and to end.
 *
 * The threads know nothing of Python: no object is changed, no function of its interface called.
 *
 * Not here: how a job is divided (insert_threads.h, find.h, hash_buffer.h, hash_python.h), and into
 * how many parts (threads.py).
 */
#ifndef BLOOMSTORE_THREADS_H
#define BLOOMSTORE_THREADS_H

#include <stddef.h>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define BLOOM_HAS_THREADS 1
#else
#define BLOOM_HAS_THREADS 0
#endif

enum { BLOOM_MOST_PARTS = 16 };

/* Where part number `part` of `parts` begins, in n things. */
static inline size_t bloom_part_start(size_t n, unsigned part, unsigned parts) {
    return n / parts * part + (n % parts) * part / parts;
}

typedef struct {
    void (*work)(void *job);
    void *job;
} bloom_task;

static inline void *bloom_do(void *task) {
    const bloom_task *given = (const bloom_task *)task;
    given->work(given->job);
    return NULL;
}

/* Does `count` jobs, at most BLOOM_MOST_PARTS, of so many bytes each. */
static inline void bloom_do_all(
    void (*work)(void *job), void *jobs, size_t job_bytes, unsigned count
) {
    unsigned i, begun = 1;
#if BLOOM_HAS_THREADS
    bloom_task tasks[BLOOM_MOST_PARTS];
    pthread_t threads[BLOOM_MOST_PARTS];
    for (; begun < count; begun++) {
        tasks[begun].work = work;
        tasks[begun].job = (char *)jobs + begun * job_bytes;
        if (pthread_create(threads + begun, NULL, bloom_do, tasks + begun)) break;
    }
#endif
    work(jobs);
    for (i = begun; i < count; i++) work((char *)jobs + i * job_bytes);
#if BLOOM_HAS_THREADS
    for (i = 1; i < begun; i++) pthread_join(threads[i], NULL);
#endif
}

#endif

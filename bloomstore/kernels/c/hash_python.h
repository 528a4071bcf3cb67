/* The fingerprint of a Python object that is exactly a str, an int or bytes.
 *
 * In: an object and the Murmur seeds of the three tags; out: its fingerprint. Anything else, an int
 * beyond 64 bits and a str with a lone surrogate are left to the caller, which can read all keys.
 *
 * Invariants
 *   1. The same as keys/sequences.py gives for the key (tests/kernels).
 *   2. No Python code runs and nothing is left behind in the object: a str that is not ASCII is
 *      encoded aside, so that it does not keep its UTF-8.
 *
 * Not here: Murmur (murmur.h), the other kinds of keys (keys/encoding.py).
 */
#ifndef BLOOMSTORE_HASH_PYTHON_H
#define BLOOMSTORE_HASH_PYTHON_H

#include <Python.h>

#include "murmur.h"
#include "threads.h"
#include "vector.h"
#include "murmur_avx512.h"
#include "text_avx512.h"

typedef struct {
    uint32_t of_str, of_int, of_bytes;
} bloom_seeds;

/* Digits of an int are read in place where they are known to be of 30 bits:
 * PyLong_AsLongLongAndOverflow takes 4 to 10 ns more for the three digits of a large int64. */
#if PY_VERSION_HEX < 0x030F0000 && defined(PyLong_SHIFT) && PyLong_SHIFT == 30                    \
    && !defined(Py_LIMITED_API) && !defined(PYPY_VERSION)
#define BLOOM_READS_DIGITS 1
#else
#define BLOOM_READS_DIGITS 0
#endif

/* The value of an exact int, or 0 when it does not fit, or is not known without a call. */
static BLOOM_INLINE int bloom_int64_of(PyObject *key, uint64_t *out, int may_call) {
    int beyond = 0;
#if BLOOM_READS_DIGITS
    const PyLongObject *number = (const PyLongObject *)key;
#if PY_VERSION_HEX >= 0x030C0000
    const digit *digits = number->long_value.ob_digit;
    size_t count = (size_t)(number->long_value.lv_tag >> 3);
    int is_negative = (number->long_value.lv_tag & 3) == 2;
#else
    const digit *digits = number->ob_digit;
    int is_negative = Py_SIZE(number) < 0;
    size_t count = (size_t)(is_negative ? -Py_SIZE(number) : Py_SIZE(number));
#endif
    if (count < 3 || (count == 3 && digits[2] < 8)) { /* below 2^63 in absolute value */
        uint64_t value = count > 2 ? (uint64_t)digits[2] << 60 : 0;
        if (count > 1) value |= (uint64_t)digits[1] << 30;
        if (count > 0) value |= (uint64_t)digits[0];
        *out = is_negative ? 0 - value : value;
        return 1;
    }
#endif
    if (!may_call) return 0;
    *out = (uint64_t)PyLong_AsLongLongAndOverflow(key, &beyond);
    return !beyond;
}

static inline int bloom_print_of_unicode(PyObject *key, uint32_t seed, bloom_print *out) {
    PyObject *encoded;
    Py_INCREF(key); /* an error may run the collector, whose finalizers may take it off a list */
    encoded = PyUnicode_AsUTF8String(key);
    Py_DECREF(key);
    if (!encoded) {
        PyErr_Clear();
        return 0;
    }
    *out = bloom_murmur(PyBytes_AS_STRING(encoded), (size_t)PyBytes_GET_SIZE(encoded), seed);
    Py_DECREF(encoded);
    return 1;
}

/* 1, or 0: the caller must find out by itself. Unless it may, no function of Python is called. */
static BLOOM_INLINE int bloom_print_if(
    PyObject *key, const bloom_seeds *seeds, bloom_print *out, int may_call
) {
    if (PyUnicode_CheckExact(key)) {
        if (!PyUnicode_IS_COMPACT_ASCII(key))
            return may_call && bloom_print_of_unicode(key, seeds->of_str, out);
        *out = bloom_murmur( /* where PyUnicode_DATA would look again what kind it is */
            (const PyASCIIObject *)key + 1, (size_t)PyUnicode_GET_LENGTH(key), seeds->of_str);
        return 1;
    }
    if (PyLong_CheckExact(key)) {
        uint64_t number;
        if (!bloom_int64_of(key, &number, may_call)) return 0;
        *out = bloom_murmur_int64(number, seeds->of_int);
        return 1;
    }
    if (PyBytes_CheckExact(key)) {
        *out = bloom_murmur(PyBytes_AS_STRING(key), (size_t)PyBytes_GET_SIZE(key), seeds->of_bytes);
        return 1;
    }
    return 0;
}

static inline int bloom_print_of(PyObject *key, const bloom_seeds *seeds, bloom_print *out) {
    return bloom_print_if(key, seeds, out, 1);
}

/* Objects that are asked for while one is hashed. A list whose objects lie here and there in memory
 * waits for each of them else: lookups of 1e6 shuffled ints took 130 ns per key, with this 31; of
 * strings 140 and 50. Objects in the order in which they were made cost the same as before. */
#ifndef BLOOM_OBJECTS_AHEAD
#define BLOOM_OBJECTS_AHEAD 16
#endif

/* keys[first .. first + n - 1], of which `done` have their fingerprints in `out`. */
typedef struct {
    PyObject *keys;
    Py_ssize_t first, n, done;
    const bloom_seeds *seeds;
    uint64_t *out;
} bloom_listed;

static BLOOM_INLINE void bloom_prefetch_object(PyObject *keys, Py_ssize_t at, Py_ssize_t size) {
    if (at + BLOOM_OBJECTS_AHEAD < size) {
        const char *next = (const char *)PyList_GET_ITEM(keys, at + BLOOM_OBJECTS_AHEAD);
        BLOOM_PREFETCH(next);
        BLOOM_PREFETCH(next + 63); /* a str of more than 20 characters goes beyond one line */
    }
}

/* Whether every object of a list is exactly an int from `least` to `most`. */
static int bloom_are_between(PyObject *values, int64_t least, int64_t most) {
    Py_ssize_t i, size = PyList_GET_SIZE(values);
    for (i = 0; i < size; i++) {
        PyObject *value = PyList_GET_ITEM(values, i);
        uint64_t number;
        bloom_prefetch_object(values, i, size);
        if (!PyLong_CheckExact(value) || !bloom_int64_of(value, &number, 1)) return 0;
        if ((int64_t)number < least || (int64_t)number > most) return 0;
    }
    return 1;
}

/* Integers that are taken out of their objects, and then hashed together. */
#define BLOOM_INTEGERS BLOOM_TEXTS

/* The values of keys[at .. at + n - 1] up to the first that is no int, or a large one. */
static BLOOM_INLINE Py_ssize_t bloom_integers_of_list(
    PyObject *keys, Py_ssize_t at, Py_ssize_t n, uint64_t *out
) {
    Py_ssize_t i, size = PyList_GET_SIZE(keys);
    for (i = 0; i < n; i++) {
        PyObject *key = PyList_GET_ITEM(keys, at + i);
        bloom_prefetch_object(keys, at + i, size);
        if (!PyLong_CheckExact(key) || !bloom_int64_of(key, out + i, 0)) break;
    }
    return i;
}

#if BLOOM_HAS_WIDE
/* The fingerprints of keys[at .. at + n - 1] up to the first that is no short ASCII str. */
BLOOM_AVX512 static Py_ssize_t bloom_print_texts_of_list(
    PyObject *keys, Py_ssize_t at, Py_ssize_t n, uint32_t seed, uint64_t *out
) {
    bloom_texts texts;
    Py_ssize_t i, size = PyList_GET_SIZE(keys);
    for (i = 0; i < n; i++) {
        PyObject *key = PyList_GET_ITEM(keys, at + i);
        bloom_prefetch_object(keys, at + i, size);
        if (!PyUnicode_CheckExact(key) || !PyUnicode_IS_COMPACT_ASCII(key)
            || PyUnicode_GET_LENGTH(key) > BLOOM_TEXT_BYTES)
            break;
        bloom_put_text(
            &texts, (size_t)i, (const uint8_t *)((const PyASCIIObject *)key + 1),
            (size_t)PyUnicode_GET_LENGTH(key));
    }
    bloom_print_texts(&texts, (size_t)i, seed, out);
    return i;
}
#endif

/* Goes on to the end, or to the first key that it must leave to the caller. */
static BLOOM_INLINE void bloom_print_listed(bloom_listed *listed, int may_call) {
    const bloom_seeds seeds = *listed->seeds;
    PyObject *keys = listed->keys;
    Py_ssize_t i, first = listed->first, n = listed->n, size = PyList_GET_SIZE(keys);
    uint64_t *out = listed->out, integers[BLOOM_INTEGERS];
    bloom_print made;
    for (i = listed->done; i < n;) {
        Py_ssize_t left = n - i < BLOOM_INTEGERS ? n - i : BLOOM_INTEGERS, end;
        Py_ssize_t found = bloom_integers_of_list(keys, first + i, left, integers);
        bloom_print_integers(integers, (size_t)found, seeds.of_int, out + 2 * i);
#if BLOOM_HAS_WIDE
        if (!found && bloom_width >= BLOOM_512)
            found = bloom_print_texts_of_list(keys, first + i, left, seeds.of_str, out + 2 * i);
#endif
        end = i + left;
        for (i += found; i < end; i++) {
            bloom_prefetch_object(keys, first + i, size);
            if (!bloom_print_if(PyList_GET_ITEM(keys, first + i), &seeds, &made, may_call)) {
                listed->done = i;
                return;
            }
            out[2 * i] = made.h1;
            out[2 * i + 1] = made.h2;
        }
    }
    listed->done = i;
}

static void bloom_print_plainly(void *job) { bloom_print_listed((bloom_listed *)job, 0); }

/* The fingerprints of keys[first .. first + n - 1]; 1, or 0: one of them is left to the caller.
 *
 * Several threads may look into the objects because the calling one holds the GIL for them: no other
 * thread can change the list or free a key meanwhile. A key that needs a function of Python is left
 * to the calling thread. */
static int bloom_prints_of_list(
    PyObject *keys, Py_ssize_t first, Py_ssize_t n, const bloom_seeds *seeds, uint64_t *out,
    unsigned parts
) {
    bloom_listed listed[BLOOM_MOST_PARTS];
    unsigned part;
    if (first < 0 || n < 0 || n > PyList_GET_SIZE(keys) - first) return 0;
    for (part = 0; part < parts; part++) {
        Py_ssize_t start = (Py_ssize_t)bloom_part_start((size_t)n, part, parts);
        Py_ssize_t end = (Py_ssize_t)bloom_part_start((size_t)n, part + 1, parts);
        bloom_listed one = {keys, first + start, end - start, 0, seeds, out + 2 * start};
        listed[part] = one;
    }
    if (parts > 1) bloom_do_all(bloom_print_plainly, listed, sizeof *listed, parts);
    for (part = 0; part < parts; part++) {
        bloom_print_listed(listed + part, 1);
        if (listed[part].done < listed[part].n) return 0;
    }
    return 1;
}

#endif

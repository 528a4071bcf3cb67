"""A library under the process: it records every file operation in order, or makes some fail.

In: a folder and the name of a log, out: an environment for a process (`recording`, `failing`), and
afterwards the log. The library is C, compiled once per test run and loaded before libc, because
LMDB and the kernel's own page cache are out of Python's sight: it sees open, write, fsync, rename
and so on of everything in the process, and compares the pages of shared mappings with a copy of
its own at each of these moments, so that a bit set in memory is in the log before the next step.

Syncs are recorded and not passed on: nothing here needs a real device to be slow.

    environment     meaning
    DEVICE_ROOT     the folder that counts; nothing else is recorded and nothing else fails
    DEVICE_LOG      the log, outside of the folder; none means: record nothing
    DEVICE_ACKS     writes to this file are acknowledgements, in their exact order
    DEVICE_FAULTS   "call:error:n:part,..." makes the n-th such call fail whose path contains the
                    part ("n+": from then on); an error of 0 kills the process instead. Calls are
                    open, write, commit (a write through O_DSYNC), sync, msync, allocate,
                    truncate, rename, unlink, mkdir, mmap

    record in the log: 40 bytes (native order), then a name, then bytes
      kind u8, padding, name length u32, inode u64, offset u64, length u64, bytes u64

Not here: what the records mean for a power cut (trace.py).
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import functools
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

RECORD = struct.Struct("=B3xIQQQQ")

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define MAX_MAPS 4096
#define MAX_RULES 16

struct record {
    uint8_t kind, pad[3];
    uint32_t name;
    uint64_t inode, offset, length, bytes;
};
struct map {
    char *start;
    size_t length;
    uint64_t inode, offset;
    char *copy, *path;
};
struct rule {
    char call[16], part[64];
    int error, n, on, count;
};

static char root[PATH_MAX], acks[PATH_MAX];
static size_t root_length;
static int log_fd = -1, order_fd = -1, skip_syncs, ready;
static struct map maps[MAX_MAPS];
static int map_count;
static struct rule rules[MAX_RULES];
static int rule_count, fired;
static pthread_mutex_t mutex;

/* ------------------------------------------------------------------------------ the log */

static void put(const void *bytes, size_t length) {
    const char *at = bytes;
    while (length) {
        ssize_t done = syscall(SYS_write, log_fd, at, length);
        if (done <= 0) abort();
        at += done; length -= done;
    }
}

static void record(char kind, uint64_t inode, uint64_t offset, uint64_t length,
                   const char *name, const void *bytes, size_t count) {
    if (log_fd < 0) return;
    uint32_t letters = name ? (uint32_t)strlen(name) : 0;
    struct record head = { kind, {0}, letters, inode, offset, length, count };
    char *whole = malloc(sizeof head + head.name + count);   /* one write: other processes append */
    memcpy(whole, &head, sizeof head);
    if (head.name) memcpy(whole + sizeof head, name, head.name);
    if (count) memcpy(whole + sizeof head + head.name, bytes, count);
    put(whole, sizeof head + head.name + count);
    free(whole);
}

/* Pages that were stored to since the last look. Called with the order held. */
static void look_at_maps(void) {
    char page[PAGE];
    for (int i = 0; log_fd >= 0 && i < map_count; i++) {
        struct map *m = &maps[i];
        if (!m->copy) continue;
        for (size_t at = 0; at < m->length; at += PAGE) {
            size_t part = m->length - at < PAGE ? m->length - at : PAGE;
            if (!memcmp(m->start + at, m->copy + at, part)) continue;
            memcpy(page, m->start + at, part);
            memcpy(m->copy + at, page, part);
            record('S', m->inode, m->offset + at, part, NULL, page, part);
        }
    }
}

static void begin(void) {
    pthread_mutex_lock(&mutex);
    if (order_fd >= 0) while (flock(order_fd, LOCK_EX) && errno == EINTR) {}
    look_at_maps();
}

static void end(void) {
    int kept = errno;
    if (order_fd >= 0) flock(order_fd, LOCK_UN);
    pthread_mutex_unlock(&mutex);
    errno = kept;
}

/* ------------------------------------------------------------------------------ what counts */

static int inside(const char *path) {
    return root_length && !strncmp(path, root, root_length)
        && (path[root_length] == '/' || !path[root_length] || path[root_length] == ' ');
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

static int counts(int fd, char *path, struct stat *status) {
    int kept = errno;
    int yes = ready && fd >= 0 && path_of(fd, path) && inside(path) && !fstat(fd, status);
    errno = kept;
    return yes;
}

static int full_path(int folder, const char *path, char *whole) {
    if (path[0] == '/') snprintf(whole, PATH_MAX, "%s", path);
    else {
        char base[PATH_MAX];
        if (folder == AT_FDCWD) { if (!getcwd(base, sizeof base)) return 0; }
        else if (!path_of(folder, base)) return 0;
        if (snprintf(whole, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return 0;
    }
    size_t length = strlen(whole);
    while (length > 1 && whole[length - 1] == '/') whole[--length] = 0;
    return ready && inside(whole);
}

static uint64_t inode_at(const char *path) {
    struct stat status;
    int kept = errno;
    uint64_t found = fstatat(AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) ? 0 : status.st_ino;
    errno = kept;
    return found;
}

/* ------------------------------------------------------------------------------ faults */

void device_faults(const char *text) {
    char copy[1024];
    pthread_mutex_lock(&mutex);
    rule_count = fired = 0;
    snprintf(copy, sizeof copy, "%s", text);
    char *rest = copy;
    for (char *one; (one = strsep(&rest, ",")) && rule_count < MAX_RULES;) {
        struct rule *r = &rules[rule_count];
        char n[16] = "";
        memset(r, 0, sizeof *r);
        if (sscanf(one, "%15[^:]:%d:%15[^:]:%63s", r->call, &r->error, n, r->part) < 3) continue;
        r->n = atoi(n);
        r->on = strchr(n, '+') != NULL;
        rule_count++;
    }
    pthread_mutex_unlock(&mutex);
}

int device_fired(void) { return fired; }

/* Whether this call must fail; errno says how. Called with the order held. */
static int fails(const char *call, const char *path) {
    for (int i = 0; i < rule_count; i++) {
        struct rule *r = &rules[i];
        if (strcmp(r->call, call) || (r->part[0] && !strstr(path + root_length, r->part))) continue;
        r->count++;
        if (r->count != r->n && !(r->on && r->count > r->n)) continue;
        fired++;
        if (!r->error) kill(getpid(), SIGKILL);
        errno = r->error;
        return 1;
    }
    return 0;
}

/* ------------------------------------------------------------------------------ the calls */

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static void note_open(const char *path, int flags, int fd, uint64_t before) {
    struct stat status;
    if (fd < 0 || fstat(fd, &status)) return;
    if (!before && (flags & O_CREAT)) record('C', status.st_ino, 0, 0, path, NULL, 0);
    else if ((flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY)
        record('T', status.st_ino, 0, 0, NULL, NULL, 0);
}

#define OPEN(folder, path, flags, call) \
    char whole[PATH_MAX]; \
    if (!full_path(folder, path, whole)) return call; \
    begin(); \
    uint64_t before = inode_at(whole); \
    int fd = -1; \
    if (!fails("open", whole)) { \
        fd = call; \
        int kept = errno; \
        note_open(whole, flags, fd, before); \
        errno = kept; \
    } \
    end(); \
    return fd

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, int); \
        va_end(more); \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    REAL(open);
    OPEN(AT_FDCWD, path, flags, real(path, flags, mode));
}
int open64(const char *path, int flags, ...) {
    MODE(flags)
    REAL(open64);
    OPEN(AT_FDCWD, path, flags, real(path, flags, mode));
}
int openat(int folder, const char *path, int flags, ...) {
    MODE(flags)
    REAL(openat);
    OPEN(folder, path, flags, real(folder, path, flags, mode));
}
int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags)
    REAL(openat64);
    OPEN(folder, path, flags, real(folder, path, flags, mode));
}
int creat(const char *path, mode_t mode) {
    REAL(creat);
    OPEN(AT_FDCWD, path, O_CREAT | O_TRUNC | O_WRONLY, real(path, mode));
}

/* Whether writes through it are on the device when they return: LMDB commits by one of these. */
static int is_direct(int fd) {
    int kept = errno, flags = fcntl(fd, F_GETFL);
    errno = kept;
    return flags >= 0 && (flags & O_DSYNC);
}

/* A write that was made: in the page cache, and on the device if the descriptor is made so. */
static void note_write(int fd, uint64_t inode, const void *bytes, ssize_t done, off_t offset) {
    if (done <= 0) return;
    int kept = errno;
    record('W', inode, offset, done, NULL, bytes, done);
    if (is_direct(fd)) record('G', inode, offset, done, NULL, NULL, 0);
    errno = kept;
}

static off_t place(int fd, off_t size) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_APPEND) ? size : lseek(fd, 0, SEEK_CUR);
}

#define WRITE(where, call) \
    char path[PATH_MAX]; struct stat status; \
    if (!counts(fd, path, &status)) return call; \
    begin(); \
    ssize_t done = -1; \
    if (!fails(is_direct(fd) ? "commit" : "write", path)) { \
        off_t offset = where; \
        done = call; \
        note_write(fd, status.st_ino, bytes, done, offset); \
    } \
    end(); \
    return done

ssize_t write(int fd, const void *bytes, size_t length) {
    REAL(write);
    char named[PATH_MAX];
    if (ready && acks[0] && path_of(fd, named) && !strcmp(named, acks)) {
        begin();
        record('A', 0, 0, length, NULL, bytes, length);
        ssize_t made = real(fd, bytes, length);
        end();
        return made;
    }
    WRITE(place(fd, status.st_size), real(fd, bytes, length));
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
    REAL(pwrite);
    WRITE(at, real(fd, bytes, length, at));
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
    REAL(pwrite64);
    WRITE(at, real(fd, bytes, length, at));
}

static char *joined(const struct iovec *parts, int count) {
    size_t length = 0, at = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    char *whole = malloc(length ? length : 1);
    for (int i = 0; i < count; i++) {
        memcpy(whole + at, parts[i].iov_base, parts[i].iov_len);
        at += parts[i].iov_len;
    }
    return whole;
}

#define WRITE_PARTS(where, call) \
    char path[PATH_MAX]; struct stat status; \
    if (!counts(fd, path, &status)) return call; \
    begin(); \
    ssize_t done = -1; \
    if (!fails(is_direct(fd) ? "commit" : "write", path)) { \
        char *bytes = joined(parts, count); \
        off_t offset = where; \
        done = call; \
        note_write(fd, status.st_ino, bytes, done, offset); \
        free(bytes); \
    } \
    end(); \
    return done

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    WRITE_PARTS(place(fd, status.st_size), real(fd, parts, count));
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    REAL(pwritev);
    WRITE_PARTS(at, real(fd, parts, count, at));
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    REAL(pwritev64);
    WRITE_PARTS(at, real(fd, parts, count, at));
}

#define SYNC(call) \
    char path[PATH_MAX]; struct stat status; \
    if (!counts(fd, path, &status)) return call; \
    begin(); \
    int result = 0; \
    if (fails("sync", path)) { \
        record('X', status.st_ino, 0, 0, NULL, NULL, 0); \
        result = -1; \
    } else { \
        if (!skip_syncs) result = call; \
        char kind = S_ISDIR(status.st_mode) ? 'H' : 'F'; \
        if (!result) record(kind, status.st_ino, 0, 0, NULL, NULL, 0); \
    } \
    end(); \
    return result

int fsync(int fd) { REAL(fsync); SYNC(real(fd)); }
int fdatasync(int fd) { REAL(fdatasync); SYNC(real(fd)); }

int msync(void *start, size_t length, int flags) {
    REAL(msync);
    if (!ready) return real(start, length, flags);
    begin();
    struct map *m = NULL;
    for (int i = map_count - 1; i >= 0 && !m; i--) {
        char *first = maps[i].start;
        if ((char *)start >= first && (char *)start < first + maps[i].length) m = &maps[i];
    }
    int result = 0;
    if (m && fails("msync", m->path)) {
        record('X', m->inode, 0, 0, NULL, NULL, 0);
        result = -1;
    } else {
        if (!m || !skip_syncs) result = real(start, length, flags);
        if (m && !result && (flags & MS_SYNC))
            record('G', m->inode, m->offset + ((char *)start - m->start), length, NULL, NULL, 0);
    }
    end();
    return result;
}

#define TRUNCATE(call) \
    char path[PATH_MAX]; struct stat status; \
    if (!counts(fd, path, &status)) return call; \
    begin(); \
    int result = -1; \
    if (!fails("truncate", path) && !(result = call)) \
        record('T', status.st_ino, length, 0, NULL, NULL, 0); \
    end(); \
    return result

int ftruncate(int fd, off_t length) { REAL(ftruncate); TRUNCATE(real(fd, length)); }
int ftruncate64(int fd, off64_t length) { REAL(ftruncate64); TRUNCATE(real(fd, length)); }

#define ALLOCATE(failed, call) \
    char path[PATH_MAX]; struct stat status; \
    if (!counts(fd, path, &status)) return call; \
    begin(); \
    int result; \
    if (fails("allocate", path)) result = failed; \
    else if (!(result = call)) record('E', status.st_ino, at + length, 0, NULL, NULL, 0); \
    end(); \
    return result

int posix_fallocate(int fd, off_t at, off_t length) {
    REAL(posix_fallocate);
    ALLOCATE(errno, real(fd, at, length));
}
int posix_fallocate64(int fd, off64_t at, off64_t length) {
    REAL(posix_fallocate64);
    ALLOCATE(errno, real(fd, at, length));
}
int fallocate(int fd, int mode, off_t at, off_t length) {
    REAL(fallocate);
    ALLOCATE(-1, real(fd, mode, at, length));
}
int fallocate64(int fd, int mode, off64_t at, off64_t length) {
    REAL(fallocate64);
    ALLOCATE(-1, real(fd, mode, at, length));
}

#define NAMES(folder, path, kind, what, call) \
    char whole[PATH_MAX]; \
    if (!full_path(folder, path, whole)) return call; \
    begin(); \
    uint64_t before = inode_at(whole); \
    int result = -1; \
    if (!fails(what, whole) && !(result = call)) \
        record(kind, before ? before : inode_at(whole), 0, 0, whole, NULL, 0); \
    end(); \
    return result

int unlink(const char *path) { REAL(unlink); NAMES(AT_FDCWD, path, 'U', "unlink", real(path)); }
int rmdir(const char *path) { REAL(rmdir); NAMES(AT_FDCWD, path, 'U', "unlink", real(path)); }
int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    NAMES(folder, path, 'U', "unlink", real(folder, path, flags));
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    NAMES(AT_FDCWD, path, 'D', "mkdir", real(path, mode));
}
int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(mkdirat);
    NAMES(folder, path, 'D', "mkdir", real(folder, path, mode));
}

#define RENAME(from_folder, from, to_folder, to, call) \
    char old[PATH_MAX], new[PATH_MAX], both[2 * PATH_MAX]; \
    if (!full_path(from_folder, from, old) || !full_path(to_folder, to, new)) return call; \
    begin(); \
    uint64_t inode = inode_at(old); \
    int result = -1; \
    if (!fails("rename", new) && !(result = call)) { \
        snprintf(both, sizeof both, "%s\n%s", old, new); \
        record('N', inode, 0, 0, both, NULL, 0); \
    } \
    end(); \
    return result

int rename(const char *from, const char *to) {
    REAL(rename);
    RENAME(AT_FDCWD, from, AT_FDCWD, to, real(from, to));
}
int renameat(int a, const char *from, int b, const char *to) {
    REAL(renameat);
    RENAME(a, from, b, to, real(a, from, b, to));
}
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    REAL(renameat2);
    RENAME(a, from, b, to, real(a, from, b, to, flags));
}

#define MAP(call) \
    char path[PATH_MAX]; struct stat status; \
    if ((flags & MAP_ANONYMOUS) || !counts(fd, path, &status)) return call; \
    begin(); \
    void *made = MAP_FAILED; \
    if (!fails("mmap", path)) made = call; \
    if (made != MAP_FAILED && (flags & MAP_SHARED) && (protection & PROT_WRITE)) \
        note_map(made, length, path, &status, at); \
    end(); \
    return made

static void note_map(char *start, size_t length, const char *path, struct stat *status, off_t at) {
    if (at >= status->st_size) return;
    if (map_count == MAX_MAPS) abort();
    size_t used = (size_t)(status->st_size - at) < length ? (size_t)(status->st_size - at) : length;
    struct map m = { start, used, status->st_ino, at, NULL, strdup(path) };
    if (log_fd >= 0) {
        m.copy = malloc(used);
        memcpy(m.copy, start, used);
        for (size_t page = 0; page < used; page += PAGE) {   /* what a killed process left unseen */
            size_t part = used - page < PAGE ? used - page : PAGE;
            record('S', m.inode, at + page, part, NULL, m.copy + page, part);
        }
    }
    maps[map_count++] = m;
}

void *mmap(void *where, size_t length, int protection, int flags, int fd, off_t at) {
    REAL(mmap);
    MAP(real(where, length, protection, flags, fd, at));
}
void *mmap64(void *where, size_t length, int protection, int flags, int fd, off64_t at) {
    REAL(mmap64);
    MAP(real(where, length, protection, flags, fd, at));
}

int munmap(void *start, size_t length) {
    REAL(munmap);
    int found = -1;
    for (int i = 0; ready && i < map_count; i++) if (maps[i].start == (char *)start) found = i;
    if (found < 0) return real(start, length);
    begin();
    for (int i = 0; i < map_count; i++)
        if (maps[i].start == (char *)start) {
            free(maps[i].copy);
            free(maps[i].path);
            maps[i--] = maps[--map_count];
        }
    int result = real(start, length);
    end();
    return result;
}

__attribute__((constructor)) static void start(void) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &kind);
    const char *folder = getenv("DEVICE_ROOT"), *log = getenv("DEVICE_LOG");
    const char *faults = getenv("DEVICE_FAULTS"), *acknowledged = getenv("DEVICE_ACKS");
    if (!folder) return;
    snprintf(root, sizeof root, "%s", folder);
    root_length = strlen(root);
    if (acknowledged) snprintf(acks, sizeof acks, "%s", acknowledged);
    skip_syncs = getenv("DEVICE_SKIP_SYNCS") != NULL;
    if (log) {
        int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
        log_fd = syscall(SYS_openat, AT_FDCWD, log, flags, 0600);
        order_fd = syscall(SYS_openat, AT_FDCWD, log, O_RDONLY | O_CLOEXEC);
        if (log_fd < 0 || order_fd < 0) abort();
    }
    if (faults) device_faults(faults);
    ready = 1;
    begin();
    record('B', inode_at(root), 0, 0, root, NULL, 0);
    end();
}

__attribute__((destructor)) static void stop(void) {
    if (!ready) return;
    begin();
    record('Z', 0, 0, 0, NULL, NULL, 0);
    end();
}
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """The n-th call of a kind fails whose path contains `part`; error 0 kills the process."""

    call: str
    n: int
    error: int = errno.EIO
    part: str = ""
    from_then_on: bool = False

    def __str__(self) -> str:
        return f"{self.call}:{self.error}:{self.n}{'+' if self.from_then_on else ''}:{self.part}"


@functools.cache
def library() -> Path:
    """The compiled library. Raises RuntimeError where it cannot be made."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("the power-loss tests need a C compiler: no cc or gcc was found")
    if sys.platform != "linux":
        raise RuntimeError("the power-loss tests put a library under libc: Linux only")
    folder = Path(tempfile.mkdtemp(prefix="bloomstore-device-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source, made = folder / "device.c", folder / "device.so"
    source.write_text(SOURCE)
    command = [*compiler.split(), "-shared", "-fPIC", "-O2", "-o", made, source, "-ldl", "-pthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the power-loss library does not compile:\n{done.stderr}")
    return made


class Faults:
    """Faults of the process this is called in, which must have been started by `failing`."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)

    def set(self, *faults: Fault) -> None:
        """From now on exactly these calls fail; calls are counted from now on."""
        self._library.device_faults(",".join(map(str, faults)).encode())

    @property
    def fired(self) -> int:
        """How many calls have failed since they were set."""
        return int(self._library.device_fired())


def failing(root: Path, *faults: Fault, skip_syncs: bool = False) -> dict[str, str]:
    """The environment of a process whose calls below `root` fail as told."""
    environment = {
        "LD_PRELOAD": str(library()),
        "DEVICE_ROOT": str(root.resolve()),
        "DEVICE_FAULTS": ",".join(map(str, faults)),
    }
    return environment | ({"DEVICE_SKIP_SYNCS": "1"} if skip_syncs else {})


def recording(root: Path, log: Path, acks: Path, *faults: Fault) -> dict[str, str]:
    """The environment of a process whose calls below `root` are recorded."""
    return failing(root, *faults, skip_syncs=True) | {
        "DEVICE_LOG": str(log.resolve()),
        "DEVICE_ACKS": str(acks.resolve()),
    }

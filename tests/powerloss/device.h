/* What all calls of device.c share: the log and its order, which paths count, and faults. */
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

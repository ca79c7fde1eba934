/* A disk that fails on command: preloaded below Python, it stands between the process and the C library.
 *
 * DISKFAULTS_DIR names a directory and DISKFAULTS_RULES a file of rules, read again at every call that concerns a path in
 * that directory. A rule is one line:
 *
 *     operation name action argument skip count
 *
 * operation  open, write, fsync, ftruncate, flock, close or io_submit
 * name       a part of the path below the directory, "." for the directory itself, "*" for all
 * action     fail (argument: errno) | short (write at most so many bytes) | hang (so many milliseconds, then go on)
 * skip       how many matching calls go well first
 * count      how many are hit after that, -1 for all
 *
 * The first rule that matches decides. Counts start over when the text of the rules changes. A rule for fsync holds for
 * what is synced by io_submit as well, where each file is synced by a thread of its own then.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define MAX_RULES 16
#define MAX_TEXT 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char seen[MAX_TEXT];
static long calls[MAX_RULES];


struct sync {
    aio_context_t context;
    struct io_event event;
    int fd;
    struct sync *next;
};

static pthread_mutex_t ended_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended_more = PTHREAD_COND_INITIALIZER;
static struct sync *ended;

static void start_over(void) {
    pthread_mutex_init(&lock, NULL); /* a thread that is not here may have held it */
    pthread_mutex_init(&ended_lock, NULL);
    pthread_cond_init(&ended_more, NULL);
    ended = NULL;
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, start_over);
}

/* The path below the directory, or NULL when the path is none of our business. */
static const char *below(const char *path) {
    const char *directory = getenv("DISKFAULTS_DIR");
    size_t length;
    if (directory == NULL || path == NULL) return NULL;
    length = strlen(directory);
    if (strncmp(path, directory, length) != 0) return NULL;
    if (path[length] == '\0') return ".";
    return path[length] == '/' ? path + length + 1 : NULL;
}

static const char *of_descriptor(int fd, char *buffer) {
    char link[64];
    ssize_t length;
    if (getenv("DISKFAULTS_DIR") == NULL) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, buffer, PATH_MAX - 1);
    if (length < 0) return NULL;
    buffer[length] = '\0';
    return below(buffer);
}

struct verdict {
    int fails;      /* errno, 0 for none */
    long at_most;   /* bytes, -1 for all */
};

static struct verdict judge(const char *operation, const char *name) {
    struct verdict verdict = {0, -1};
    char text[MAX_TEXT], *line, *rest;
    const char *rules = getenv("DISKFAULTS_RULES");
    long milliseconds = 0;
    ssize_t length;
    int fd, index = 0, saved = errno;
    if (name == NULL || rules == NULL) return verdict;
    fd = (int)syscall(SYS_openat, AT_FDCWD, rules, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        errno = saved;
        return verdict;
    }
    length = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    text[length > 0 ? length : 0] = '\0';
    pthread_mutex_lock(&lock);
    if (strcmp(text, seen) != 0) {
        strcpy(seen, text);
        memset(calls, 0, sizeof calls);
    }
    for (line = strtok_r(text, "\n", &rest); line != NULL && index < MAX_RULES; line = strtok_r(NULL, "\n", &rest), index++) {
        char on[16], part[256], action[16];
        long argument, skip, count, turn;
        if (sscanf(line, "%15s %255s %15s %ld %ld %ld", on, part, action, &argument, &skip, &count) != 6) continue;
        if (strcmp(on, operation) != 0) continue;
        if (strcmp(part, ".") == 0 ? strcmp(name, ".") != 0 : strcmp(part, "*") != 0 && strstr(name, part) == NULL) continue;
        turn = calls[index]++;
        if (turn < skip || (count >= 0 && turn >= skip + count)) continue;
        if (strcmp(action, "fail") == 0) verdict.fails = (int)argument;
        if (strcmp(action, "short") == 0) verdict.at_most = argument;
        if (strcmp(action, "hang") == 0) milliseconds = argument;
        break;
    }
    pthread_mutex_unlock(&lock);
    if (milliseconds > 0) {
        struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
        while (nanosleep(&pause, &pause) != 0 && errno == EINTR) {}
    }
    errno = saved;
    return verdict;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REFUSE(verdict) do { if ((verdict).fails) { errno = (verdict).fails; return -1; } } while (0)

ssize_t write(int fd, const void *data, size_t size) {
    char buffer[PATH_MAX];
    struct verdict verdict = judge("write", of_descriptor(fd, buffer));
    REFUSE(verdict);
    if (verdict.at_most >= 0 && size > (size_t)verdict.at_most) size = (size_t)verdict.at_most;
    return NEXT(write)(fd, data, size);
}

int fsync(int fd) {
    char buffer[PATH_MAX];
    REFUSE(judge("fsync", of_descriptor(fd, buffer)));
    return NEXT(fsync)(fd);
}

int ftruncate(int fd, off_t size) {
    char buffer[PATH_MAX];
    REFUSE(judge("ftruncate", of_descriptor(fd, buffer)));
    return NEXT(ftruncate)(fd, size);
}

int ftruncate64(int fd, off64_t size) {
    char buffer[PATH_MAX];
    REFUSE(judge("ftruncate", of_descriptor(fd, buffer)));
    return NEXT(ftruncate64)(fd, size);
}

int flock(int fd, int operation) {
    char buffer[PATH_MAX];
    REFUSE(judge("flock", of_descriptor(fd, buffer)));
    return NEXT(flock)(fd, operation);
}

int close(int fd) {
    char buffer[PATH_MAX];
    struct verdict verdict = judge("close", of_descriptor(fd, buffer));
    int result = NEXT(close)(fd); /* as Linux does: the descriptor is gone whatever is said */
    REFUSE(verdict);
    return result;
}

static mode_t mode_of(int flags, va_list *arguments) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(*arguments, mode_t) : 0;
}

int open(const char *path, int flags, ...) {
    va_list arguments;
    mode_t mode;
    va_start(arguments, flags);
    mode = mode_of(flags, &arguments);
    va_end(arguments);
    REFUSE(judge("open", below(path)));
    return NEXT(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list arguments;
    mode_t mode;
    va_start(arguments, flags);
    mode = mode_of(flags, &arguments);
    va_end(arguments);
    REFUSE(judge("open", below(path)));
    return NEXT(open64)(path, flags, mode);
}

/* ---- fsync by io_submit: in a directory with faults, each file by a thread, so that one may fail or hang alone */

static void *sync_one(void *argument) {
    struct sync *one = argument;
    one->event.res = fsync(one->fd) == 0 ? 0 : -errno;
    pthread_mutex_lock(&ended_lock);
    one->next = ended;
    ended = one;
    pthread_cond_broadcast(&ended_more);
    pthread_mutex_unlock(&ended_lock);
    return NULL;
}

static long submit(aio_context_t context, long count, struct iocb **requests) {
    char buffer[PATH_MAX];
    long n;
    for (n = 0; n < count; n++) {
        const char *name = of_descriptor(requests[n]->aio_fildes, buffer);
        struct verdict verdict = judge("io_submit", name);
        struct sync *one;
        pthread_t thread;
        if (verdict.fails) {
            errno = verdict.fails;
            return n > 0 ? n : -1;
        }
        one = calloc(1, sizeof *one);
        one->context = context;
        one->fd = requests[n]->aio_fildes;
        one->event.data = requests[n]->aio_data;
        pthread_create(&thread, NULL, sync_one, one);
        pthread_detach(thread);
    }
    return n;
}

static long get_events(aio_context_t context, long at_least, long at_most, struct io_event *events, struct timespec *wait) {
    struct timespec until;
    long count = 0;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += wait->tv_sec + (until.tv_nsec + wait->tv_nsec) / 1000000000;
    until.tv_nsec = (until.tv_nsec + wait->tv_nsec) % 1000000000;
    pthread_mutex_lock(&ended_lock);
    for (;;) {
        struct sync **link = &ended;
        while (*link != NULL && count < at_most) {
            struct sync *one = *link;
            if (one->context != context) {
                link = &one->next;
                continue;
            }
            events[count++] = one->event;
            *link = one->next;
            free(one);
        }
        if (count >= at_least || late) break;
        late = pthread_cond_timedwait(&ended_more, &ended_lock, &until) == ETIMEDOUT;
    }
    pthread_mutex_unlock(&ended_lock);
    return count;
}

long syscall(long number, ...) {
    long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    va_list arguments;
    long a[6];
    int n;
    va_start(arguments, number);
    for (n = 0; n < 6; n++) a[n] = va_arg(arguments, long); /* as the C library does: registers, used or not */
    va_end(arguments);
    if (getenv("DISKFAULTS_DIR") != NULL) {
        if (number == SYS_io_submit) return submit((aio_context_t)a[0], a[1], (struct iocb **)a[2]);
        if (number == SYS_io_getevents)
            return get_events((aio_context_t)a[0], a[1], a[2], (struct io_event *)a[3], (struct timespec *)a[4]);
    }
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* The limit of this machine: poll(2) and the very bytes that the library sends, in C.
 *
 *   loop HOST:PORT,… TTL NAME ACQUIRE OFFSET RELEASE
 *
 * ACQUIRE and RELEASE are commands in hexadecimal; at OFFSET of the first stand 16 digits that are the time in
 * microseconds.  A round is over when a majority has answered; what is late is read at the start of the next.
 * Of the lines of serve.py it knows `cycles N`.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64, BUFFER = 65536, PATIENCE_MS = 10000 };

struct master {
    int sock;
    int late;           /* answers that have been asked for and not been read */
    size_t used;
    char unread[BUFFER];
};

static struct master masters[MOST];
static struct pollfd polled[MOST];
static int number, majority;

static void give_up(const char *why) {
    fprintf(stderr, "loop: %s\n", why);
    exit(1);
}

/* The end of the answer that begins at `at`, or NULL while it is incomplete. */
static const char *answer_end(const char *at, const char *end) {
    const char *line = memchr(at, '\n', (size_t)(end - at));
    if (line == NULL)
        return NULL;
    long length = strtol(at + 1, NULL, 10);
    const char *next = line + 1;
    if (*at == '$') {
        if (length >= 0)
            next += length + 2;
    } else if (*at == '*') {
        for (; length > 0 && next != NULL; length--)
            next = next < end ? answer_end(next, end) : NULL;
    } else if (*at == '-') {
        give_up("a master answered with an error");
    }
    return next != NULL && next <= end ? next : NULL;
}

/* How many answers have arrived from this one. */
static int read_answers(struct master *one) {
    ssize_t got = recv(one->sock, one->unread + one->used, BUFFER - one->used, 0);
    if (got <= 0)
        give_up("a master has hung up");
    one->used += (size_t)got;
    const char *at = one->unread, *end = at + one->used, *next;
    int answers = 0;
    while (at < end && (next = answer_end(at, end)) != NULL) {
        at = next;
        answers++;
    }
    one->used = (size_t)(end - at);
    memmove(one->unread, at, one->used);
    return answers;
}

static void ask(const char *command, size_t length) {
    for (int i = 0; i < number; i++) {
        if (send(masters[i].sock, command, length, 0) != (ssize_t)length)
            give_up("a master takes no command");
        masters[i].late++;
    }
    int answered = 0;
    while (answered < majority) {
        if (poll(polled, (nfds_t)number, PATIENCE_MS) <= 0)
            give_up("no answer");
        for (int i = 0; i < number; i++) {
            if (polled[i].revents == 0)
                continue;
            masters[i].late -= read_answers(&masters[i]);
            if (masters[i].late == 0)
                answered++;
        }
    }
}

static size_t from_hex(const char *digits, char *into) {
    size_t length = strlen(digits) / 2;
    for (size_t i = 0; i < length; i++) {
        unsigned byte;
        if (sscanf(digits + 2 * i, "%2x", &byte) != 1)
            give_up("a command is not hexadecimal");
        into[i] = (char)byte;
    }
    return length;
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static double processor(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void connect_all(char *addresses) {
    for (char *one = strtok(addresses, ","); one != NULL && number < MOST; one = strtok(NULL, ",")) {
        char *colon = strrchr(one, ':');
        if (colon == NULL)
            give_up("an address is no HOST:PORT");
        *colon = '\0';
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(colon + 1))};
        if (inet_pton(AF_INET, one, &at.sin_addr) != 1)
            give_up("an address is no HOST:PORT");
        int sock = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
        if (sock < 0 || connect(sock, (struct sockaddr *)&at, sizeof at) != 0)
            give_up("a master cannot be reached");
        setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        masters[number].sock = polled[number].fd = sock;
        polled[number++].events = POLLIN;
    }
    majority = number / 2 + 1;
}

int main(int argc, char **argv) {
    static char acquire[BUFFER], release[BUFFER], line[256], digits[32];
    if (argc != 7)
        give_up("wrong arguments");
    connect_all(argv[1]);
    size_t acquire_length = from_hex(argv[4], acquire), release_length = from_hex(argv[6], release);
    size_t offset = (size_t)atol(argv[5]);
    puts("{\"ready\": true}");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        long times;
        if (sscanf(line, "cycles %ld", &times) != 1) {
            puts("{\"error\": \"it knows cycles alone\"}");
            fflush(stdout);
            continue;
        }
        double taking = 0, used = processor(), began = now();
        for (long i = -(times / 4); i < times; i++) {
            if (i == 0) {
                taking = 0;
                used = processor();
                began = now();
            }
            double start = now();
            struct timeval wall;
            gettimeofday(&wall, NULL);
            snprintf(digits, sizeof digits, "%016lld", (long long)wall.tv_sec * 1000000 + wall.tv_usec);
            memcpy(acquire + offset, digits, 16);
            ask(acquire, acquire_length);
            taking += now() - start;
            ask(release, release_length);
        }
        printf("{\"seconds\": %.9f, \"acquire\": %.9f, \"cpu\": %.9f}\n", now() - began, taking, processor() - used);
        fflush(stdout);
    }
    return 0;
}

/* A load generator for loopback: one thread, poll, HTTP/1.1 keep-alive, one JSON object as its answer.
 *
 *     load -p PORT -b BODY_FILE [-c CONNECTIONS] [-d SECONDS] [-n REQUESTS] [-r RATE] [-s] [-H 'Name: value']...
 *
 * Without -r every connection asks again as soon as it has its answer (closed loop). With -r requests
 * start at fixed moments whatever the answers do, and latency counts from that moment (open loop).
 * -s: the answers are event streams; their events are counted, and with the stamps that the mock
 * puts into them the time of each one on its way is known. A stream without [DONE] has failed. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SEATS 1024
#define PATIENCE 30000000000u /* ns after the end of the run, then what is still open has failed */

enum part { STATUS, HEADERS, SIZED, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER };

struct text {
    char at[65536];
    size_t n;
};

struct seat {
    enum part part;
    int busy, status, closing, chunked, done;
    uint64_t began, first;
    size_t left; /* bytes of the body or of the chunk */
    struct text line, event;
};

struct samples {
    double *at;
    size_t n, room;
};

static struct pollfd fds[SEATS];
static struct seat *seats;
static int idle[SEATS], idlers, seat_count = 16, streams, port = 9200;
static char *request;
static size_t request_size;
static double rate;
static uint64_t start, end;
static long limit = -1, started, good, failed, events;
static struct samples latency, first, delay;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sample(struct samples *s, uint64_t from, uint64_t to) {
    if (s->n == s->room) {
        s->room = s->room * 2 + 4096;
        s->at = realloc(s->at, s->room * sizeof *s->at);
        if (!s->at) abort();
    }
    s->at[s->n++] = ((double)to - (double)from) / 1e3;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_samples(const char *name, struct samples *s) {
    static const struct { const char *name; double share; } cuts[] = {{"p50", .5}, {"p90", .9}, {"p99", .99}, {"max", 1}};
    qsort(s->at, s->n, sizeof *s->at, ascending);
    printf(", \"%s\": {\"n\": %zu", name, s->n);
    for (size_t i = 0; s->n && i < 4; i++) printf(", \"%s\": %.1f", cuts[i].name, s->at[(size_t)((double)(s->n - 1) * cuts[i].share + .5)]);
    printf("}");
}

static int dial(int i) {
    int on = 1;
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    fds[i] = (struct pollfd){socket(AF_INET, SOCK_STREAM, 0), POLLIN, 0};
    setsockopt(fds[i].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!connect(fds[i].fd, (struct sockaddr *)&there, sizeof there)) return 1;
    close(fds[i].fd);
    fds[i].fd = -1;
    return 0;
}

static void hang_up(int i) {
    close(fds[i].fd);
    fds[i].fd = -1;
}

static void settle(int i, int ok) {
    ok ? good++ : failed++;
    seats[i].busy = 0;
    idle[idlers++] = i;
}

static void ask(int i, uint64_t moment) {
    struct seat *s = &seats[i];
    started++;
    s->part = STATUS;
    s->busy = 1;
    s->status = s->closing = s->chunked = s->done = 0;
    s->began = moment;
    s->first = 0;
    s->left = s->line.n = s->event.n = 0;
    if (fds[i].fd < 0 && !dial(i)) {
        settle(i, 0);
        return;
    }
    for (size_t sent = 0; sent < request_size;) { /* blocking; a failure shows when the answer is read */
        ssize_t n = send(fds[i].fd, request + sent, request_size - sent, MSG_NOSIGNAL);
        if (n <= 0) return;
        sent += (size_t)n;
    }
}

static void finish(int i, uint64_t t) {
    struct seat *s = &seats[i];
    int ok = s->status / 100 == 2 && (!streams || s->done);
    if (ok) sample(&latency, s->began, t);
    if (s->closing) hang_up(i);
    settle(i, ok);
}

static void take_event(struct seat *s, uint64_t t) {
    s->event.at[s->event.n] = 0;
    s->event.n = 0;
    if (strncmp(s->event.at, "data:", 5)) return;
    if (strstr(s->event.at, "[DONE]")) {
        s->done = 1;
        return;
    }
    events++;
    char *stamp = strchr(s->event.at, '~');
    if (stamp) sample(&delay, strtoull(stamp + 1, NULL, 10), t);
    if (!s->first) sample(&first, s->began, s->first = t);
}

static void take_body(struct seat *s, const char *at, size_t n, uint64_t t) {
    for (size_t i = 0; streams && i < n; i++) {
        if (at[i] == '\n') take_event(s, t);
        else if (s->event.n + 1 < sizeof s->event.at) s->event.at[s->event.n++] = at[i];
    }
}

/* Where the answer goes on after a whole line that does not belong to the body. */
static enum part take_line(struct seat *s, char *line) {
    switch (s->part) {
    case STATUS: s->status = atoi(line + 9); return HEADERS;
    case CHUNK_SIZE: return (s->left = strtoul(line, NULL, 16)) ? CHUNK : TRAILER;
    case CHUNK_END: return CHUNK_SIZE;
    case HEADERS:
        if (!strncasecmp(line, "content-length:", 15)) s->left = strtoul(line + 15, NULL, 10);
        if (!strncasecmp(line, "transfer-encoding:", 18)) s->chunked = 1;
        if (!strncasecmp(line, "connection: close", 17)) s->closing = 1;
        return *line ? HEADERS : s->chunked ? CHUNK_SIZE : SIZED;
    default: return s->part;
    }
}

static void receive(int i, const char *at, size_t n, uint64_t t) {
    struct seat *s = &seats[i];
    while (n && s->busy) {
        if (s->part == SIZED || s->part == CHUNK) {
            size_t k = n < s->left ? n : s->left;
            take_body(s, at, k, t);
            at += k, n -= k, s->left -= k;
            if (!s->left && s->part == CHUNK) s->part = CHUNK_END;
        } else {
            char c = *at++;
            n--;
            if (c != '\n') {
                if (c != '\r' && s->line.n + 1 < sizeof s->line.at) s->line.at[s->line.n++] = c;
                continue;
            }
            s->line.at[s->line.n] = 0;
            int over = s->part == TRAILER && !s->line.n;
            s->part = take_line(s, s->line.at);
            s->line.n = 0;
            if (over) finish(i, t);
        }
        if (s->busy && s->part == SIZED && !s->left) finish(i, t);
    }
}

/* Asks on every free connection for which a request is due; ns until the next one is. */
static uint64_t ask_what_is_due(void) {
    for (;;) {
        uint64_t t = now(), due = rate > 0 ? start + (uint64_t)((double)started * 1e9 / rate) : t;
        if (due >= end || (limit >= 0 && started >= limit) || !idlers) return 100000000;
        if (due > t) return due - t;
        ask(idle[--idlers], due);
    }
}

static int over(void) {
    uint64_t t = now();
    int none_due = (limit >= 0 && started >= limit) || (rate > 0 ? start + (uint64_t)((double)started * 1e9 / rate) >= end : t >= end);
    return (none_due && idlers == seat_count) || t > end + PATIENCE;
}

static void run(void) {
    static char piece[262144];
    while (!over()) {
        struct timespec pause = {0, (long)ask_what_is_due() % 1000000000};
        ppoll(fds, (nfds_t)seat_count, &pause, NULL);
        for (int i = 0; i < seat_count; i++) {
            if (fds[i].fd < 0 || !fds[i].revents) continue;
            ssize_t n = recv(fds[i].fd, piece, sizeof piece, MSG_DONTWAIT);
            if (n > 0) receive(i, piece, (size_t)n, now());
            else if (n == 0 || !seats[i].busy) hang_up(i), seats[i].busy ? settle(i, 0) : (void)0;
        }
    }
    failed += seat_count - idlers;
}

static void compose(const char *file, const char *headers) {
    FILE *f = file ? fopen(file, "rb") : NULL;
    static char body[1 << 20];
    size_t n = f ? fread(body, 1, sizeof body, f) : 0;
    if (!n) {
        perror(file);
        exit(1);
    }
    request = malloc(n + 8192);
    request_size = (size_t)snprintf(request, 8192, "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n", port, n, headers);
    memcpy(request + request_size, body, n);
    request_size += n;
}

int main(int argc, char **argv) {
    static char headers[4096];
    const char *file = NULL;
    double seconds = 3;
    for (int c; (c = getopt(argc, argv, "p:b:c:d:n:r:sH:")) != -1;) switch (c) {
        case 'p': port = atoi(optarg); break;
        case 'b': file = optarg; break;
        case 'c': seat_count = atoi(optarg); break;
        case 'd': seconds = atof(optarg); break;
        case 'n': limit = atol(optarg); break;
        case 'r': rate = atof(optarg); break;
        case 's': streams = 1; break;
        case 'H': snprintf(headers + strlen(headers), sizeof headers - strlen(headers), "%s\r\n", optarg); break;
        default: return 2;
        }
    if (seat_count < 1 || seat_count > SEATS || !(seats = calloc((size_t)seat_count, sizeof *seats))) return 2;
    prctl(PR_SET_TIMERSLACK, 1);
    compose(file, headers);
    for (int i = 0; i < seat_count; i++) {
        if (!dial(i)) {
            perror("connect");
            return 1;
        }
        idle[idlers++] = i;
    }
    start = now();
    end = start + (uint64_t)(seconds * 1e9);
    run();
    printf("{\"requests\": %ld, \"failed\": %ld, \"seconds\": %.4f, \"events\": %ld", good, failed, (double)(now() - start) / 1e9, events);
    print_samples("latency_us", &latency);
    print_samples("first_us", &first);
    print_samples("delay_us", &delay);
    printf("}\n");
    return 0;
}

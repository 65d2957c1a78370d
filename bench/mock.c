/* An OpenAI-like upstream that costs next to nothing: one thread, poll, HTTP/1.1 keep-alive.
 *
 *     mock PORT
 *
 * POST: the model name in the body picks the answer.
 *     bench-small           a chat completion of about 350 bytes
 *     bench-stream-N-US     N server-sent events, US microseconds apart (0: all in one write), then [DONE]
 * Every event's text carries ~NANOSECONDS~, the monotonic clock at its sending, so that the load
 * generator sees how long each one was under way. A POST without the upstream's own key is
 * answered 401: a gateway that does not replace the client's key fails every request.
 * GET: {"requests": N, "connections": N}, to see whether a gateway keeps its connections. */
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

#define KEY "Bearer sk-bench-upstream"
#define SEATS 1024
#define NEVER UINT64_MAX

struct seat {
    char *in, *out;
    size_t got, room, have, space;
    uint64_t due, gap; /* of a paced stream; due NEVER: none is running */
    int sent, events;
};

static struct pollfd fds[SEATS]; /* 0 is the listening socket */
static struct seat seats[SEATS];
static int used = 1;
static unsigned long requests, connections;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void reserve(char **text, size_t *room, size_t need) {
    if (need <= *room) return;
    *room = need * 2;
    *text = realloc(*text, *room);
    if (!*text) abort();
}

static void add(struct seat *s, const char *text, size_t n) {
    reserve(&s->out, &s->space, s->have + n);
    memcpy(s->out + s->have, text, n);
    s->have += n;
}

static void add_chunk(struct seat *s, const char *text) {
    char line[1024];
    int n = snprintf(line, sizeof line, "%zx\r\n%s\r\n", strlen(text), text);
    add(s, line, (size_t)n);
}

static void add_answer(struct seat *s, const char *status, const char *body) {
    char text[1024];
    int n = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", status, strlen(body), body);
    add(s, text, (size_t)n);
}

/* The last event carries finish_reason and usage, as DeepSeek's does. */
static void add_event(struct seat *s) {
    static const char *base = "data: {\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":";
    char text[900];
    if (++s->sent < s->events) {
        const char *role = s->sent == 1 ? "\"role\":\"assistant\"," : "";
        snprintf(text, sizeof text, "%s{%s\"content\":\"~%llu~ token\"},\"finish_reason\":null}]}\n\n", base, role, (unsigned long long)now());
        add_chunk(s, text);
        s->due += s->gap;
        return;
    }
    snprintf(text, sizeof text, "%s{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":120,\"completion_tokens\":100,\"total_tokens\":220}}\n\n", base);
    add_chunk(s, text);
    add_chunk(s, "data: [DONE]\n\n");
    add(s, "0\r\n\r\n", 5);
    s->due = NEVER;
}

static void start_stream(struct seat *s, int events, int gap_us) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
    add(s, head, sizeof head - 1);
    s->sent = 0;
    s->events = events;
    s->gap = (uint64_t)gap_us * 1000;
    s->due = now();
    do add_event(s);
    while (s->due != NEVER && !gap_us);
    if (s->due != NEVER) s->due -= s->gap * (requests * 37 % 100) / 100; /* so that the streams do not tick together */
}

/* The head ends in a NUL here (over its last newline), the body does not. */
static void answer(struct seat *s, const char *head, const char *body, size_t n) {
    int events, gap;
    char text[128];
    if (strncmp(head, "POST ", 5)) {
        snprintf(text, sizeof text, "{\"requests\": %lu, \"connections\": %lu}", requests, connections);
        add_answer(s, "200 OK", text);
        return;
    }
    requests++;
    const char *model = memmem(body, n, "\"bench-", 7);
    if (!strstr(head, KEY)) add_answer(s, "401 Unauthorized", "{\"error\":{\"message\":\"wrong key\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"invalid_api_key\"}}");
    else if (model && sscanf(model, "\"bench-stream-%d-%d\"", &events, &gap) == 2) start_stream(s, events, gap);
    else
        add_answer(s, "200 OK",
                   "{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion\",\"created\":1760000000,\"model\":\"bench-small\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
                   "\"content\":\"A short answer, as good as any.\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
                   "\"usage\":{\"prompt_tokens\":120,\"completion_tokens\":24,\"total_tokens\":144}}");
}

/* What a chunked body takes, its framing included; -1 while the end is missing. */
static long chunked_size(const char *body, size_t n) {
    for (size_t at = 0;;) {
        const char *eol = memmem(body + at, n - at, "\r\n", 2);
        if (!eol) return -1;
        size_t size = strtoul(body + at, NULL, 16);
        at = (size_t)(eol - body) + 2 + size + 2;
        if (at > n) return -1;
        if (!size) return (long)at;
    }
}

/* Answers one request from the front of the input, if all of it is there. */
static int take_request(struct seat *s) {
    char *end = s->due == NEVER ? memmem(s->in, s->got, "\r\n\r\n", 4) : NULL;
    if (!end) return 0;
    char *body = end + 4;
    size_t rest = s->got - (size_t)(body - s->in);
    end[3] = 0;
    char *length = strcasestr(s->in, "\ncontent-length:"), *coding = strcasestr(s->in, "\ntransfer-encoding:");
    long size = coding ? chunked_size(body, rest) : length ? atol(length + 16) : 0;
    int whole = size >= 0 && (size_t)size <= rest;
    if (whole) answer(s, s->in, body, (size_t)size);
    end[3] = '\n';
    if (!whole) return 0;
    s->got = rest - (size_t)size;
    memmove(s->in, body + size, s->got);
    return 1;
}

/* 0 when the connection is over. */
static int receive(int i) {
    struct seat *s = &seats[i];
    reserve(&s->in, &s->room, s->got + 65536);
    ssize_t n = recv(fds[i].fd, s->in + s->got, s->room - s->got, 0);
    if (n <= 0) return 0;
    s->got += (size_t)n;
    while (take_request(s)) {}
    return 1;
}

static void deliver(int i) {
    struct seat *s = &seats[i];
    if (!s->have) return;
    ssize_t n = send(fds[i].fd, s->out, s->have, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) n = 0; /* the socket is full, or its end shows at the next read */
    s->have -= (size_t)n;
    memmove(s->out, s->out + n, s->have);
    fds[i].events = s->have ? POLLIN | POLLOUT : POLLIN;
}

static void seat_client(void) {
    int on = 1, fd = accept(fds[0].fd, NULL, NULL);
    if (fd < 0) return;
    if (used == SEATS) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connections++;
    fds[used] = (struct pollfd){fd, POLLIN, 0};
    seats[used].got = seats[used].have = 0; /* the buffers of an earlier client are used again */
    seats[used++].due = NEVER;
}

static void leave(int i) {
    close(fds[i].fd);
    struct seat last = seats[--used];
    fds[i] = fds[used];
    seats[used] = seats[i];
    seats[i] = last;
}

static void wait_for_work(void) {
    uint64_t due = NEVER, t = now();
    for (int i = 1; i < used; i++)
        if (seats[i].due < due) due = seats[i].due;
    uint64_t left = due > t ? due - t : 0;
    struct timespec pause = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    ppoll(fds, (nfds_t)used, due == NEVER ? NULL : &pause, NULL);
}

int main(int argc, char **argv) {
    int on = 1;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argc > 1 ? argv[1] : "9101")), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    prctl(PR_SET_TIMERSLACK, 1);
    fds[0] = (struct pollfd){socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), POLLIN, 0};
    setsockopt(fds[0].fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fds[0].fd, (struct sockaddr *)&here, sizeof here) || listen(fds[0].fd, SEATS)) {
        perror("mock");
        return 1;
    }
    for (;;) {
        wait_for_work();
        uint64_t t = now();
        for (int i = used - 1; i > 0; i--) { /* downwards: a seat that is left is filled from the end */
            if (fds[i].revents & ~POLLOUT && !receive(i)) {
                leave(i);
                continue;
            }
            while (seats[i].due <= t) add_event(&seats[i]);
            deliver(i);
        }
        if (fds[0].revents) seat_client();
    }
}

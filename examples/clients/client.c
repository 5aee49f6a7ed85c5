/* A client of `distrl serve` in C: HTTP over one socket that stays open. Copy this file.

       cc -O2 -o client client.c && ./client 127.0.0.1 8730 "[0, 0.1, 0, -0.1]" ...

   Each argument is an observation in JSON, the first the begin of an episode. It prints the replies. */

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static int dial(const char *host, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, port, &hints, &found)) die("no such host");
    int fd = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen)) die("the server cannot be reached");
    freeaddrinfo(found);
    return fd;
}

/* Send a request and receive its reply into `reply`; return the HTTP status. */
static int ask(int fd, const char *method, const char *path, const char *body, char *reply, size_t size) {
    const char *token = getenv("DISTRL_SERVE_TOKEN");
    char *request = malloc(strlen(body) + 1024);
    if (!request || strlen(path) + strlen(token ? token : "") > 512) die("the request is too long");
    int length = sprintf(request,
                         "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s%s%s"
                         "Content-Length: %zu\r\n\r\n%s",
                         method, path, token ? "Authorization: Bearer " : "", token ? token : "",
                         token ? "\r\n" : "", strlen(body), body);
    for (int sent = 0, n; sent < length; sent += n)
        if ((n = write(fd, request + sent, length - sent)) <= 0) die("the connection is closed");
    free(request);
    size_t have = 0;
    char *end = NULL, *field;
    for (;;) {
        ssize_t n = read(fd, reply + have, size - 1 - have);
        if (n <= 0) die("the connection is closed, or the reply is too long");
        reply[have += n] = 0;
        if (!end && !(end = strstr(reply, "\r\n\r\n"))) continue;
        if (!(field = strstr(reply, "content-length: ")) || field > end) die("the reply has no length");
        if (have >= (size_t)(end + 4 - reply) + atoi(field + 16)) break;
    }
    int status = atoi(reply + 9);
    memmove(reply, end + 4, strlen(end + 4) + 1);
    return status;
}

int main(int count, char **words) {
    static char reply[65536], body[65536], session[128];
    if (count < 4) die("usage: client HOST PORT OBSERVATION ...");
    int fd = dial(words[1], words[2]);
    if (ask(fd, "POST", "/sessions", "", reply, sizeof reply) != 201) die(reply);
    if (sscanf(reply, "{\"session\":\"%100[^\"]", session) != 1) die("the reply has no session");
    for (int step = 3; step < count; step++) {
        int length = snprintf(body, sizeof body, "{\"observation\": %s, \"session\": \"%s\", \"begins\": %s}",
                              words[step], session, step == 3 ? "true" : "false");
        if (length >= (int)sizeof body) die("the observation is too long");
        if (ask(fd, "POST", "/act", body, reply, sizeof reply) != 200) die(reply);
        puts(reply);
    }
    close(fd);
    return 0;
}

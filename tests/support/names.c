/* Answers names below `.test` by a script, in the place of the system's resolver. It is loaded into the server under test, so that
 * the server itself knows nothing of it.
 *
 * LOOPGATE_TEST_NAMES is a list such as `a.test=127.8.0.1|127.0.0.1,::1;b.test=10.0.0.1`: `|` stands between the answer to the first
 * question and that to the next, of which the last one stays, and `,` between the addresses of one answer. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

enum { NAMES = 64, LENGTH = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int asked[NAMES];

/* The next answer to a name; nothing, if the script does not have it. */
static int answer(const char *name, char *into) {
    const char *script = getenv("LOOPGATE_TEST_NAMES");
    size_t length = strlen(name);
    if (length > 0 && name[length - 1] == '.') length--;
    for (int at = 0; script != NULL && *script != 0 && at < NAMES; at++) {
        size_t whole = strcspn(script, ";");
        if (whole > length && strncasecmp(script, name, length) == 0 && script[length] == '=' && whole < LENGTH) {
            char rest[LENGTH] = {0};
            memcpy(rest, script + length + 1, whole - length - 1);
            pthread_mutex_lock(&lock);
            char *one = rest;
            for (int skip = asked[at]++; skip > 0 && strchr(one, '|') != NULL; skip--) one = strchr(one, '|') + 1;
            pthread_mutex_unlock(&lock);
            one[strcspn(one, "|")] = 0;
            strcpy(into, one);
            return 1;
        }
        script += whole + (script[whole] == ';');
    }
    return 0;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    resolver *system = (resolver *)dlsym(RTLD_NEXT, "getaddrinfo");
    size_t length = name == NULL ? 0 : strlen(name);
    char script[LENGTH], *state = NULL;
    if (length < 5 || (strcmp(name + length - 5, ".test") != 0 && strcmp(name + length - 5, "test.") != 0)) {
        return system(name, service, hints, found);
    }
    if (!answer(name, script)) return EAI_NONAME;
    struct addrinfo numeric = hints == NULL ? (struct addrinfo){0} : *hints, **end = found;
    numeric.ai_flags |= AI_NUMERICHOST;
    *found = NULL;
    for (char *one = strtok_r(script, ",", &state); one != NULL; one = strtok_r(NULL, ",", &state)) {
        int failed = system(one, service, &numeric, end);
        if (failed) return failed;
        while (*end != NULL) end = &(*end)->ai_next;
    }
    return *found == NULL ? EAI_NONAME : 0;
}

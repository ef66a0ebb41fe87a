/* A libnvidia-ml.so.1 for tests. Every call looks anew into the script that NVML_SCRIPT names, one word list a line:
 *
 *   gpu UUID                       a GPU, in this order
 *   mig PARENT UUID                a MIG device of a GPU
 *   error FUNCTION UUID|* CODE     the function fails so
 *   block FUNCTION UUID|*          the function does not return while this line is there
 *   value NAME UUID|* NUMBER       instead of a default
 *   process UUID PID BYTES         computes on the device
 *   desktop UUID PID BYTES         draws on it
 *
 * The first line that fits counts. A device that has vanished from the script answers that it is lost. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <unistd.h>

typedef char *device;
typedef unsigned int uint;
typedef unsigned long long ulong64;

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static device interned(const char *uuid) {
    static char known[4096][64];
    static int count = 0;
    pthread_mutex_lock(&lock);
    int at = 0;
    while (at < count && strcmp(known[at], uuid)) at++;
    if (at == count) strncpy(known[count++], uuid, 63);
    pthread_mutex_unlock(&lock);
    return known[at];
}

/* The number-th line that begins with these words, "" standing for any; its words go to `words`. */
static int find(int number, char words[4][96], const char *first, const char *second, const char *third) {
    const char *path = getenv("NVML_SCRIPT");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        memset(words, 0, 4 * 96);
        sscanf(line, "%95s %95s %95s %95s", words[0], words[1], words[2], words[3]);
        int fits = !strcmp(words[0], first) && (!*second || !strcmp(words[1], second)) &&
                   (!*third || !strcmp(words[2], third) || !strcmp(words[2], "*"));
        found = fits && number-- == 0;
    }
    if (file) fclose(file);
    return found;
}

static int is_there(device uuid) {
    char words[4][96];
    return find(0, words, "gpu", uuid, "") || find(0, words, "mig", "", uuid);
}

/* What every function does first: waits where it shall block, then tells its error. */
static int enter(const char *function, device uuid) {
    char words[4][96];
    const char *who = uuid ? uuid : "*";
    while (find(0, words, "block", function, who)) usleep(2000);
    if (find(0, words, "error", function, who)) return atoi(words[3]);
    return uuid && !is_there(uuid) ? LOST : OK;
}

static double value(const char *name, device uuid, double otherwise) {
    char words[4][96];
    return find(0, words, "value", name, uuid ? uuid : "*") ? strtod(words[3], NULL) : otherwise;
}

/* All bits set cannot be written as a double. */
static ulong64 whole(const char *name, device uuid, ulong64 otherwise) {
    char words[4][96];
    return find(0, words, "value", name, uuid ? uuid : "*") ? strtoull(words[3], NULL, 10) : otherwise;
}

#define ENTER(uuid) do { int code = enter(__func__, uuid); if (code) return code; } while (0)
#define NUMBER(function, kind, otherwise) \
    int function(device uuid, kind *out) { ENTER(uuid); *out = (kind)whole(#function, uuid, otherwise); return OK; }
#define CHOSEN(function, kind, otherwise) \
    int function(device uuid, int what, kind *out) { \
        char name[96]; \
        ENTER(uuid); \
        snprintf(name, sizeof name, "%s.%d", #function, what); \
        *out = (kind)whole(name, uuid, otherwise); \
        return OK; \
    }

int nvmlInit_v2(void) { ENTER(NULL); return OK; }
int nvmlInitWithFlags(uint flags) { (void)flags; return enter("nvmlInit", NULL); }
int nvmlShutdown(void) { ENTER(NULL); return OK; }
const char *nvmlErrorString(int code) {
    static __thread char text[32];
    snprintf(text, sizeof text, "error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *out, uint size) { ENTER(NULL); snprintf(out, size, "999.1"); return OK; }

int nvmlDeviceGetCount_v2(uint *out) {
    char words[4][96];
    int code = enter("nvmlDeviceGetCount", NULL);
    for (*out = 0; find(*out, words, "gpu", "", ""); (*out)++) {}
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(uint index, device *out) {
    char words[4][96];
    if (!find(index, words, "gpu", "", "")) return INVALID;
    *out = interned(words[1]);
    return enter("nvmlDeviceGetHandleByIndex", *out);
}

int nvmlDeviceGetUUID(device uuid, char *out, uint size) { ENTER(uuid); snprintf(out, size, "%s", uuid); return OK; }

int nvmlDeviceGetName(device uuid, char *out, uint size) {
    ENTER(uuid);
    snprintf(out, size, "NVIDIA %s", strncmp(uuid, "MIG", 3) ? "H200" : "H200 MIG 1g.18gb");
    return OK;
}

int nvmlDeviceGetPciInfo_v3(device uuid, char *out) {
    ENTER(uuid);
    memset(out, 0, 68);
    snprintf(out + 36, 32, "00000000:%02X:00.0", (uint)uuid[strlen(uuid) - 1]);
    return OK;
}

int nvmlDeviceGetMigMode(device uuid, uint *now, uint *pending) {
    char words[4][96];
    ENTER(uuid);
    *now = *pending = find(0, words, "mig", uuid, "");
    return OK;
}
NUMBER(nvmlDeviceGetMaxMigDeviceCount, uint, 7)
NUMBER(nvmlDeviceGetGpuInstanceId, uint, 1)
int nvmlDeviceGetMigDeviceHandleByIndex(device uuid, uint index, device *out) {
    char words[4][96];
    ENTER(uuid);
    if (!find(index, words, "mig", uuid, "")) return NOT_FOUND;
    *out = interned(words[2]);
    return OK;
}

int nvmlDeviceGetMemoryInfo(device uuid, ulong64 *out) {
    ENTER(uuid);
    out[0] = whole("memory.total", uuid, 1ull << 37);
    out[2] = whole("memory.used", uuid, 1ull << 30);
    out[1] = out[0] - out[2];
    return OK;
}
int nvmlDeviceGetUtilizationRates(device uuid, uint *out) {
    ENTER(uuid);
    out[0] = (uint)whole("utilization.gpu", uuid, 60);
    out[1] = (uint)whole("utilization.memory", uuid, 30);
    return OK;
}
int nvmlDeviceGetRemappedRows(device uuid, uint *a, uint *b, uint *pending, uint *failed) {
    ENTER(uuid);
    *a = *b = 0;
    *pending = (uint)whole("rows.pending", uuid, 0);
    *failed = (uint)whole("rows.failed", uuid, 0);
    return OK;
}
NUMBER(nvmlDeviceGetPowerUsage, uint, 250000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, uint, 700000)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, ulong64, 4)
NUMBER(nvmlDeviceGetPcieReplayCounter, uint, 0)
CHOSEN(nvmlDeviceGetTemperature, uint, 55)
CHOSEN(nvmlDeviceGetClockInfo, uint, 1980)
CHOSEN(nvmlDeviceGetPcieThroughput, uint, 1000)
int nvmlDeviceGetTotalEccErrors(device uuid, int type, int counter, ulong64 *out) {
    (void)counter;
    ENTER(uuid);
    *out = whole(type ? "ecc.uncorrected" : "ecc.corrected", uuid, 0);
    return OK;
}

typedef struct { uint id, scope; long long timestamp, latency; int type, code; ulong64 value; } field;
int nvmlDeviceGetFieldValues(device uuid, int count, field *fields) {
    ENTER(uuid);
    for (int at = 0; at < count; at++) {
        char name[32];
        snprintf(name, sizeof name, "field.%u", fields[at].id);
        char words[4][96];
        fields[at].type = 3;
        fields[at].code = find(0, words, "error", name, uuid) ? atoi(words[3]) : OK;
        fields[at].value = whole(name, uuid, fields[at].id == 82 ? 70 : 0);
    }
    return OK;
}

typedef struct { uint pid; ulong64 used; uint gpu_instance, compute_instance; } process;
static int list(const char *kind, device uuid, uint *count, process *out) {
    char words[4][96];
    uint there = 0;
    for (; find(there, words, kind, uuid, ""); there++) {
        if (there >= *count) continue;
        memset(&out[there], 0, sizeof *out);
        out[there].pid = (uint)atoi(words[2]);
        out[there].used = strtoull(words[3], NULL, 10);
    }
    int small = there > *count;
    *count = there;
    return small ? TOO_SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device uuid, uint *count, process *out) {
    ENTER(uuid);
    return list("process", uuid, count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device uuid, uint *count, process *out) {
    ENTER(uuid);
    return list("desktop", uuid, count, out);
}

typedef struct { device uuid; ulong64 told; } events;
int nvmlEventSetCreate(events **out) { ENTER(NULL); *out = calloc(1, sizeof **out); return OK; }
int nvmlDeviceRegisterEvents(device uuid, ulong64 types, events *set) {
    (void)types;
    ENTER(uuid);
    set->uuid = uuid;
    return OK;
}
typedef struct { device uuid; ulong64 type, data; uint gpu_instance, compute_instance; } event;
int nvmlEventSetWait_v2(events *set, event *out, uint timeout_ms) {
    (void)timeout_ms;
    ENTER(set->uuid);
    ulong64 xid = whole("xid", set->uuid, 0);
    if (xid == set->told) return TIMEOUT;
    memset(out, 0, sizeof *out);
    out->uuid = set->uuid;
    out->type = 8;
    out->data = set->told = xid;
    return OK;
}

typedef struct { uint id; int code; double value; char *names[3]; } metric;
typedef struct { uint version, count; device *from, *to; metric metrics[512]; } comparison;
int nvmlGpmQueryDeviceSupport(device uuid, uint *out) {
    ENTER(uuid);
    out[1] = (uint)whole("gpm", uuid, 1);
    return OK;
}
int nvmlGpmSampleAlloc(device **out) { ENTER(NULL); *out = calloc(1, sizeof **out); return OK; }
int nvmlGpmSampleGet(device uuid, device *sample) { ENTER(uuid); *sample = uuid; return OK; }
int nvmlGpmMigSampleGet(device uuid, uint instance, device *sample) {
    (void)instance;
    ENTER(uuid);
    *sample = uuid;
    return OK;
}
int nvmlGpmMetricsGet(comparison *wanted) {
    device uuid = *wanted->from;
    if (!uuid || !*wanted->to) return INVALID;
    ENTER(uuid);
    for (uint at = 0; at < wanted->count; at++) {
        char name[32];
        snprintf(name, sizeof name, "gpm.%u", wanted->metrics[at].id);
        wanted->metrics[at].value = value(name, uuid, wanted->metrics[at].id);
        wanted->metrics[at].code = OK;
    }
    return OK;
}

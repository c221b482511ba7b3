/* `--profd` for sbatch, srun and salloc: what `profctl run` puts into the environment of a command, in that of every task.
 *
 * A plugin of Slurm's (SPANK, spank(8)). It runs in the user's process, before the task's program. Every callback returns 0:
 * a job never fails because of it. It opens no file, asks nobody and waits for nothing. docs/slurm.md says how to install it.
 *
 *   cc -O2 -Wall -Wextra -fPIC -shared -o profd_spank.so profd_spank.c
 *   plugstack.conf:  optional /usr/lib/slurm/profd_spank.so startup=/opt/profd/…/profclient/startup
 *
 * startup=FOLDER  of profd's light part: a Python that has it on its path attaches itself
 * nvtx=LIBRARY    libprofd_nvtx.so, so that NVTX ranges are recorded, too
 * cuda=LIBRARY    libprofd_cupti.so, for --profd=cuda: programs without Python that use CUDA
 */
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(profd, 1);

static const char *const CHOSEN = "USE_PROFD"; /* as task_prolog.sh has it */
enum { CHOSEN_BYTES = 96 };
enum { VALUE_BYTES = 128 * 1024 }; /* Linux takes no longer string in an environment */

static int said(int value, const char *optarg, int remote);

static struct spank_option option = {
    (char *)"profd", (char *)"[on|off|cuda|iterations:N@step:M]",
    (char *)"let profd record what the job starts (cuda: without Python, too; iterations:5@step:100: by itself, too)", 2, 0, said};

/* What was chosen. 22.05 hands an option without an argument to the steps of a batch script as "(null)". */
static const char *word_of(const char *optarg) {
    return !optarg || !*optarg || !strcmp(optarg, "(null)") || !strcmp(optarg, "1") ? "on" : optarg;
}

/* A capture that the program asks for itself at a step: PROFD_CAPTURE, which profclient reads closer. */
static int captures(const char *word) {
    return (!strncmp(word, "iterations:", 11) || !strncmp(word, "duration:", 9)) && strstr(word, "@step:") &&
           strlen(word) < CHOSEN_BYTES && !word[strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789:@")];
}

static int known(const char *word) {
    return !strcmp(word, "on") || !strcmp(word, "off") || !strcmp(word, "cuda") || captures(word);
}

/* Called by sbatch, srun and salloc, where the user reads what it says. What was chosen goes with the job's environment, to
 * the steps that the job makes itself; Slurm hands the option to this command's own tasks alone. */
static int said(int value, const char *optarg, int remote) {
    const char *word = word_of(optarg);
    (void)value;
    if (remote)
        return 0;
    if (known(word))
        setenv(CHOSEN, word, 1);
    else
        slurm_error("--profd=%s is none of on, off, cuda and iterations:N@step:M; the job runs without profd", word);
    return 0;
}

/* The value of `name=` among the words of plugstack.conf; NULL where it has none. */
static const char *given(int count, char **words, const char *name) {
    size_t length = strlen(name);
    for (int at = 0; at < count; at++)
        if (!strncmp(words[at], name, length) && words[at][length] == '=' && words[at][length + 1])
            return words[at] + length + 1;
    return NULL;
}

/* Whether a list with colons between its entries has this one. */
static int has(const char *list, const char *entry) {
    size_t length = strlen(entry);
    for (const char *at = list; at; at = strchr(at, ':'), at += at != NULL)
        if (!strncmp(at, entry, length) && (at[length] == ':' || !at[length]))
            return 1;
    return 0;
}

static void put_first(spank_t spank, const char *startup) {
    static char path[VALUE_BYTES], longer[VALUE_BYTES];
    if (spank_getenv(spank, "PYTHONPATH", path, sizeof path) != ESPANK_SUCCESS)
        path[0] = 0;
    if (has(path, startup))
        return;
    int length = snprintf(longer, sizeof longer, "%s%s%s", startup, path[0] ? ":" : "", path);
    if (length > 0 && (size_t)length < sizeof longer)
        spank_setenv(spank, "PYTHONPATH", longer, 1);
}

/* Unless the task has another tool's there. */
static void put(spank_t spank, const char *name, const char *library) {
    if (library)
        spank_setenv(spank, name, library, 0);
}

/* A table `spank_options` would be srun's alone. */
int slurm_spank_init(spank_t spank, int count, char **words) {
    (void)count, (void)words;
    spank_context_t where = spank_context();
    if (where == S_CTX_ALLOCATOR || where == S_CTX_LOCAL || where == S_CTX_REMOTE)
        spank_option_register(spank, &option);
    return 0;
}

int slurm_spank_task_init(spank_t spank, int count, char **words) {
    char *optarg = NULL, chosen[CHOSEN_BYTES] = "", pid[24];
    if (spank_option_getopt(spank, &option, &optarg) != ESPANK_SUCCESS) {
        if (spank_getenv(spank, CHOSEN, chosen, sizeof chosen) != ESPANK_SUCCESS || !*chosen)
            return 0;
        optarg = chosen;
    }
    const char *word = word_of(optarg), *startup = given(count, words, "startup");
    if (!startup || !known(word) || !strcmp(word, "off"))
        return 0;
    spank_setenv(spank, CHOSEN, word, 1);
    put_first(spank, startup);
    put(spank, "NVTX_INJECTION64_PATH", given(count, words, "nvtx"));
    if (!strcmp(word, "cuda"))
        put(spank, "CUDA_INJECTION64_PATH", given(count, words, "cuda"));
    if (captures(word))
        spank_setenv(spank, "PROFD_CAPTURE", word, 1);
    snprintf(pid, sizeof pid, "%ld", (long)getpid()); /* exec keeps it: this process is the one that may speak */
    spank_setenv(spank, "PROFD_RUN", pid, 1);
    return 0;
}

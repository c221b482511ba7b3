// A flood of datagrams that outruns whoever receives it: DAEMON UID PROCESSES EACH.
// So many processes of that user send without pause, until the standard input ends; of EACH datagrams (0: no end) a process is
// followed by a new one. Says "began", and at the end how many datagrams the kernel took.
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_un to = {.sun_family = AF_UNIX};
static long *taken;
static volatile int *stop;

static void send_them(long each) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
  char message[100] = {0};
  long mine = 0;
  for (long tried = 0; !*stop && (each == 0 || tried < each); ++tried) {
    mine += sendto(sock, message, sizeof message, 0, (struct sockaddr *)&to, sizeof to) == sizeof message;
  }
  __atomic_add_fetch(taken, mine, __ATOMIC_SEQ_CST);
  _exit(0);
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  strncpy(to.sun_path, argv[1], sizeof to.sun_path - 1);
  uid_t uid = (uid_t)atol(argv[2]);
  long running = 0, processes = atol(argv[3]), each = atol(argv[4]);
  void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  taken = shared;
  stop = (int *)((char *)shared + 64);
  if (uid != getuid() && (setgid(uid) != 0 || setuid(uid) != 0)) return 3;
  puts("began");
  fflush(stdout);
  struct pollfd input = {.fd = 0, .events = POLLIN};
  while (poll(&input, 1, running < processes ? 0 : 1) == 0) {
    for (; running < processes; ++running) {
      pid_t child = fork();
      if (child < 0) break;
      if (child == 0) send_them(each);
    }
    while (running > 0 && waitpid(-1, NULL, WNOHANG) > 0) --running;
  }
  *stop = 1;
  while (wait(NULL) > 0) continue;
  printf("%ld\n", *taken);
  return 0;
}

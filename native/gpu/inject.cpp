#include "profd_cupti.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "../recorder/agent.h"
#include "collector.h"
#include "hooks.h"

namespace profd::cupti {
namespace {

constexpr const char* kVersion = "0.1.0";  // as in pyproject.toml

// Best first, as profclient.labels has them.
struct Label {
  const char* key;
  std::vector<const char*> variables;
};
const std::vector<Label>& label_variables() {
  static const std::vector<Label> all = {
      {"rank", {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}},
      {"world", {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}},
      {"local_rank", {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}},
      {"job", {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}},
      {"pod", {"POD_NAME", "K8S_POD_NAME", "MY_POD_NAME"}},
  };
  return all;
}

bool is_one_line(const char* text) {
  for (const char* at = text; *at; at++)
    if (static_cast<unsigned char>(*at) < ' ' || *at == 0x7f) return false;
  return *text != '\0' && std::strlen(text) <= 256;
}

std::string hello() {
  std::string lines = std::string("agent=") + kVersion + "\ncan=cuda\n";
  for (const Label& label : label_variables()) {
    for (const char* variable : label.variables) {
      const char* value = std::getenv(variable);
      if (!value || !is_one_line(value)) continue;
      lines += std::string(label.key) + "=" + value + "\n";
      break;
    }
  }
  return lines;
}

std::string beside(const std::string& socket) {
  const auto slash = socket.rfind('/');
  return (slash == std::string::npos ? std::string() : socket.substr(0, slash + 1)) + "agent.sock";
}

// As profclient.address has them: what was given is the only one.
std::vector<std::string> sockets() {
  if (const char* given = std::getenv("PROFD_ADDRESS"); given && *given) {
    const std::string path = given;
    return {beside(path.rfind("unix:", 0) == 0 ? path.substr(5) : path)};
  }
  std::vector<std::string> all;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (runtime && access(runtime, F_OK) == 0)
    all.push_back(std::string(runtime) + "/profd/agent.sock");
  else if (state && *state)
    all.push_back(std::string(state) + "/profd/agent.sock");
  else if (home && *home)
    all.push_back(std::string(home) + "/.local/state/profd/agent.sock");
  all.push_back("/run/profd/agent.sock");
  return all;
}

// profclient leaves the pid that it is attached in: it has an agent, and arms us through it.
bool profclient_is_attached() {
  const char* pid = std::getenv("PROFD_ATTACHED_PID");
  return pid && std::strtol(pid, nullptr, 10) == getpid();
}

bool switched_off() {
  const char* attach = std::getenv("PROFD_ATTACH");
  return attach && std::strcmp(attach, "0") == 0;
}

void at_exit() {
  stop();
  agent::stop("exit");
}

void start_agent() {
  if (switched_off()) return;
  prepare();
  if (profclient_is_attached()) return;
  agent::Settings settings;
  settings.sockets = sockets();
  settings.hello = hello();
  settings.hooked = "cuda";
  settings.post = post_hook;
  settings.quiet = true;
  std::string why;
  if (agent::start(std::move(settings), &why)) std::atexit(at_exit);
}

void copy_text(const std::string& from, char* to, size_t bytes) {
  if (bytes == 0) return;
  const size_t length = from.size() < bytes ? from.size() : bytes - 1;
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

}  // namespace
}  // namespace profd::cupti

#define EXPORTED __attribute__((visibility("default")))

extern "C" EXPORTED int InitializeInjection(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, profd::cupti::start_agent);
  return 1;
}

extern "C" EXPORTED int profd_gpu_arm_elsewhere(void* api, unsigned wishes, int (*elsewhere)(void), char* text,
                                                size_t bytes) {
  auto* theirs = static_cast<profd::recorder::Api*>(api);
  profd::cupti::Outcome outcome;
  if (theirs->version != profd::recorder::kApiVersion || theirs->bytes < sizeof(profd::recorder::Api)) {
    outcome.why = "libprofd_cupti.so and profclient are of different versions";
  } else {
    // An agent of our own would be a second holder of this process.
    profd::agent::stop("exit");
    outcome = profd::cupti::arm(
        *theirs, {.graph_nodes = (wishes & PROFD_GPU_GRAPH_NODES) != 0, .detach = (wishes & PROFD_GPU_DETACH) != 0},
        elsewhere);
  }
  profd::cupti::copy_text(outcome.armed ? outcome.notes : outcome.why, text, bytes);
  return outcome.armed;
}

extern "C" EXPORTED void profd_gpu_take(const uint8_t* const* records, size_t count) {
  profd::cupti::take(records, count);
}

extern "C" EXPORTED void profd_gpu_stop(void) { profd::cupti::stop(); }

extern "C" EXPORTED void profd_gpu_leave(void) { profd::cupti::leave(); }

extern "C" EXPORTED void profd_gpu_report(char* text, size_t bytes) {
  profd::cupti::copy_text(profd::cupti::report(), text, bytes);
}

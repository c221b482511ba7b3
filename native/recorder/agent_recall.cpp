#include "agent_recall.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace profd::agent {
namespace {

constexpr std::size_t kRecallStackBytes = 1 << 20;  // touched as far as it is used
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
constexpr char kLibrary[] = "libtorch_cpu.so";
// std::string c10d::dump_fr_trace_json(bool includeCollectives, bool onlyActive), seen in torch 2.13: the name holds the types
// of its arguments and, as cxx11, how its string lies in memory.
constexpr char kDump[] = "_ZN4c10d18dump_fr_trace_jsonB5cxx11Ebb";
using Dump = std::string (*)(bool, bool);

struct Asked {
  Requests& requests;
  uint64_t number;
  bool entries;
};

// What libtorch says, or nothing and why.
std::string remembered(bool entries, std::string* why) {
  void* const torch = dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD);
  if (!torch) return *why = "torch is not loaded", std::string();
  std::string said;
  if (const auto dump = reinterpret_cast<Dump>(dlsym(torch, kDump))) {
    try {
      said = dump(entries, false);
    } catch (const std::exception& error) {
      *why = error.what();
    } catch (...) {
      *why = "its flight recorder failed";
    }
  } else {
    *why = "this torch cannot tell what its flight recorder remembers";
  }
  dlclose(torch);
  return said;
}

bool write_whole(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += static_cast<std::size_t>(wrote);
  }
  return true;
}

int sealed(const std::string& text, std::string* why) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int fd = memfd_create("profd-recall", flags | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) fd = memfd_create("profd-recall", flags);
  if (fd >= 0 && write_whole(fd, text) && fcntl(fd, F_ADD_SEALS, kSeals) == 0) return fd;
  *why = std::string("no memory to hand it over: ") + std::strerror(errno);
  if (fd >= 0) close(fd);
  return -1;
}

// The sentence of another's exception becomes a line of ours.
std::string one_line(std::string text) {
  for (char& each : text)
    if (static_cast<unsigned char>(each) < 0x20 || each == 0x7f) each = ' ';
  return text.substr(0, 300);
}

void tell(Requests& requests, Recalled recalled, bool over) {
  std::lock_guard lock(requests.mutex);
  requests.recalled.push_back(std::move(recalled));
  if (over) requests.recalling = false;
  requests.wake.signal();
}

void* answer_recall(void* given) {
  const Asked asked = *static_cast<Asked*>(given);
  delete static_cast<Asked*>(given);
  Recalled found{asked.number, -1, {}};
  const std::string said = remembered(asked.entries, &found.why);
  if (said.size() > kRecallBytesMax) {
    found.why = "its flight recorder remembers " + std::to_string(said.size() >> 20) + " MiB, too much to be taken";
  } else if (found.why.empty()) {
    found.fd = sealed(said, &found.why);
  }
  found.why = one_line(std::move(found.why));
  tell(asked.requests, std::move(found), true);
  return nullptr;
}

int create_thread(Asked* asked) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kRecallStackBytes);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, answer_recall, asked);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

}  // namespace

void recall(Requests& requests, uint64_t number, bool entries) {
  bool busy;
  {
    std::lock_guard lock(requests.mutex);
    busy = std::exchange(requests.recalling, true);
  }
  if (busy) return tell(requests, {number, -1, "it is still busy with the last question"}, false);
  auto* const asked = new Asked{requests, number, entries};
  if (const int error = create_thread(asked)) {
    delete asked;
    tell(requests, {number, -1, std::string("its thread could not be started: ") + std::strerror(error)}, true);
  }
}

void forget_recall(Requests& requests) {
  requests.recalling = false;
  for (const Recalled& each : requests.recalled)
    if (each.fd >= 0) close(each.fd);
  requests.recalled.clear();
}

}  // namespace profd::agent

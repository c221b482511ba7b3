#include "called.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>
#include <unistd.h>
#include <vector>

#include "confine.h"
#include "images.h"
#include "memory.h"
#include "names.h"
#include "stacks.h"
#include "threads.h"
#include "words.h"

namespace profd::sampler {
namespace {

// The first one, which is the last in the list; 0: it cannot be read.
std::uint64_t main_interpreter(pid_t target, const Python& python) {
  std::uint64_t address = 0, last = 0;
  if (!read_value(target, python.runtime + python.layout.interpreters, address)) return 0;
  for (std::size_t count = 0; address != 0 && count < kInterpretersMax; ++count) {
    last = address;
    if (!read_value(target, address + python.layout.next_interpreter, address)) return 0;
  }
  return last;
}

void say(const std::string& words) {
  for (std::size_t said = 0; said < words.size();) {
    const ssize_t written = ::write(STDOUT_FILENO, words.data() + said, words.size() - said);
    if (written < 0) ::_exit(1);
    said += static_cast<std::size_t>(written);
  }
}

}  // namespace

[[noreturn]] void say_names(char** arguments, int count) {
  const auto target = static_cast<pid_t>(number(arguments[2]));
  std::vector<std::uint64_t> wanted;
  for (int at = kArguments; at < count; ++at) wanted.push_back(static_cast<std::uint64_t>(number(arguments[at])));
  if (wanted.size() > kThreadsMaxOfProcess) fail("look for names", "it was asked of too many threads");
  std::sort(wanted.begin(), wanted.end());
  confine(arguments, open_mappings);
  std::set_new_handler([] { fail("hold the names", "its memory is not enough"); });
  static Python python;
  if (const char* const why = find_mapped_python(target, python); why != nullptr) refuse_unknown(why);
  ThreadNames names(target, python);
  for (const auto& [ident, name] : names.find(main_interpreter(target, python), wanted)) {
    say(std::to_string(ident) + " " + name + "\n");
  }
  ::_exit(0);
}

}  // namespace profd::sampler

#include "images.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <unistd.h>

#include "words.h"

namespace profd::sampler {
namespace {

constexpr std::size_t kMapsBytesOfTarget = 16 << 20, kPartBytes = 1 << 16;

int g_maps = -1;
char g_program[kPageBytes];  // as the kernel names it

// Of a line of maps: `start-end rwxp offset device inode   path`.
struct Mapping {
  std::uint64_t start = 0, offset = 0;
  std::string_view path;
};

Mapping parse(std::string_view line) {
  Mapping found;
  char* at = nullptr;
  found.start = std::strtoull(line.data(), &at, 16);
  const std::size_t slash = line.find('/');
  const std::size_t permissions = line.find(' ');
  if (slash == line.npos || permissions == line.npos || permissions + 6 >= line.size()) return {};
  found.offset = std::strtoull(line.data() + permissions + 6, &at, 16);
  found.path = line.substr(slash);
  return found;
}

std::string read_mappings_of() {
  std::string said;
  for (ssize_t got = 1; got > 0 && said.size() < kMapsBytesOfTarget;) {
    const std::size_t have = said.size();
    said.resize(have + kPartBytes);
    got = read_all(g_maps, said.data() + have, kPartBytes);
    said.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  ::close(g_maps);
  return said;
}

bool may_be_python(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("libpython") || name.starts_with("python") || path == g_program;
}

}  // namespace

void open_mappings(pid_t target) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/maps", target);
  g_maps = ::open(path, O_RDONLY | O_CLOEXEC);
  if (g_maps < 0) fail("open its target's mappings");
  std::snprintf(path, sizeof path, "/proc/%d/exe", target);
  const ssize_t length = ::readlink(path, g_program, sizeof g_program - 1);
  g_program[std::max<ssize_t>(length, 0)] = '\0';
}

const char* find_mapped_python(pid_t target, Python& found) {
  const std::string said = read_mappings_of();
  std::string_view rest(said);
  const char* why = "it maps none";
  for (int images = 0; !rest.empty() && images < kImagesMax;) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const Mapping mapping = parse(line);
    if (mapping.path.empty() || mapping.offset != 0 || !may_be_python(mapping.path)) continue;
    ++images;
    why = find_python(target, mapping.start, found);
    if (why == nullptr) return nullptr;
  }
  return why;
}

}  // namespace profd::sampler

#include "mapped_names.h"

#include <algorithm>
#include <unordered_set>

namespace profd::host {

namespace {

constexpr std::string_view DELETED = " (deleted)";
constexpr int FIELDS = 5;  // before the path: addresses, rights, offset, device, inode

// Empty where the mapping is of no file: its name begins with no slash, whatever stands in that.
std::string_view path_of(std::string_view line) {
  for (int field = 0; field < FIELDS; ++field) {
    const std::size_t end = line.find(' ');
    if (end == std::string_view::npos || end == 0) return {};
    line.remove_prefix(end + 1);
  }
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  if (line.size() < 2 || line[0] != '/') return {};
  if (line.ends_with(DELETED)) line.remove_suffix(DELETED.size());
  return line;
}

}  // namespace

std::vector<std::string> mapped_names(std::string_view maps, const std::vector<std::string>& names, std::size_t most) {
  std::vector<std::string> found;
  std::unordered_set<std::string> known;
  while (!maps.empty() && found.size() < most) {
    const std::size_t end = std::min(maps.find('\n'), maps.size());
    const std::string_view path = path_of(maps.substr(0, end));
    maps.remove_prefix(std::min(end + 1, maps.size()));
    if (path.empty()) continue;
    const std::string_view name = path.substr(path.rfind('/') + 1);
    const auto is_it = [&](const std::string& beginning) { return name.starts_with(beginning); };
    if (std::any_of(names.begin(), names.end(), is_it) && known.emplace(path).second) found.emplace_back(path);
  }
  return found;
}

}  // namespace profd::host

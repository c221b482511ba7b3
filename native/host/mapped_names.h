// Which of a process's mapped files have names of interest.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace profd::host {

// Paths in the text of /proc/PID/maps, which is the process's word and may be cut anywhere, whose last part begins with
// one of `names`: each once, in their order, at most `most`, without what the kernel says of a file that was removed.
std::vector<std::string> mapped_names(std::string_view maps, const std::vector<std::string>& names, std::size_t most);

}  // namespace profd::host

#include "chrome_steps.h"

#include <algorithm>

namespace profd::scan {

Step* Steps::keep(Step& from, std::string_view text, const Step& read) {
  if (text.size() > Step::kTextMax) return nullptr;
  std::string name(1, static_cast<char>(from.place));
  name += text;
  auto found = by_text_.find(name);
  if (found == by_text_.end()) {
    if (kept_.size() == kMax) return nullptr;
    Step& step = kept_.emplace_back(read);
    step.number = static_cast<std::int32_t>(kept_.size() - 1);
    step.size = static_cast<std::uint8_t>(text.size());
    std::copy(text.begin(), text.end(), step.text.begin());
    if (!read.key.empty()) step.key = {step.text.data() + (read.key.data() - text.data()), read.key.size()};
    found = by_text_.emplace(std::move(name), &step).first;
  }
  std::copy_backward(from.next.begin(), from.next.end() - 1, from.next.end());
  from.next[0] = found->second;
  return found->second;
}

}  // namespace profd::scan

#include "json_members.h"

#include <stdexcept>
#include <string>

namespace profd::host {
namespace {

class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}

  std::vector<JsonMember> members(std::size_t most) {
    std::vector<JsonMember> found;
    expect('{');
    if (next() == '}') {
      ++at_;
    } else {
      for (;;) {
        if (found.size() == most) fail("it has too many members");
        found.push_back(member());
        const char after = next();
        ++at_;
        if (after == '}') break;
        if (after != ',') fail("a member has no end");
      }
    }
    pass_blanks();
    if (at_ != text_.size()) fail("there is more behind the object");
    return found;
  }

 private:
  JsonMember member() {
    JsonMember found{};
    if (next() != '"') fail("a name was expected");
    found.name = at_ + 1;
    pass_string();
    found.name_end = at_ - 1;
    expect(':');
    next();
    found.value = at_;
    pass_value();
    found.value_end = at_;
    while (found.value_end > found.value && blank(text_[found.value_end - 1])) --found.value_end;
    if (found.value_end == found.value) fail("a member has no value");
    return found;
  }

  void pass_value() {
    std::size_t depth = 0;
    while (at_ < text_.size()) {
      switch (text_[at_]) {
        case '"':
          pass_string();
          continue;
        case '{':
        case '[':
          ++depth;
          break;
        case '}':
        case ']':
          if (depth == 0) return;
          --depth;
          break;
        case ',':
          if (depth == 0) return;
          break;
        default:
          break;
      }
      ++at_;
    }
    fail("it ends too soon");
  }

  // From one quote to behind the other.
  void pass_string() {
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
      } else if (text_[at_] == '"') {
        ++at_;
        return;
      }
    }
    fail("it ends in a string");
  }

  void expect(char wanted) {
    if (next() != wanted) fail(std::string("'") + wanted + "' was expected");
    ++at_;
  }

  char next() {
    pass_blanks();
    if (at_ >= text_.size()) fail("it ends too soon");
    return text_[at_];
  }

  void pass_blanks() {
    while (at_ < text_.size() && blank(text_[at_])) ++at_;
  }

  static bool blank(char letter) { return letter == ' ' || letter == '\n' || letter == '\r' || letter == '\t'; }

  [[noreturn]] void fail(const std::string& why) const {
    throw std::invalid_argument("at byte " + std::to_string(at_) + " " + why);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<JsonMember> json_members(std::string_view text, std::size_t most) { return Scan(text).members(most); }

}  // namespace profd::host

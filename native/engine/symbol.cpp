// A recogniser by recursive descent; each function is a rule of the ABI's grammar, and takes it or says no.
#include "symbol.h"

namespace profd {
namespace {

constexpr std::string_view kBuiltin = "vwbcahstijlmxynofdegz";
constexpr std::string_view kBuiltinAfterD = "nacdefhisu";  // nullptr_t, auto, decimals, char16_t and the like
constexpr std::string_view kAbbreviated = "absiod";        // std::allocator, std::string and the like

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

class Symbol {
 public:
  explicit Symbol(std::string_view name) : rest_(name) {}

  bool whole() {
    if (!take("_Z") || !encoding('.')) return false;
    // Of a clone: f(int) [clone .constprop.0]
    return rest_.empty() || rest_.find_first_not_of(
        ".abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string_view::npos;
  }

 private:
  char next(std::size_t ahead = 0) const { return ahead < rest_.size() ? rest_[ahead] : '\0'; }
  bool next_in(std::string_view set, std::size_t ahead = 0) const {
    return ahead < rest_.size() && set.find(rest_[ahead]) != std::string_view::npos;
  }
  void skip(std::size_t count) { rest_.remove_prefix(count); }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    skip(text.size());
    return true;
  }
  bool skip_all(std::string_view set) {
    while (next_in(set)) skip(1);
    return true;
  }
  bool digits() { return skip_all("0123456789"); }

  bool encoding(char stop) {
    if (!name()) return false;
    while (!rest_.empty() && next() != stop) {
      if (!type()) return false;
    }
    return true;
  }

  bool name() {
    if (take("N")) return nested();
    if (take("Z")) return local();
    if (take("St")) return unqualified() && maybe_arguments();
    if (next() == 'S') return substitution() && arguments();
    return unqualified() && maybe_arguments();
  }

  bool nested() {
    skip_all("rVK");
    if (next_in("RO")) skip(1);
    while (!take("E")) {
      if (take("St")) continue;
      bool taken;
      switch (next()) {
        case 'S': taken = substitution(); break;
        case 'T': taken = parameter(); break;
        case 'I': taken = arguments(); break;
        case 'C':
        case 'D': taken = structor(); break;
        default: taken = unqualified(); break;
      }
      if (!taken) return false;
    }
    return true;
  }

  bool local() {
    if (!encoding('E') || !take("E")) return false;
    if (take("s")) return discriminator();
    return next() != 'd' && name() && discriminator();
  }

  bool discriminator() {
    if (next() != '_' || !(is_digit(next(1)) || (next(1) == '_' && is_digit(next(2))))) return true;
    if (!take("__")) {
      skip(2);
      return true;
    }
    return digits() && take("_");
  }

  bool structor() {
    if (!is_digit(next(1))) return false;
    skip(2);
    return true;
  }

  bool unqualified() {
    if (next() == 'L') skip(1);  // of a static function
    bool taken = false;
    if (is_digit(next())) {
      taken = source_name();
    } else if (take("Ul")) {
      taken = types() && digits() && take("_");
    } else if (take("Ut")) {
      taken = digits() && take("_");
    } else if (is_lower(next()) && (is_lower(next(1)) || next_in("LSVN", 1))) {
      // An operator; one that converts names a type, and one of literals a name.
      taken = !rest_.starts_with("cv") && !rest_.starts_with("li");
      if (taken) skip(2);
    }
    while (taken && take("B")) taken = source_name();
    return taken;
  }

  bool source_name() {
    std::size_t length = 0;
    while (is_digit(next())) {
      length = length * 10 + static_cast<std::size_t>(next() - '0');
      if (length > rest_.size()) return false;
      skip(1);
    }
    if (length == 0 || length > rest_.size()) return false;
    skip(length);
    return true;
  }

  bool substitution() {
    skip(1);
    if (next_in(kAbbreviated)) {
      skip(1);
      return true;
    }
    return skip_all("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") && take("_");
  }

  bool parameter() { return take("T") && digits() && take("_"); }

  bool maybe_arguments() { return next() != 'I' || arguments(); }

  bool arguments() {
    if (!take("I")) return false;
    while (!take("E")) {
      if (!argument()) return false;
    }
    return true;
  }

  bool argument() {
    if (take("J")) {
      while (!take("E")) {
        if (!argument()) return false;
      }
      return true;
    }
    if (take("X")) return parameter() && take("E");  // the simplest of expressions, and the only frequent one
    return take("L") ? literal() : type();
  }

  bool literal() { return next() != '_' && next() != 'Z' && type() && skip_all("n0123456789abcdef") && take("E"); }

  // Up to and with an E.
  bool types() {
    while (!take("E")) {
      if (!type()) return false;
    }
    return true;
  }

  bool type() {
    skip_all("rVKPROCG");  // const, pointers, references …
    if (next_in(kBuiltin)) {
      skip(1);
      return true;
    }
    switch (next()) {
      case 'D': return type_after_d();
      case 'F':
        skip(1);
        return (take("Y") || true) && types();
      case 'A': return skip(1), digits() && take("_") && type();
      case 'M': return skip(1), type() && type();
      case 'T': return parameter() && maybe_arguments();
      case 'S':
        if (rest_.starts_with("St")) return name();
        return substitution() && maybe_arguments();
      case 'u': return skip(1), source_name();
      case 'U': return skip(1), source_name() && type();
      case 'N':
      case 'Z': return name();
      default: return is_digit(next()) && name();
    }
  }

  bool type_after_d() {
    if (take("Dp")) return skip_all("rVKPRO") && parameter();
    if (take("DF")) return digits() && (take("_") || take("b") || take("x"));
    if (take("Dv")) return digits() && take("_") && type();
    if (take("Do")) return next() == 'F' && type();
    if (!next_in(kBuiltinAfterD, 1)) return false;
    skip(2);
    return true;
  }

  std::string_view rest_;
};

}  // namespace

bool is_plain_symbol(std::string_view name) { return Symbol(name).whole(); }

}  // namespace profd

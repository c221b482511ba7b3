// What text means, and how to make it clean: slow paths, taken by few strings.
#pragma once

#include <string>
#include <string_view>

namespace profd::scan {

// Appends bytes as valid UTF-8: each maximal invalid sequence becomes U+FFFD.
void append_utf8(std::string& out, std::string_view bytes);

// The value of a JSON string's content. Unknown escapes stay as they are, backslash included;
// lone surrogates become U+FFFD.
std::string unescape(std::string_view raw);

// Appends a JSON string with its quotes. `value` is valid UTF-8.
void append_quoted(std::string& out, std::string_view value);

// A scanned value rewritten as JSON that every parser takes: control characters and bad escapes
// escaped, UTF-8 repaired, NaN, Infinity and numbers beyond kNumberCap as strings.
std::string clean_json(std::string_view text);

}  // namespace profd::scan

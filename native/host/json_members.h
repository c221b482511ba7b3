// Where the members of a JSON object lie in its text. What they hold is passed over, so that nothing is made of it.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace profd::host {

// Places in the text: of the name without its quotes, as it is written, and of the value.
struct JsonMember {
  std::size_t name, name_end, value, value_end;
};

// The members of the one object that a text is, at most `most`. A value is what lies between a colon and the comma
// behind it that is in no brackets and no string; whether it is JSON is not looked at. std::invalid_argument, with
// what is wrong, for a text that is no object.
std::vector<JsonMember> json_members(std::string_view text, std::size_t most);

}  // namespace profd::host

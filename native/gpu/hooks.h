// A thread that does what the agent asks for and that takes long: arming and stopping CUPTI.
#pragma once

#include <string_view>

#include "../recorder/agent.h"

namespace profd::cupti {

// agent::Settings::post of programs without Python.
void post_hook(agent::Hook hook, std::string_view text);

}  // namespace profd::cupti

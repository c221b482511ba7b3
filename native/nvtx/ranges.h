// NVTX's ranges and marks as events of the recorder: pushed ones are ranges of their thread, started ones may end on
// another, marks are instants. A domain, a category and a payload are arguments.
#pragma once

#include <cstdint>

#include "abi.h"
#include "texts.h"

namespace profd::nvtx {

// Where they are written from now on; never null again.
void write_to(const recorder::Api* api);

// Forgets what was started: its ends are not to be waited for.
void forget_started();

struct Event {
  const Text* domain = nullptr;
  const Attributes* attributes = nullptr;  // null: `text` is all there is
  std::string_view text{};
};

void mark(const Event& event);
int push(const Event& event);  // how many the thread has pushed before in this domain
int pop(const Text* domain);
RangeId start(const Event& event);
void end(RangeId id);

void lock_started();
void unlock_started();

}  // namespace profd::nvtx

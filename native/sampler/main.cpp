// profd-sampler launch PARENT MEMORY_BYTES TARGET UID GID LISTENER CORES GROUP COMMAND …: becomes it, confined.
// profd-sampler locks PARENT MEMORY_BYTES TARGET UID GID LISTENER CORES GROUP THREAD …: says which locks they wait for.
// profd-sampler names PARENT MEMORY_BYTES TARGET UID GID LISTENER CORES GROUP IDENT …: says what they are called.
// profd-sampler stacks PARENT MEMORY_BYTES TARGET UID GID LISTENER CORES GROUP OUTPUT RATE SECONDS: reads its stacks.
// profd-sampler warden PARENT TARGET CONVERSATION CORES GROUP: answers what a sampler's filter does not decide.
//
// Samplers take hostile memory apart, so nothing of the daemon's rights is left to it: docs/security.md, "Samplers".
#include <cstring>

#include "called.h"
#include "confine.h"
#include "launch.h"
#include "locks.h"
#include "stacks.h"
#include "warden.h"
#include "words.h"

int main(int count, char** words) {
  using namespace profd::sampler;
  const char* const what = count > 1 ? words[1] : "";
  char** const arguments = words + 2;
  const int given = count - 2;
  if (std::strcmp(what, "launch") == 0 && given > kArguments) launch(arguments);
  if (std::strcmp(what, "locks") == 0 && given >= kArguments) look_at_locks(arguments, given);
  if (std::strcmp(what, "names") == 0 && given >= kArguments) say_names(arguments, given);
  if (std::strcmp(what, "stacks") == 0 && given == kArguments + kStacksArguments) sample_stacks(arguments);
  if (std::strcmp(what, "warden") == 0 && given == kWardenArguments) return be_warden(arguments);
  fail("read its arguments", "profd starts it, with those that its sources name");
}

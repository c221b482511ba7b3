// Answers what a sampler's filter does not decide, in a process of its own, where one is needed.
#pragma once

namespace profd::sampler {

// PARENT TARGET CONVERSATION CORES GROUP, as those of `confine`.
inline constexpr int kWardenArguments = 5;

// Take over the listener of the sampler that introduces itself, and answer until that has ended. The status of the end.
//
// Three questions are asked, by seccomp (seccomp_unotify(2)):
//
// - to open a file for reading, or whether it is there: the sampler opens itself what it may open. A file that its
//   target has mapped and the sampler's identity cannot reach (Python in a home directory of mode 0700) is opened here,
//   and given to it as a descriptor, or as the answer of stat(2).
// - to trace a thread: yes if it is its target's;
// - to start a thread: as often as samplers do, and some more; then nothing is answered any more.
//
// A question is a sampler's, so a hostile program's word: a path serves only to find among the target's mappings the
// inode that it stands for, and nothing else is ever handed over.
int be_warden(char** arguments);

}  // namespace profd::sampler

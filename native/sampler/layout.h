// Where CPython 3.11, 3.12 and 3.13 keep what a stack is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/types.h>

namespace profd::sampler {

// Offsets in bytes. 3.11 and 3.12 are frozen: theirs are the compiler's, of their own headers. 3.13 says its own
// (_Py_DebugOffsets); what it does not say is the compiler's, and taken where its sizes are those of these headers.
struct Layout {
  std::size_t interpreters;                               // in _PyRuntime
  std::size_t next_interpreter, id, threads, modules;     // PyInterpreterState
  std::size_t next_thread, interpreter, ident, native;    // PyThreadState
  std::size_t current;                                    // there: the frame, or the C frame that has it
  bool through_c_frame;                                   // the latter
  std::size_t current_of_c_frame;                         // _PyCFrame
  std::size_t code, previous, owner;                      // _PyInterpreterFrame
  std::size_t stack_top;                                  // there, an int; below 0: it runs, or a C function that it called
  std::size_t instruction;                                // there, the address of the one that runs, or ran last
  std::size_t entry;                                      // there, a bool: C called it (3.11); 0: a frame of C's stands before it
  std::size_t file, name, line;                           // PyCodeObject; the qualified name
  std::size_t instructions;                               // there, where they begin
  std::size_t frame_words;                                // there, an int; 0: the next two
  std::size_t locals, stack;                              // there, ints: words of a frame beside its own
  std::size_t version;                                    // there, an unsigned int that is no other's; 0: there is none
  std::size_t text, wide_text;                            // in str: ASCII, and other characters
  std::size_t cached_keys;                                // PyHeapTypeObject
  enum class Attributes { kValuesOrDict, kTagged, kInline } attributes;  // of objects, before or in them
};

inline constexpr std::size_t kWord = 8;
inline constexpr std::size_t kOwnWords = 9;      // of a frame: FRAME_SPECIALS_SIZE
inline constexpr std::size_t kFrameBytes = 72;   // of a frame, what is read
inline constexpr std::size_t kCodeBytes = 136;    // of a code object
inline constexpr std::size_t kThreadBytesMax = 1024;
inline constexpr std::size_t kOwnedByThread = 0, kOwnedByGenerator = 1, kOwnedByC = 3;
inline constexpr std::size_t kTypeOffset = 8;    // of an object
inline constexpr std::size_t kLength = 16, kHash = 24, kState = 32;  // str
inline constexpr std::size_t kTypeFlags = 168;   // PyTypeObject
inline constexpr std::size_t kModuleDict = 16;   // PyModuleObject

// A process's interpreter, found.
struct Python {
  Layout layout;
  std::uint64_t runtime = 0, code_type = 0, dict_type = 0;
};

// Look in a mapped image. Null: it is one that is known; else why not, as the rest of a sentence.
const char* find_python(pid_t process, std::uint64_t image, Python& found);

}  // namespace profd::sampler

#include "layout.h"

#include <algorithm>
#include <cstring>

#include "elf.h"
#include "memory.h"

namespace profd::sampler {
namespace {

constexpr Layout k311{
    .interpreters = 40, .next_interpreter = 0, .id = 48, .threads = 16, .modules = 888,
    .next_thread = 8, .interpreter = 16, .ident = 152, .native = 160,
    .current = 56, .through_c_frame = true, .current_of_c_frame = 8,
    .code = 32, .previous = 48, .owner = 69, .stack_top = 64, .instruction = 56, .entry = 68,
    .file = 112, .name = 128, .line = 72, .instructions = 184, .frame_words = 0, .locals = 76, .stack = 68, .version = 0,
    .text = 48, .wide_text = 72, .cached_keys = 872, .attributes = Layout::Attributes::kValuesOrDict,
};
constexpr Layout k312{
    .interpreters = 40, .next_interpreter = 0, .id = 8, .threads = 72, .modules = 944,
    .next_thread = 8, .interpreter = 16, .ident = 136, .native = 144,
    .current = 56, .through_c_frame = true, .current_of_c_frame = 0,
    .code = 0, .previous = 8, .owner = 70, .stack_top = 64, .instruction = 56, .entry = 0,
    .file = 112, .name = 128, .line = 68, .instructions = 192, .frame_words = 76, .locals = 0, .stack = 0, .version = 92,
    .text = 40, .wide_text = 56, .cached_keys = 880, .attributes = Layout::Attributes::kTagged,
};
constexpr Layout k313{
    .interpreters = 0, .next_interpreter = 0, .id = 0, .threads = 0, .modules = 0,
    .next_thread = 0, .interpreter = 0, .ident = 0, .native = 0,
    .current = 0, .through_c_frame = false, .current_of_c_frame = 0,
    .code = 0, .previous = 0, .owner = 0, .stack_top = 64, .instruction = 56, .entry = 0,
    .file = 0, .name = 0, .line = 0, .instructions = 0, .frame_words = 76, .locals = 0, .stack = 0, .version = 92,
    .text = 40, .wide_text = 56, .cached_keys = 880, .attributes = Layout::Attributes::kInline,
};

// The front of _Py_DebugOffsets of 3.13.
struct DebugOffsets {
  char cookie[8];
  std::uint64_t version, free_threaded;
  struct { std::uint64_t size, finalizing, interpreters_head; } runtime;
  struct {
    std::uint64_t size, id, next, threads_head, gc, modules, sysdict, builtins, gil, gil_state, enabled, locked, holder;
  } interpreter;
  struct {
    std::uint64_t size, prev, next, interp, current_frame, thread_id, native_thread_id, datastack_chunk, status;
  } thread;
  struct { std::uint64_t size, previous, executable, instr_ptr, localsplus, owner; } frame;
  struct {
    std::uint64_t size, filename, name, qualname, linetable, firstlineno, argcount, names, kinds, adaptive;
  } code;
  struct { std::uint64_t size, ob_type; } object;
};

constexpr char kCookie[] = "xdebugpy";
constexpr std::uint64_t kOffsetMax = 1 << 20;
constexpr std::size_t kFrameBytes313 = 80, kOwner313 = 70;  // what _PyInterpreterFrame has there

constexpr std::uint64_t kMinor = 0xFFFF0000, kLevel = 0xF0, kFinal = 0xF0;  // of Py_Version

bool take_offsets(pid_t process, std::uint64_t runtime, std::uint64_t version, Layout& layout) {
  DebugOffsets said{};
  if (!read_value(process, runtime, said) || std::memcmp(said.cookie, kCookie, sizeof said.cookie) != 0) return false;
  if (said.version != version || said.free_threaded != 0 || said.object.ob_type != kTypeOffset) return false;
  // Bigger ones would not fit what is read of them; others are another compiler's.
  if (said.frame.size != kFrameBytes313 || said.frame.owner != kOwner313) return false;
  layout = k313;
  const std::uint64_t* const all = &said.runtime.size;
  for (std::size_t at = 0; at < (sizeof said - offsetof(DebugOffsets, runtime)) / sizeof *all; ++at) {
    if (all[at] > kOffsetMax) return false;
  }
  layout.interpreters = said.runtime.interpreters_head;
  layout.next_interpreter = said.interpreter.next;
  layout.id = said.interpreter.id;
  layout.threads = said.interpreter.threads_head;
  layout.modules = said.interpreter.modules;
  layout.next_thread = said.thread.next;
  layout.interpreter = said.thread.interp;
  layout.ident = said.thread.thread_id;
  layout.native = said.thread.native_thread_id;
  layout.current = said.thread.current_frame;
  layout.code = said.frame.executable;
  layout.previous = said.frame.previous;
  layout.owner = said.frame.owner;
  layout.file = said.code.filename;
  layout.name = said.code.qualname;
  layout.line = said.code.firstlineno;
  layout.instruction = said.frame.instr_ptr;
  layout.instructions = said.code.adaptive;
  return std::max({layout.code, layout.previous, layout.instruction}) + kWord <= kFrameBytes && layout.owner < kFrameBytes &&
         std::max({layout.file, layout.name, layout.line}) + kWord <= kCodeBytes &&
         std::max({layout.next_thread, layout.interpreter, layout.ident, layout.native, layout.current}) + kWord <=
             kThreadBytesMax;
}

}  // namespace

const char* find_python(pid_t process, std::uint64_t start, Python& found) {
  Image image;
  if (!image.open(process, start)) return "it has no symbols";
  found.runtime = image.find("_PyRuntime");
  const std::uint64_t says = image.find("Py_Version"), type = image.find("PyType_Type");
  found.code_type = image.find("PyCode_Type");
  found.dict_type = image.find("PyDict_Type");
  if (found.runtime == 0 || says == 0 || type == 0 || found.code_type == 0 || found.dict_type == 0) {
    return "it does not name its state";
  }
  std::uint64_t version = 0, type_of_type = 0;
  if (!read_value(process, says, version) || !read_value(process, found.code_type + kTypeOffset, type_of_type)) {
    return "it cannot be read";
  }
  // Objects begin in another way where they are counted or listed by a build for debugging, or without a GIL.
  if (type_of_type != type || image.find("_Py_NegativeRefcount") != 0) return "it is built in another way";
  if ((version & kLevel) != kFinal) return "it is no release";
#if !defined(__x86_64__)
  if ((version & kMinor) != 0x030D0000) return "its layout is not known on this machine";
#endif
  switch (version & kMinor) {
    case 0x030B0000:
      found.layout = k311;
      return nullptr;
    case 0x030C0000:
      found.layout = k312;
      return nullptr;
    case 0x030D0000:
      return take_offsets(process, found.runtime, version, found.layout) ? nullptr : "its layout is another one";
    default:
      return "its version is another one";
  }
}

}  // namespace profd::sampler

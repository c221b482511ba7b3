#include "tracer_names.h"

#include <string_view>
#include <utility>

#include "no_collection.h"
#include "recorder.h"
#include "tracer_text.h"

namespace profd::tracer {

namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// What `torch.nn.Module.__call__` is since torch 2.0. By name, since torch may be imported after the start.
bool is_module_call(const PyCodeObject* code) {
  if (code->co_argcount == 0) return false;  // then there is no argument 0 to be the module
  std::string name, file;
  append_text(name, code->co_qualname);
  if (name != "Module._wrapped_call_impl") return false;
  append_text(file, code->co_filename);
  return ends_with(file, "torch/nn/modules/module.py");
}

}  // namespace

void CodeNames::open(recorder::Session session, std::vector<std::string> prefixes) {
  session_ = session;
  prefixes_ = std::move(prefixes);
  table_.assign(kTableAtFirst, CodeName{});
  mask_ = kTableAtFirst - 1;
  used_ = 0;
}

void CodeNames::close() {
  std::vector<CodeName> table = std::exchange(table_, {});
  mask_ = used_ = 0;
  session_ = 0;
  for (const CodeName& entry : table) Py_XDECREF(entry.code);
}

CodeName CodeNames::learn(PyCodeObject* code, recorder::Thread* thread) {
  const NoCollection none;  // names that are not UTF-8 raise
  const std::string name = name_of(code);
  CodeName entry{code, recorder::intern(recorder::api, thread, session_, name.data(), name.size()),
                 is_module_call(code)};
  if (used_ >= kCodesMax || entry.name == arena::kNoName) return entry;  // no name: asked for again, and counted again
  if (used_ * 2 >= table_.size()) grow();
  place(entry);
  Py_INCREF(code);
  ++used_;
  return entry;
}

void CodeNames::grow() {
  std::vector<CodeName> before(table_.size() * 2);
  before.swap(table_);
  mask_ = table_.size() - 1;
  for (const CodeName& entry : before) {
    if (entry.code) place(entry);
  }
}

void CodeNames::place(const CodeName& entry) {
  size_t at = slot_of(entry.code);
  while (table_[at].code) at = (at + 1) & mask_;
  table_[at] = entry;
}

std::string CodeNames::name_of(const PyCodeObject* code) const {
  std::string name;
  append_text(name, code->co_filename);
  for (const std::string& prefix : prefixes_) {
    if (name.compare(0, prefix.size(), prefix) == 0) {
      name.erase(0, prefix.size());
      break;
    }
  }
  name += '(';
  name += std::to_string(code->co_firstlineno);
  name += "): ";
  append_text(name, code->co_name);
  return name;
}

}  // namespace profd::tracer

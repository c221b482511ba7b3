// Calls of torch.nn.Module: "nn.Module: Linear_0", and where the module stands in its model ("layers.3.attn.q_proj").
//
// A model is found when it is called: the outermost module is a root, and its tree is walked once, as named_modules()
// walks it, through the `_modules` dictionaries: no Python code of the user runs. Modules are remembered by weak
// references: a model that goes away during a capture goes away. Under the GIL.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "parts.h"
#include "writer.h"

namespace profd::tracer {

// A module whose tree was walked: what its paths start from.
struct Root {
  struct Path {
    std::string text;
    uint32_t id = arena::kNoName;  // once it is in the arena
  };
  PyObject* module = nullptr;  // an address to compare
  std::unordered_map<PyObject*, Path> paths;
  int walks = 0;
};

struct ModuleCall {
  uint32_t name;  // string id
  uint32_t path;  // string id; kNoName: a root, or not known
  Root* root;     // what calls inside of this one belong to
};

class Modules {
 public:
  void open(recorder::Session session, bool with_paths);
  void close();

  // `outer`: the root of the module call around this one on its thread, or null.
  ModuleCall call(PyObject* self, Root* outer, recorder::Thread* thread);

  size_t known() const { return modules_.size(); }

 private:
  static constexpr size_t kModulesMax = 100'000;  // of all roots; what comes later has a name and no path
  static constexpr size_t kRootsMax = 1'024;
  static constexpr int kDepthMax = 200;
  static constexpr int kWalksMax = 16;  // of one root, when modules turn up that it did not have

  struct Known {
    PyObject* weak;  // owned
    uint32_t name = arena::kNoName;
    Root* home = nullptr;  // the first root that had it
  };

  bool alive(const Known& known, PyObject* self) const;
  Known* remember(PyObject* self);
  bool make_room();
  void forget(PyObject* self);
  Root* root_for(PyObject* self, Known* known, Root* outer);
  Root* make_root(PyObject* self);
  Root* unused_root();
  void walk(Root& root);
  void visit(Root& root, PyObject* module, const std::string& path, std::unordered_set<PyObject*>& seen, int depth);
  uint32_t name_of(Known* known, PyObject* self, recorder::Thread* thread);
  uint32_t path_of(Root* root, PyObject* self, recorder::Thread* thread);

  recorder::Session session_ = 0;
  bool with_paths_ = false;
  std::unordered_map<PyObject*, Known> modules_;
  std::unordered_map<std::string, uint32_t> counters_;  // Linear -> number of the next one
  std::deque<Root> roots_;                              // addresses stay
  std::unordered_map<PyObject*, Root*> root_of_;
  size_t paths_ = 0;
  bool crowded_ = false;  // too many live ones: looking for dead ones again is no use
};

}  // namespace profd::tracer

#include "tracer_modules.h"

#include <utility>
#include <vector>

#include "no_collection.h"
#include "recorder.h"
#include "tracer_text.h"

namespace profd::tracer {

namespace {

struct Child {
  std::string name;
  PyObject* module;  // owned
};

// The children of a module by its own `_modules`; copied first, since what follows may run a garbage collection.
std::vector<Child> children_of(PyObject* module) {
  std::vector<Child> children;
  PyObject* attributes = PyObject_GenericGetDict(module, nullptr);
  if (!attributes) {
    PyErr_Clear();
    return children;
  }
  PyObject* modules = PyDict_GetItemString(attributes, "_modules");
  if (modules && PyDict_Check(modules)) {
    Py_ssize_t at = 0;
    PyObject *key, *child;
    while (PyDict_Next(modules, &at, &key, &child)) {
      if (child == Py_None) continue;
      children.push_back({{}, Py_NewRef(child)});
      append_text(children.back().name, key);
    }
  }
  Py_DECREF(attributes);
  return children;
}

}  // namespace

void Modules::open(recorder::Session session, bool with_paths) {
  session_ = session;
  with_paths_ = with_paths;
}

void Modules::close() {
  auto modules = std::exchange(modules_, {});
  counters_.clear();
  root_of_.clear();
  roots_.clear();
  paths_ = 0;
  session_ = 0;
  crowded_ = false;
  for (auto& [self, known] : modules) Py_DECREF(known.weak);
}

ModuleCall Modules::call(PyObject* self, Root* outer, recorder::Thread* thread) {
  const NoCollection none;
  Known* known = remember(self);
  if (!known) return {arena::kNoName, arena::kNoName, outer};
  const uint32_t name = name_of(known, self, thread);
  if (!with_paths_) return {name, arena::kNoName, nullptr};
  Root* root = root_for(self, known, outer);
  return {name, path_of(root, self, thread), root};
}

bool Modules::alive(const Known& known, PyObject* self) const {
#if PY_VERSION_HEX >= 0x030d0000
  PyObject* object = nullptr;
  const bool same = PyWeakref_GetRef(known.weak, &object) == 1 && object == self;
  Py_XDECREF(object);
  return same;
#else
  return PyWeakref_GET_OBJECT(known.weak) == self;
#endif
}

// Null: it takes no weak references, or there are too many.
Modules::Known* Modules::remember(PyObject* self) {
  const auto found = modules_.find(self);
  if (found != modules_.end()) {
    if (alive(found->second, self)) return &found->second;
    forget(self);
  }
  if (modules_.size() >= kModulesMax && !make_room()) return nullptr;
  PyObject* weak = PyWeakref_NewRef(self, nullptr);  // may collect garbage: before the table is touched
  if (!weak) {
    PyErr_Clear();
    return nullptr;
  }
  const auto [at, added] = modules_.try_emplace(self, Known{weak});
  if (!added) Py_DECREF(weak);  // another thread was faster while the collector ran
  return &at->second;
}

// Modules that programs make for one call leave dead references behind. Called when there are too many.
bool Modules::make_room() {
  if (crowded_) return false;
  std::vector<PyObject*> dead;
  for (const auto& [self, known] : modules_) {
    if (!alive(known, self)) dead.push_back(self);
  }
  for (PyObject* self : dead) forget(self);
  crowded_ = modules_.size() > kModulesMax / 10 * 9;
  return modules_.size() < kModulesMax;
}

// An address that is no module's any more, or another one's.
void Modules::forget(PyObject* self) {
  const auto found = modules_.find(self);
  if (found == modules_.end()) return;
  PyObject* weak = found->second.weak;
  modules_.erase(found);
  root_of_.erase(self);
  for (Root& root : roots_) paths_ -= root.paths.erase(self);
  Py_DECREF(weak);
}

Root* Modules::root_for(PyObject* self, Known* known, Root* outer) {
  if (outer) {
    if (outer->paths.count(self)) return outer;
    if (outer->walks < kWalksMax) {
      walk(*outer);
      if (outer->paths.count(self)) return outer;
    }
  }
  const auto own = root_of_.find(self);
  if (own != root_of_.end()) return own->second;
  if (known->home && known->home->paths.count(self)) return known->home;
  return make_root(self);
}

Root* Modules::make_root(PyObject* self) {
  Root* root = roots_.size() < kRootsMax ? &roots_.emplace_back() : unused_root();
  if (!root) return nullptr;
  root->module = self;
  root_of_[self] = root;
  walk(*root);
  return root;
}

// A root whose module has gone away. Calls that are still open inside of it will find no path, at worst.
Root* Modules::unused_root() {
  for (Root& root : roots_) {
    const auto known = modules_.find(root.module);
    if (known != modules_.end() && alive(known->second, root.module)) continue;
    paths_ -= root.paths.size();
    root_of_.erase(root.module);
    root = Root{};
    return &root;
  }
  return nullptr;
}

void Modules::walk(Root& root) {
  ++root.walks;
  std::unordered_set<PyObject*> seen;
  visit(root, root.module, "", seen, 0);
}

// As named_modules(): a module that is reached twice has the path on which it was reached first.
void Modules::visit(Root& root, PyObject* module, const std::string& path, std::unordered_set<PyObject*>& seen,
                    int depth) {
  if (depth > kDepthMax || paths_ >= kModulesMax || !seen.insert(module).second) return;
  Known* known = remember(module);
  if (!known) return;
  if (!known->home) known->home = &root;
  paths_ += root.paths.try_emplace(module, Root::Path{path, arena::kNoName}).second;
  for (Child& child : children_of(module)) {
    visit(root, child.module, path.empty() ? child.name : path + "." + child.name, seen, depth + 1);
    Py_DECREF(child.module);
  }
}

uint32_t Modules::name_of(Known* known, PyObject* self, recorder::Thread* thread) {
  if (known->name != arena::kNoName) return known->name;
  std::string type;
  append_type_name(type, Py_TYPE(self));
  const std::string name = "nn.Module: " + type + "_" + std::to_string(counters_[type]);
  known->name = recorder::intern(recorder::api, thread, session_, name.data(), name.size());
  if (known->name != arena::kNoName) ++counters_[type];
  return known->name;
}

uint32_t Modules::path_of(Root* root, PyObject* self, recorder::Thread* thread) {
  if (!root) return arena::kNoName;
  const auto found = root->paths.find(self);
  if (found == root->paths.end() || found->second.text.empty()) return arena::kNoName;
  Root::Path& path = found->second;
  if (path.id == arena::kNoName) {
    path.id = recorder::intern(recorder::api, thread, session_, path.text.data(), path.text.size());
  }
  return path.id;
}

}  // namespace profd::tracer

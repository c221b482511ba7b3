// The agent as profclient.agent sees it.
#include <cstring>

#include "agent.h"
#include "agent_hooks.h"
#include "parts.h"

namespace profd::agent {
namespace {

constexpr int kHookSeconds = 30;
constexpr int kForkMilliseconds = 1'000;  // that a fork waits for the hook that runs

PyObject* nothing() { Py_RETURN_NONE; }

const char* word(State state) {
  switch (state) {
    case State::Off: return "off";
    case State::Looking: return "looking";
    case State::Connected: return "connected";
    case State::Armed: return "armed";
    case State::Stopped: return "stopped";
    case State::Refused: return "refused";
  }
  return "off";
}

// Reasons reach the control thread as pointers: they live as long as the process.
const char* reason_of(const char* text) {
  for (const char* known : {"stop", "window", "iterations", "overhead", "exit", "fork"})
    if (std::string_view(known) == text) return known;
  PyErr_Format(PyExc_ValueError, "no such reason: %s", text);
  return nullptr;
}

bool paths_of(PyObject* sequence, std::vector<std::string>* paths) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sequence); ++i) {
    Py_ssize_t bytes = 0;
    char* text = nullptr;
    if (PyBytes_AsStringAndSize(PyTuple_GET_ITEM(sequence, i), &text, &bytes) < 0) return false;
    paths->emplace_back(text, bytes);
  }
  return true;
}

PyObject* agent_start(PyObject*, PyObject* args, PyObject* keywords) {
  static const char* const names[] = {"sockets",        "hello",         "hooked",   "call", "quiet",
                                      "retry_first_ms", "retry_most_ms", "grace_ms", "after_ms", nullptr};
  Settings settings;
  PyObject *sockets, *call;
  const char *hello, *hooked;
  Py_ssize_t hello_bytes;
  int quiet = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!y#sO|pIIII", const_cast<char**>(names), &PyTuple_Type, &sockets,
                                   &hello, &hello_bytes, &hooked, &call, &quiet, &settings.retry_first_ms,
                                   &settings.retry_most_ms, &settings.grace_ms, &settings.after_ms) ||
      !paths_of(sockets, &settings.sockets))
    return nullptr;
  settings.hello.assign(hello, hello_bytes);
  settings.hooked = hooked;
  settings.quiet = quiet != 0;
  settings.post = post_hook;
  settings.run_posted = run_hooks;
  open_hooks(call);
  std::string why;
  if (start(std::move(settings), &why)) return nothing();
  PyErr_SetString(PyExc_RuntimeError, why.c_str());
  return nullptr;
}

PyObject* agent_stop(PyObject*, PyObject* text) {
  const char* given = PyUnicode_AsUTF8(text);
  const char* reason = given ? reason_of(given) : nullptr;
  if (!reason) return nullptr;
  Py_BEGIN_ALLOW_THREADS;
  close_hooks(kHookSeconds);
  stop(reason);
  Py_END_ALLOW_THREADS;
  return nothing();
}

PyObject* agent_pause(PyObject*, PyObject*) {
  bool running = false;
  const pid_t thread = hooks_thread(&running);
  if (!alone_but_for(thread, running && thread == 0)) return nothing();
  bool paused = true;
  if (running) {
    Py_BEGIN_ALLOW_THREADS;
    paused = pause_hooks(kForkMilliseconds);
    Py_END_ALLOW_THREADS;
  }
  if (paused) pause(hooks_thread(&running));
  return nothing();
}

PyObject* agent_resume(PyObject*, PyObject*) {
  resume();
  resume_hooks();
  return nothing();
}

PyObject* agent_start_in_child(PyObject*, PyObject*) { return start_in_child(), nothing(); }

PyObject* agent_describe(PyObject*, PyObject* args) {
  const char *hello, *changed;
  Py_ssize_t hello_bytes, changed_bytes;
  if (!PyArg_ParseTuple(args, "y#y#", &hello, &hello_bytes, &changed, &changed_bytes)) return nullptr;
  describe({hello, static_cast<std::size_t>(hello_bytes)}, {changed, static_cast<std::size_t>(changed_bytes)});
  return nothing();
}

// A key of the agent's own twice would make the packet one that no agent sends.
bool may_be_noted(std::string_view key) {
  for (const char* own : {"reason", "first", "last", "events", "dropped", "lasted_ms", "limits", "seconds", "steps", "step_ns",
                          "step_ns_before", "step_ns_after", "after"})
    if (key == own) return false;
  if (key.substr(0, 8) == "seconds.") return false;
  return !key.empty() && key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") == key.npos;
}

PyObject* agent_note(PyObject*, PyObject* args) {
  const char *key, *value;
  Py_ssize_t key_bytes, value_bytes;
  if (!PyArg_ParseTuple(args, "s#s#", &key, &key_bytes, &value, &value_bytes)) return nullptr;
  if (!may_be_noted({key, static_cast<std::size_t>(key_bytes)})) {
    PyErr_Format(PyExc_ValueError, "%s is no key for a note", key);
    return nullptr;
  }
  note({key, static_cast<std::size_t>(key_bytes)}, {value, static_cast<std::size_t>(value_bytes)});
  return nothing();
}

PyObject* agent_begun(PyObject*, PyObject* text) {
  const char* option = PyUnicode_AsUTF8(text);
  if (!option) return nullptr;
  return begun(option), nothing();
}

PyObject* agent_finish(PyObject*, PyObject* text) {
  const char* given = PyUnicode_AsUTF8(text);
  const char* reason = given ? reason_of(given) : nullptr;
  if (!reason) return nullptr;
  return finish(reason), nothing();
}

PyObject* agent_records_at_stop(PyObject*, PyObject* does) {
  const int truth = PyObject_IsTrue(does);
  if (truth < 0) return nullptr;
  return records_at_stop(truth != 0), nothing();
}

PyObject* agent_ask(PyObject*, PyObject* args) {
  const char* lines;
  Py_ssize_t bytes;
  if (!PyArg_ParseTuple(args, "y#", &lines, &bytes)) return nullptr;
  std::string why;
  const uint64_t number = ask({lines, static_cast<std::size_t>(bytes)}, &why);
  return Py_BuildValue("Ks", static_cast<unsigned long long>(number), why.c_str());
}

PyObject* agent_ask_at(PyObject*, PyObject* args) {
  unsigned long long step;
  int begins;
  const char* lines;
  Py_ssize_t bytes;
  if (!PyArg_ParseTuple(args, "Kpy#", &step, &begins, &lines, &bytes)) return nullptr;
  return ask_at(step, begins != 0, {lines, static_cast<std::size_t>(bytes)}), nothing();
}

PyObject* agent_came_of(PyObject*, PyObject* number) {
  const unsigned long long asked = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred()) return nullptr;
  std::string capture, why;
  if (!came_of(asked, &capture, &why)) return nothing();
  // What a daemon said need not be UTF-8.
  PyObject* id = PyUnicode_DecodeUTF8(capture.data(), static_cast<Py_ssize_t>(capture.size()), "replace");
  PyObject* text = PyUnicode_DecodeUTF8(why.data(), static_cast<Py_ssize_t>(why.size()), "replace");
  if (id && text) return Py_BuildValue("NN", id, text);
  Py_XDECREF(id), Py_XDECREF(text);
  return nullptr;
}

PyObject* agent_state(PyObject*, PyObject*) {
  const Snapshot now = snapshot();
  // What a daemon said need not be UTF-8.
  PyObject* why = PyUnicode_DecodeUTF8(now.why, static_cast<Py_ssize_t>(std::strlen(now.why)), "replace");
  return why ? Py_BuildValue("sNK", word(now.state), why, static_cast<unsigned long long>(now.epoch)) : nullptr;
}

PyMethodDef methods[] = {
    {"agent_start", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(agent_start)),
     METH_VARARGS | METH_KEYWORDS, nullptr},
    {"agent_stop", agent_stop, METH_O, nullptr},
    {"agent_pause", agent_pause, METH_NOARGS, nullptr},
    {"agent_resume", agent_resume, METH_NOARGS, nullptr},
    {"agent_start_in_child", agent_start_in_child, METH_NOARGS, nullptr},
    {"agent_describe", agent_describe, METH_VARARGS, nullptr},
    {"agent_note", agent_note, METH_VARARGS, nullptr},
    {"agent_begun", agent_begun, METH_O, nullptr},
    {"agent_finish", agent_finish, METH_O, nullptr},
    {"agent_records_at_stop", agent_records_at_stop, METH_O, nullptr},
    {"agent_ask", agent_ask, METH_VARARGS, nullptr},
    {"agent_ask_at", agent_ask_at, METH_VARARGS, nullptr},
    {"agent_came_of", agent_came_of, METH_O, nullptr},
    {"agent_state", agent_state, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace
}  // namespace profd::agent

int add_agent(PyObject* module) { return PyModule_AddFunctions(module, profd::agent::methods); }

// The engines of this process: one a device, and one for each folder of the user's ops there. Made at first use.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python.hpp"

namespace kiln_python {

/// What kiln.configure() sets. Nothing: the library's default.
struct Settings {
  std::optional<std::string> overlay, worker, nvrtc, remote, signing_key;
  std::vector<std::string> bases, trusted_keys;
  std::optional<int> on_miss, compile, trust, isolation, compile_workers, compile_ahead;
  std::optional<bool> require_bases, histogram;
  std::optional<std::int64_t> workspace_limit_bytes, overlay_limit_bytes, search_trials, search_time_limit_ms;
};
/// Throws kiln.Error once an engine is made.
void configure(Settings settings);

/// A name that a call may give.
struct Name {
  enum class Kind { tensor, axis, selection, value };
  nb::object text;  // interned
  Kind kind;
  std::uint32_t id;
  bool output;
};

/// The value of an axis, a selection or a run-time value in a call. Without initialisers, since calls have many to spare.
struct Scalar {
  std::uint32_t name;  // of Bound::names
  bool is_real;
  std::int64_t integer;
  double real;
  PyObject* word;  // a str, borrowed; null: a number
};

/// An op of one engine. Handles live until the process ends.
struct Bound {
  kiln_engine* engine = nullptr;
  kiln_op* op = nullptr;
  int device = 0;
  std::vector<Name> names;
  /// What calls with these scalars begin with.
  struct Ready {
    std::vector<Scalar> scalars;
    std::vector<nb::object> words;  // keeps those of `scalars`
    kiln_binding binding;
  };
  std::vector<Ready> ready;  // the last few
  std::size_t next = 0;      // to be replaced
};

/// The op of this name; `folder` is where the user's ops lie, or empty. Makes what is missing, for which it blocks.
Bound& bound_op(const std::string& name, const std::string& folder, int device);
/// The device of the calling thread's current context; 0 without one.
int current_device();
/// The device that has this memory, or KILN_DEVICE_UNKNOWN; nothing where the driver knows no such memory.
std::optional<int> device_of(const void* address);

struct Engine {
  int device;
  std::string folder;
  kiln_engine* handle;
};
std::vector<Engine> engines();

/// The team of this process, which engines of its device take. Throws kiln.Error where there is one, or an engine.
void refuse_second_team();
void set_team(kiln_team* team, int device);
/// A tuner ends before its engine does: at its owner's end, or at the interpreter's.
void add_tuner(kiln_tuner* tuner);
void destroy_tuner(kiln_tuner* tuner) noexcept;

/// Throws kiln.Error at the interpreter's end, and in a child that was forked from a process with engines.
void refuse_if_over();
/// Whether it would.
bool is_over() noexcept;
void enter_call() noexcept;
void leave_call() noexcept;
/// Hands what tunes had to say to the log.
void tell();
/// Where engines that are made later take workspaces from; kiln_options says more. `user` is the device's ordinal.
void set_allocator(void* (*allocate)(std::size_t, kiln_stream, std::int32_t, void*),
                   void (*free)(void*, std::size_t, kiln_stream, void*));
/// At the interpreter's end: stops background work and writes counts.
void end();

/// Gives the module the address of kiln.torch's functions, which table.hpp lists.
void add_table(nb::module_& module);

}  // namespace kiln_python

// A module that uses Kiln, as a plug-in or a language's extension does. Its functions say what they find, as text.
#include <dlfcn.h>

#include <unistd.h>

#include <atomic>
#include <kiln/kiln.hpp>
#include <memory>
#include <string>

#define MODULE_API extern "C" __attribute__((visibility("default")))

namespace {

/// An engine in use, and what it said.
struct Use {
  kiln::Engine engine;
  std::string said;
};

std::string refusal(const kiln::Engine& engine) {
  try {
    return std::string(engine.op("no such op").name());
  } catch (const kiln::Error& error) {
    return std::string(to_string(error.kind()));
  }
}

}  // namespace

/// The file that holds the Kiln which this module calls.
MODULE_API const char* where() {
  Dl_info info{};
  std::string_view (*function)(kiln::ErrorKind) noexcept = &kiln::to_string;
  return dladdr(reinterpret_cast<void*>(function), &info) != 0 ? info.dli_fname : "";
}

/// Makes an engine with default options, but nothing on disk; `said` is valid until end().
MODULE_API void* begin(const char** said) try {
  kiln::Options options;
  options.overlay = "";
  auto* use = new Use{kiln::Engine(options), {}};
  const kiln::Op op = use->engine.op("rms_norm");
  const kiln::Problem problem = op.problem({{"rows", 137}, {"cols", 4096}});
  use->said = refusal(use->engine) + ", " + use->engine.explain(op, problem).implementation;
  *said = use->said.c_str();
  return use;
} catch (const kiln::Error& error) {
  static std::string why;
  why = error.what();
  *said = why.c_str();
  return nullptr;
}

/// Makes an engine that shares this folder, and has it ask there for a bucket.
MODULE_API void* begin_sharing(const char* folder, const char** said) try {
  kiln::Options options;
  options.overlay = "";
  options.remote = folder;
  options.on_miss = kiln::MissPolicy::error;
  auto* use = new Use{kiln::Engine(options), {}};
  try {
    const kiln::Op op = use->engine.op("rms_norm");
    static_cast<void>(op.plan(op.problem({{"rows", 137}, {"cols", 4096}})));
  } catch (const kiln::Error& error) {
    use->said = to_string(error.kind());
  }
  *said = use->said.c_str();
  return use;
} catch (const kiln::Error& error) {
  static std::string why;
  why = error.what();
  *said = why.c_str();
  return nullptr;
}

/// Makes an engine that tunes in the background, and has a callback of the tune drop it there. Returns whether it did.
MODULE_API int drop_within_tune(const char* ops, const char* worker, const char** said) try {
  struct Dropped {
    std::unique_ptr<kiln::Engine> engine;
    std::atomic<bool> is_last = false, is_done = false;
  };
  auto* dropped = new Dropped;  // never deleted: the tune goes on
  kiln::Options options;
  options.overlay = "";
  options.on_miss = kiln::MissPolicy::background;
  options.template_paths = {ops};
  options.worker = worker;
  options.on_tune = [dropped](const kiln::TuneEvent&) {
    while (!dropped->is_last) usleep(1000);
    dropped->engine.reset();
    dropped->is_done = true;
  };
  dropped->engine = std::make_unique<kiln::Engine>(options);
  {
    const kiln::Op op = dropped->engine->op("scale");
    static_cast<void>(op.plan(op.problem({{"rows", 64}, {"cols", 128}, {"dtype", "f32"}})));
  }
  dropped->is_last = true;
  for (int waits = 0; !dropped->is_done && waits < 30000; ++waits) usleep(1000);
  usleep(100'000);  // the callback returns from this module into Kiln
  return dropped->is_done ? 1 : 0;
} catch (const kiln::Error& error) {
  static std::string why;
  why = to_string(error.kind());
  *said = why.c_str();
  return 0;
}

MODULE_API void end(void* use) { delete static_cast<Use*>(use); }

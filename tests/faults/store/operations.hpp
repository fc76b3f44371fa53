// All that is done with a .kiln file, each as one step that can be run under a fault.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "store/file.hpp"

namespace kiln::store {

enum class Outcome : std::uint8_t {
  done,     // all of it happened, and every row that was read was right
  missed,   // an answer was a miss, and counted by reason; or the change serves from memory, with a warning
  refused,  // a kiln::Error
  wrong,    // none of these
};

/// One run: what was opened before the fault, and the folder that all happens in.
struct Scene {
  std::filesystem::path folder;
  std::unique_ptr<File> file;  // folder / "a.kiln", unless the operation opens it itself
  std::string said;            // the error, the warning, or what was wrong
};

struct Operation {
  std::string name;
  std::function<void(const std::filesystem::path& folder)> prepare;
  bool opens_itself = false;
  std::function<Outcome(Scene&)> work;
};

std::span<const Operation> operations();

/// Opens what the operation wants open.
Scene make_scene(const Operation& operation, const std::filesystem::path& folder);
/// Runs it; an Error is Outcome::refused.
Outcome run(const Operation& operation, Scene& scene);

}  // namespace kiln::store

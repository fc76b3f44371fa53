// The global options, and what commands derive from them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/engine.hpp"
#include "kiln/error.hpp"
#include "kiln/options.hpp"
#include "manifest/catalogue.hpp"
#include "store/layers.hpp"
#include "store/transfer.hpp"
#include "store/trust.hpp"

namespace kiln::cli {

struct Globals {
  bool json = false;
  bool quiet = false;
  int device = 0;
  std::optional<std::string> overlay;
  std::vector<std::string> bases;
  std::vector<std::string> templates;
  std::optional<std::string> trust;
  std::vector<std::string> trusted_keys;
  std::optional<std::string> remote;
};

/// The same options without notes: for what is told in another way.
Globals silenced(Globals globals);
/// Replaces bare names of bases by those of installed files (or_installed). Throws Error(bad_input) for a base, or a
/// folder of trusted keys or ops, that does not exist.
void find_paths(Globals& globals);
Options engine_options(const Globals& globals);
/// Notes each refused op but `asked`, which find_op refuses.
manifest::Catalogue load_ops(const Globals& globals, std::string_view asked = {});
store::LayerSettings layer_settings(const Globals& globals);
/// True when the overlay is in memory because its path is empty: --overlay "" or KILN_CACHE="".
bool wants_no_overlay(const Globals& globals);
/// Returns the trust that decides whether another file's machine code is copied.
store::CodeTrust code_trust(const Globals& globals);
/// Throws Error(bad_file) when a base is refused, because the user named it. Notes on the standard error tell what else
/// could not be opened.
store::Layers open_layers(const Globals& globals);
/// For a command that only reads: throws as open_layers and require_readable_overlay do.
store::Layers open_layers_to_read(const Globals& globals);
/// Throws Error(bad_file) when a damaged overlay was just set aside, or when the one that --overlay or KILN_CACHE names
/// exists and cannot be read: an answer without its records would mislead.
void require_readable_overlay(const Globals& globals, const store::Layers& layers);
void say_warnings(const Globals& globals, const store::Layers& layers);
/// Notes an engine's warnings, each once: those of its files at once, and those of its launches when the command ends,
/// also by an error. Without one, the loss of tuned records is left to require_tunes_kept.
class EngineWarnings {
 public:
  EngineWarnings(const Globals& globals, const Engine& engine);
  ~EngineWarnings();
  EngineWarnings(const EngineWarnings&) = delete;
  EngineWarnings& operator=(const EngineWarnings&) = delete;

 private:
  const Globals& globals_;
  const Engine& engine_;
  std::vector<std::string> noted_;
  int exceptions_;  // in flight when it was made
};
/// For a command that shows or times records: throws Error(bad_input) where --overlay names a file that does not exist
/// and no base is read either. Beside bases, notes it.
void require_overlay(const Globals& globals);
/// For a command that counts what is missing, which may be asked before the first tune.
void note_missing_overlay(const Globals& globals);

/// Throws Error(bad_input) where --remote names a shared store: with `options` a command asks files alone.
void refuse_remote(const Globals& globals, std::string_view options);

/// Calls `act`. Appends `advice` to an Error of a machine that lacks a driver or a GPU.
template <class Act>
int or_advise(std::string_view advice, Act act) try {
  return act();
} catch (const Error& error) {
  if (error.kind() != ErrorKind::no_driver && error.kind() != ErrorKind::no_device) throw;
  throw Error(error.kind(), std::string(error.what()).append("\n").append(advice));
}

/// Throws Error(bad_file) for text of records whose name is not that of text, by which it would be read.
void refuse_text_by_other_name(const std::filesystem::path& path);

/// Opens a .kiln file, or reads text into a .kiln file in memory.
std::unique_ptr<store::File> open_records(const std::filesystem::path& path);

}  // namespace kiln::cli

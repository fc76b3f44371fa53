#include "cli/session.hpp"
#include "cli/installed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <fstream>

#include "cli/output.hpp"
#include "kiln/error.hpp"
#include "kiln/tuner.hpp"
#include "manifest/environment.hpp"
#include "manifest/text.hpp"
#include "store/custody.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> paths_of(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

TrustPolicy policy_of(const Globals& globals) {
  return globals.trust ? store::parse_trust_policy(*globals.trust, "--trust") : store::trust_policy(std::nullopt);
}

/// Whether --overlay names a file that does not exist.
bool lacks_overlay(const Globals& globals) {
  std::error_code failure;  // of a path that cannot be looked at, which is told by who opens it
  return globals.overlay && !globals.overlay->empty() && !fs::exists(*globals.overlay, failure) && !failure;
}

void require_bases(const store::Layers& layers) {
  for (const store::Layer& layer : layers.layers())
    if (layer.kind == store::LayerKind::base && !layer.refused.empty())
      throw Error(ErrorKind::bad_file, fmt::format("a base cannot be used: {}", layer.refused));
}

}  // namespace

Globals silenced(Globals globals) {
  globals.quiet = true;
  return globals;
}

void find_paths(Globals& globals) {
  // What is written there could not be read as a base: its name is that of text.
  const auto overlay = layer_settings(globals).overlay;
  if (std::error_code failure; overlay && store::is_text(*overlay) && !fs::exists(*overlay, failure) && !failure)
    throw Error(ErrorKind::bad_input,
                fmt::format("the overlay {} does not exist, and would be a .kiln file under the name of text; name a "
                            "file that ends in .kiln",
                            overlay->string()));
  for (std::string& base : globals.bases) {
    base = or_installed(base);
    if (std::error_code failure; !fs::exists(base, failure) && !failure)
      throw Error(
          ErrorKind::bad_input,
          fmt::format("the base {} does not exist{}; give the path of a .kiln or .jsonl file", base, where_else(base)));
    refuse_text_by_other_name(base);
  }
  for (const std::string& folder : globals.trusted_keys)
    if (!fs::is_directory(folder))
      throw Error(ErrorKind::bad_input,
                  fmt::format("--trusted-keys {} is not a folder; give the folder with the NAME.pem files", folder));
  for (const std::string& folder : globals.templates)
    if (std::error_code unread; !fs::is_directory(folder, unread))
      throw Error(ErrorKind::bad_input,
                  fmt::format("--templates {} is not a folder; give the folder with the folders of ops", folder));
}

Options engine_options(const Globals& globals) {
  Options options;
  options.device = globals.device;
  options.compile_ahead = 0;  // a command knows what it launches
  if (globals.overlay) options.overlay = *globals.overlay;
  options.bases = paths_of(globals.bases);
  options.template_paths = paths_of(globals.templates);
  options.trust = policy_of(globals);
  options.trusted_keys = paths_of(globals.trusted_keys);
  options.remote = globals.remote;
  return options;
}

manifest::Catalogue load_ops(const Globals& globals, std::string_view asked) {
  manifest::Catalogue ops(paths_of(globals.templates));
  if (!globals.quiet)
    for (const manifest::RefusedOp& each : ops.refused())
      if (each.name != asked) note(fmt::format("the op {} is left out: {}", manifest::quote(each.name), each.why));
  if (!globals.quiet)
    for (const std::string& warning : store::ops_of_others(ops)) note(warning);
  return ops;
}

store::LayerSettings layer_settings(const Globals& globals) {
  return {globals.overlay ? std::optional<fs::path>(*globals.overlay) : store::default_overlay(),
          paths_of(globals.bases), policy_of(globals), store::key_folders(paths_of(globals.trusted_keys)),
          Options{}.overlay_limit_bytes};
}

bool wants_no_overlay(const Globals& globals) {
  const auto overlay = layer_settings(globals).overlay;
  return overlay && overlay->empty();
}

store::CodeTrust code_trust(const Globals& globals) {
  std::vector<std::string> warnings;
  store::CodeTrust trust{policy_of(globals),
                         store::KeyRing::read(store::key_folders(paths_of(globals.trusted_keys)), warnings)};
  if (!globals.quiet)
    for (const std::string& warning : warnings) note(warning);
  return trust;
}

store::Layers open_layers(const Globals& globals) {
  store::Layers layers(layer_settings(globals));
  require_bases(layers);
  say_warnings(globals, layers);
  return layers;
}

store::Layers open_layers_to_read(const Globals& globals) {
  store::Layers layers(layer_settings(globals));
  require_bases(layers);
  require_readable_overlay(globals, layers);
  say_warnings(globals, layers);
  return layers;
}

void require_readable_overlay(const Globals& globals, const store::Layers& layers) {
  const std::span<const store::Layer> found = layers.layers();
  const store::Layer& overlay = found.front();
  if (!overlay.set_aside.empty()) throw Error(ErrorKind::bad_file, overlay.set_aside);
  const bool is_named = globals.overlay || manifest::has_variable("KILN_CACHE");
  if (!is_named || overlay.refused.empty() || overlay.path.empty() || store::is_missing(overlay.path)) return;
  const bool is_read_as_base = std::any_of(found.begin() + 1, found.end(), [&](const store::Layer& each) {
    return each.file && store::identity_of(each.path) == store::identity_of(overlay.path);
  });
  if (!is_read_as_base)
    throw Error(ErrorKind::bad_file,
                fmt::format("the overlay cannot be used, and nothing that it holds is read: {}; "
                            "name a file that can be read, or leave the overlay out by --overlay \"\"",
                            overlay.refused));
}

void note_missing_overlay(const Globals& globals) {
  if (lacks_overlay(globals) && !globals.quiet)
    note(fmt::format("the overlay {} does not exist, so nothing is read from it", *globals.overlay));
}

void require_overlay(const Globals& globals) {
  if (lacks_overlay(globals) && globals.bases.empty())
    throw Error(ErrorKind::bad_input, fmt::format("the overlay {} does not exist and holds no record; give the path of "
                                                  "a file of records, or leave --overlay out",
                                                  *globals.overlay));
  note_missing_overlay(globals);
}

void say_warnings(const Globals& globals, const store::Layers& layers) {
  if (globals.quiet) return;
  for (const std::string& warning : layers.warnings()) note(warning);
}

void refuse_remote(const Globals& globals, std::string_view options) {
  if (globals.remote && !globals.remote->empty())
    throw Error(ErrorKind::bad_input,
                fmt::format("with {} no shared store is asked; leave --remote out, and take the store's records into "
                            "the overlay first: kiln cache pull --remote ADDRESS",
                            options));
}

EngineWarnings::EngineWarnings(const Globals& globals, const Engine& engine)
    : globals_(globals), engine_(engine), noted_(engine.warnings()), exceptions_(std::uncaught_exceptions()) {
  if (globals_.quiet) return;
  for (const std::string& warning : noted_) note(warning);
}

EngineWarnings::~EngineWarnings() {
  if (globals_.quiet) return;
  try {
    const bool is_told = std::uncaught_exceptions() == exceptions_;  // by require_tunes_kept
    const std::string lost =
        is_told && engine_.stats().tunes > 0 && !wants_no_overlay(globals_) ? Tuner(engine_).not_kept() : std::string();
    for (const std::string& warning : engine_.warnings())
      if (std::ranges::find(noted_, warning) == noted_.end() && (lost.empty() || !warning.starts_with(lost)))
        note(warning);
  } catch (...) {  // the command's own error is told instead
  }
}

void refuse_text_by_other_name(const fs::path& path) {
  constexpr std::string_view beginning = "{\"key\":";
  std::error_code ignored;
  if (store::is_text(path) || !fs::is_regular_file(path, ignored)) return;
  std::string text(beginning.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  if (file.read(text.data(), static_cast<std::streamsize>(text.size())) && text == beginning)
    throw Error(
        ErrorKind::bad_file,
        fmt::format("'{}' is text of records, and a file is read as such when its name ends in .jsonl; rename it",
                    path.string()));
}

std::unique_ptr<store::File> open_records(const fs::path& path) {
  refuse_absent(path.string());
  refuse_text_by_other_name(path);
  return store::is_text(path) ? store::read_text(path) : store::File::open(path, store::Access::read_only);
}

}  // namespace kiln::cli

// What the parts of kiln cache share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "store/layers.hpp"

namespace kiln::cli {

std::string name_of(const store::Layer& layer);  // "overlay /home/u/.cache/kiln/overlay.kiln"

struct NamedFile {
  std::string name;
  std::unique_ptr<store::File> owned;
  store::File* file = nullptr;
};
/// `file` alone when it is given, else the overlay and the bases, which `layers` then holds.
std::vector<NamedFile> files_to_show(const Globals& globals, const std::string& file,
                                     std::optional<store::Layers>& layers);

/// The ops by whose defaults stored problems are shortened for people; none when a manifest does not load, as kiln doctor tells.
std::vector<manifest::Op> ops_for_display(const Globals& globals);

/// Throws Error(bad_input), naming the nearest, for an op that neither is loaded nor has a row in these files. Empty: any.
void check_op(const Globals& globals, const std::vector<NamedFile>& files, const std::string& op);

/// `file`, or the overlay when it is empty, for writing. Throws Error(bad_input) when there is none, and as File::open does.
std::unique_ptr<store::File> open_to_change(const Globals& globals, const std::string& file);

/// For people: machine code and rows that a transfer did not take along. `what` names the file or files.
void say_left_behind(const Globals& globals, const std::string& what, std::int64_t untrusted_cubins);
void say_flawed(const Globals& globals, const std::string& path, std::int64_t rows);

void add_cache_stats(CLI::App& cache, Chosen& chosen);
void add_cache_show(CLI::App& cache, Chosen& chosen);
void add_cache_diff(CLI::App& cache, Chosen& chosen);
void add_cache_export(CLI::App& cache, Chosen& chosen);
void add_cache_merge(CLI::App& cache, Chosen& chosen);  // and import
void add_cache_prune(CLI::App& cache, Chosen& chosen);
void add_cache_compact(CLI::App& cache, Chosen& chosen);
void add_cache_verify(CLI::App& cache, Chosen& chosen);
void add_cache_sign(CLI::App& cache, Chosen& chosen);

}  // namespace kiln::cli

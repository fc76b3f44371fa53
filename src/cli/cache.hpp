// Functions that the commands of kiln cache share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "store/layers.hpp"

namespace kiln::cli {

struct NamedFile {
  std::string name;
  std::unique_ptr<store::File> owned;
  store::File* file = nullptr;
};
/// Returns `file` alone when it is given, else the overlay and the bases, which `layers` then owns. Throws
/// Error(bad_file) when one of them is damaged beyond single rows, so that no list leaves out rows in silence,
/// and Error(bad_input) where --overlay or --base names files beside `file`.
std::vector<NamedFile> files_to_show(const Globals& globals, const std::string& file,
                                     std::optional<store::Layers>& layers);

/// The ops by whose defaults stored problems are shortened for people; none when a manifest does not load, as kiln
/// doctor tells.
manifest::Catalogue ops_for_display(const Globals& globals);

/// Throws Error(bad_input), with the nearest name, for an op that is neither loaded nor in these files. An empty `op`
/// passes.
void check_op(const Globals& globals, const std::vector<NamedFile>& files, const std::string& op);

/// Opens `file`, or the overlay when it is empty, for writing. Throws Error(bad_input) when it does not exist, and as
/// File::open does.
std::unique_ptr<store::File> open_to_change(const Globals& globals, const std::string& file);

/// Print a note about machine code or rows that a transfer did not copy. `what` names the files.
void say_left_behind(const Globals& globals, const std::string& what, std::int64_t untrusted_cubins);
void say_flawed(const Globals& globals, const std::string& path, std::int64_t rows);

/// The records of the shared store as a file in memory; of one op, or of all where it is empty.
NamedFile shared_records(const Globals& globals, const std::string& op);

void add_cache_stats(CLI::App& cache, Chosen& chosen);
void add_cache_show(CLI::App& cache, Chosen& chosen);
void add_cache_diff(CLI::App& cache, Chosen& chosen);
void add_cache_export(CLI::App& cache, Chosen& chosen);
void add_cache_merge(CLI::App& cache, Chosen& chosen);  // and import
void add_cache_prune(CLI::App& cache, Chosen& chosen);
void add_cache_compact(CLI::App& cache, Chosen& chosen);
void add_cache_verify(CLI::App& cache, Chosen& chosen);
void add_cache_sign(CLI::App& cache, Chosen& chosen);
void add_cache_push(CLI::App& cache, Chosen& chosen);  // and pull

}  // namespace kiln::cli

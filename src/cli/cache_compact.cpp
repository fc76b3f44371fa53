// kiln cache compact: returns free pages to the file system.
#include "cli/cache_compact.hpp"

#include <fmt/format.h>

#include "cli/cache.hpp"
#include "cli/output.hpp"
#include "cli/units.hpp"

namespace kiln::cli {

Compacted compact(store::File& file) {
  const std::int64_t before = file.stats().file_bytes;
  file.compact();
  return {before, file.stats().file_bytes};
}

namespace {

struct CacheCompactSettings {
  std::string file;
};

void declare(CLI::App& command, CacheCompactSettings& settings) {
  command.add_option("file", settings.file, "This file instead of the overlay")->type_name("FILE");
}

int run(const Globals& globals, const CacheCompactSettings& settings) {
  const auto file = open_to_change(globals, settings.file);
  const Compacted bytes = compact(*file);
  if (globals.json)
    print_json({{"event", "compacted"},
                {"file", file->path().string()},
                {"bytes_before", bytes.before},
                {"bytes", bytes.after}});
  else
    print(fmt::format("{}: {} before, {} now\n", file->path().string(), format_bytes(bytes.before),
                      format_bytes(bytes.after)));
  return exit_good;
}

}  // namespace

void add_cache_compact(CLI::App& cache, Chosen& chosen) {
  CLI::App* command =
      add_command<CacheCompactSettings>(cache, chosen, "compact", "Return free pages to the file system", declare, run);
  command->footer(
      "Rows and seal do not change. Needs as much free space as the file takes, and waits up to 5 seconds for other processes\n"
      "that use it.\nExample:\n  kiln cache compact        your overlay");
}

}  // namespace kiln::cli

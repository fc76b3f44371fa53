#include "cli/damaged_rows.hpp"

#include <fmt/format.h>

#include "cli/next_step.hpp"
#include "cli/output.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "store/merge_order.hpp"

namespace kiln::cli {

/// A file that is open for reading only counts a row at each look-up that meets it, so its records are counted here. An
/// overlay sets it aside, and counts it once.
std::int64_t damaged_rows(store::File& file) {
  const std::int64_t met = file.counters().quarantined;
  if (met == 0) return 0;
  try {
    std::int64_t left = file.stats().records;
    for (store::Cursor<store::Record> sound(file); sound.front() != nullptr; (void)sound.take()) --left;
    return left > 0 ? left : met;
  } catch (const Error&) {  // a page that cannot be read
    return met;
  }
}

std::int64_t damaged_rows(const store::Layers& layers) {
  std::int64_t rows = 0;
  for (const store::Layer& layer : layers.layers())
    if (layer.file) rows += damaged_rows(*layer.file);
  return rows;
}

void say_damaged(const Globals& globals, store::File& file) {
  const std::int64_t rows = globals.quiet ? 0 : damaged_rows(file);
  if (rows == 0) return;
  const std::string path = file.path().string();
  note(fmt::format("{} of {} {} not hold and {} as absent; kiln cache verify {} says more", counted(rows, "row"), path,
                   verb(rows, "does", "do"), verb(rows, "counts", "count"), shell_word(path)));
}

void say_damaged(const Globals& globals, const store::Layers& layers) {
  for (const store::Layer& layer : layers.layers())
    if (layer.file) say_damaged(globals, *layer.file);
}

}  // namespace kiln::cli

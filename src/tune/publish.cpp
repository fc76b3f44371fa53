// What a tune leaves in the overlay: records with the machine code that serves them.
#include <set>

#include "tune/deploy.hpp"
#include "tune/tuner.hpp"

namespace kiln::tune {
namespace {

/// A default that does not compile cannot stand in.
void add_row(std::vector<store::CubinRow>& rows, const jit::Specialisation& needed, Cubins& cubins) {
  try {
    rows.push_back(to_row(needed, cubins.get(needed)));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it is left out
  }
}

}  // namespace

void publish(const TuneRequest& request, const TuneResult& result, Cubins& cubins) {
  std::vector<store::CubinRow> rows;
  std::set<std::string> labels;
  for (const Made& each : result.made)
    if (labels.insert(each.specialisation.label).second) rows.push_back(to_row(each.specialisation, each.cubin));
  for (const jit::Specialisation& needed :
       deployed(request.op, request.bucket, request.device.facts, request.arch, &result.record))
    if (labels.insert(needed.label).second) add_row(rows, needed, cubins);
  cubins.layers().put_all({&result.record, 1}, rows);
}

}  // namespace kiln::tune

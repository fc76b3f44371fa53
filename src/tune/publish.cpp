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
  std::vector<store::Record> records{result.record};
  if (result.runner_up) records.push_back(*result.runner_up);
  std::vector<store::CubinRow> rows;
  if (!result.specialisation.is_library()) rows.push_back(to_row(result.specialisation, result.cubin));
  std::set<std::string> labels{result.specialisation.label};
  for (const store::Record& record : records)
    for (const jit::Specialisation& needed :
         deployed(request.op, request.bucket, request.device.facts, request.arch, &record))
      if (labels.insert(needed.label).second) add_row(rows, needed, cubins);
  cubins.layers().put_anew(records, rows);
}

void publish_split(const spec::Op& op, const spec::DeviceFacts& device, const std::string& arch,
                   const store::Found<store::Record>& whole, std::span<const LowerPart> lower, Cubins& cubins) {
  store::Layers& layers = cubins.layers();
  std::vector<store::Record> records;
  const auto add_stored = [&](store::Found<store::Record> stored) {
    stored.value.candidates = layers.candidates_of(stored);
    records.push_back(std::move(stored.value));
  };
  add_stored(whole);
  for (store::Record& beside : layers.records_under(whole))
    if (beside.key == spec::runner_up_key(whole.value.key)) add_stored({std::move(beside), whole.layer});
  std::vector<store::CubinRow> rows;
  const auto add = [&](const store::Record& record, const Problem& edge) {
    records.push_back(record);
    for (const jit::Specialisation& needed : deployed(op, edge, device, arch, &record)) add_row(rows, needed, cubins);
  };
  for (const LowerPart& part : lower) {
    add(part.record, part.edge);
    if (part.runner_up) add(*part.runner_up, part.edge);
  }
  layers.put_anew(records, rows);
}

}  // namespace kiln::tune

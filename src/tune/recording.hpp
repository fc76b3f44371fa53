// What a tune asked of its machine and was answered, as a line of JSON. Repeated by tune/replay.hpp.
//
//   {"op","bucket","key","device_class","device","driver","arch","regime","strategy","trials","seed","compiles_at_once","out_of_time",
//    "near": [record as cache export --text has it], "uncompiled": {label: reason},
//    "proposals": [{"implementation","at","most","configs": [text]}], "refusals": [{"implementation","at","config","why"}],
//    "admissions": [{"implementation","config","at","verdict","reason","registers","spill_bytes"}],
//    "points": [{"implementation","config","at","chain","ns": [time of each run, in order],"failure"}],
//    "choices": [{"role","sizes","implementation","config"}]}
// A point that is not legal has no times. Runs that warm the device up are left out, since a clock decides on them.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "team/descriptor.hpp"
#include "tune/machine.hpp"
#include "tune/request.hpp"

namespace kiln::tune {

using SampleJson = nlohmann::ordered_json;

/// Names a candidate at sizes, in a record and where it is looked up.
std::string point_name(const manifest::Op& op, const manifest::Variant& variant, const Problem& at);

SampleJson to_samples_json(const store::Record& record);  // the array "choices"

/// Opens a file to which samples are appended, and makes it where it is missing. Throws Error(io).
team::Descriptor open_samples(const std::filesystem::path& file);

/// Gives what another machine gives, and keeps it. Both must outlive it.
class Recording final : public Machine {
 public:
  Recording(const TuneRequest& request, Machine& machine);
  ~Recording() override;

  std::vector<store::Record> near_records(std::size_t at_most) override;
  Libraries& libraries() override;
  std::size_t compiles_at_once() override { return machine_.compiles_at_once(); }
  void prefetch(const jit::Specialisation& specialisation) override { machine_.prefetch(specialisation); }
  answer::KeyedCubin compiled(const jit::Specialisation& specialisation) override;
  std::unique_ptr<Bench> bench() override;
  void note_time_limit() override;

  /// Appends the line, with what the tune chose. Returns why it cannot, or an empty string.
  [[nodiscard]] std::string append_to(const team::Descriptor& samples, const store::Record& record) const;

  class Proposed;
  class Sampled;

 private:
  void admitted(const Trial& trial, const Admission& admission);
  void sampled(const std::string& name, SampleJson point, const Samples& samples);

  const TuneRequest& request_;
  Machine& machine_;
  std::unique_ptr<Libraries> libraries_;
  SampleJson line_;
  std::map<std::string, std::size_t> points_;  // places in line_["points"], by name
};

}  // namespace kiln::tune

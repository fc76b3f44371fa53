#include "cli/prune_rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <map>

#include "answer/stale.hpp"
#include "cli/output.hpp"
#include "cli/target.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "manifest/text.hpp"

namespace kiln::cli {
namespace {

/// A condition on rows. A row is deleted when it meets every condition.
struct Condition {
  std::function<bool(const store::Record&)> record;
  std::function<bool(const store::PackedCubin&)> cubin;
};

/// Refuses an unknown op only when a known name is near, and notes any other: an op whose rows were all pruned before
/// is legal.
Condition of_op(const Globals& globals, const std::string& op, store::File& file) {
  std::vector<std::string> known = load_ops(globals).names();
  for (const store::OpBytes& each : file.bytes_by_op()) known.push_back(each.op);
  const auto meant = manifest::did_you_mean(op, known);
  if (std::find(known.begin(), known.end(), op) == known.end()) {
    const std::string why = fmt::format("the file holds no row of an op {}{}", manifest::quote(op), meant);
    if (!meant.empty()) throw Error(ErrorKind::bad_input, why);
    if (!globals.quiet) note(why + ", and no op of this name is loaded");
  }
  return {[op](const store::Record& record) { return record.op == op; },
          [op](const store::PackedCubin& cubin) { return cubin.op == op; }};
}

/// Returns 90 for "sm_90a", or 0 when it does not parse.
std::int64_t capability(const std::string& arch) {
  std::int64_t sm = 0;
  if (arch.starts_with("sm_")) std::from_chars(arch.data() + 3, arch.data() + arch.size(), sm);
  return sm;
}

/// Machine code runs on its own compute capability and on later minor versions of it.
bool runs_on(std::int64_t code, std::int64_t device) { return code / 10 == device / 10 && code <= device; }

std::int64_t capability_of_class(const std::string& device_class) {
  const auto facts = manifest::DeviceFacts::from_device_class(device_class);
  return facts ? facts->sm() : 0;
}

Condition of_device(const std::string& device_class, store::File& file) {
  std::vector<std::string> others = file.device_classes();
  if (std::erase_if(others, [&](const std::string& each) { return manifest::is_of_class(each, device_class); }) == 0 &&
      !manifest::DeviceFacts::from_device_class(device_class))
    throw Error(ErrorKind::bad_input, fmt::format("the file holds no record for the device class {}; it holds {}",
                                                  manifest::quote(device_class), fmt::join(others, ", ")));
  return {
      [device_class](const store::Record& record) { return manifest::is_of_class(record.device_class, device_class); },
      [device_class, others](const store::PackedCubin& cubin) {
        const std::int64_t code = capability(cubin.arch);
        return runs_on(code, capability_of_class(device_class)) &&
               std::none_of(others.begin(), others.end(),
                            [&](const std::string& each) { return runs_on(code, capability_of_class(each)); });
      }};
}

Condition of_other_devices(const Globals& globals) {
  const auto device = present_device(globals);
  if (!device)
    throw Error(
        ErrorKind::no_device,
        "--other-devices keeps the rows of the present GPU, and no GPU is present; give --device-class instead");
  return {[own = device->facts.device_class()](const store::Record& record) {
            return !manifest::is_of_class(record.device_class, own);
          },
          [sm = device->facts.sm()](const store::PackedCubin& cubin) {
            const std::int64_t code = capability(cubin.arch);
            return code > 0 && !runs_on(code, sm);
          }};
}

Condition unused_for(std::int64_t seconds, std::int64_t now, store::File& file) {
  std::map<std::pair<std::string, std::string>, std::int64_t> last_uses;
  for (const store::Usage& row : file.usage())
    if (row.source == "record" || row.source == "cubin") last_uses[{row.source, row.key}] = row.last_use;
  const auto stats = file.stats();
  if (last_uses.empty() && stats.records + stats.cubins > 0)
    throw Error(ErrorKind::bad_input,
                "--unused needs counts of use, which this file does not hold: it never was an overlay");
  const auto is_unused = [=, last_uses = std::move(last_uses)](const char* source, const std::string& key) {
    const auto found = last_uses.find({source, key});
    return found == last_uses.end() || now - found->second > seconds;
  };
  return {[is_unused](const store::Record& record) { return is_unused("record", record.key); },
          [is_unused](const store::PackedCubin& cubin) { return is_unused("cubin", manifest::to_hex(cubin.key)); }};
}

/// Decides which rows are stale. The slow part runs once for each record, before the file is locked.
class Judging {
 public:
  Judging(const Globals& globals, store::File& file) : ops_(load_ops(globals)) {
    for (const store::Record& record : file.records()) is_stale(record);
  }
  bool is_stale(const store::Record& record) {
    std::string identity = record.key;
    for (const store::Choice& each : record.choices)
      identity += fmt::format("\n{}\n{}\n{}\n{}", each.sizes, each.implementation, each.config, each.source_digest);
    const auto [found, fresh] = known_.try_emplace(std::move(identity));
    if (fresh) found->second = answer::freshness_of(ops_, record);
    return found->second == answer::Freshness::stale;
  }
  [[nodiscard]] bool is_stale(const store::PackedCubin& cubin) const {
    return answer::freshness_of(ops_, cubin) == answer::Freshness::stale;
  }

 private:
  manifest::Catalogue ops_;
  std::map<std::string, answer::Freshness> known_;  // by key and content: a new tune of a key is judged again
};

void check(const PruneWords& words) {
  if (words.unused.empty() && words.op.empty() && words.device_class.empty() && words.max_size.empty() &&
      !words.stale && !words.other_devices)
    throw Error(
        ErrorKind::bad_input,
        "nothing says what to delete; give --unused, --stale, --op, --device-class, --other-devices or --max-size");
  if (words.other_devices && !words.device_class.empty())
    throw Error(ErrorKind::bad_input, "--device-class and --other-devices exclude each other; give one of them");
}

}  // namespace

std::unique_ptr<ChosenRows> choose_rows(const Globals& globals, const PruneWords& words, store::File& file) {
  check(words);
  auto chosen = std::make_unique<ChosenRows>();
  store::PruneRule& rule = chosen->rule;
  rule.now = std::time(nullptr);
  if (!words.max_size.empty()) rule.max_bytes = parse_bytes(words.max_size, "--max-size");
  rule.must_reach = true;
  std::vector<Condition> conditions;
  if (!words.unused.empty()) conditions.push_back(unused_for(parse_seconds(words.unused, "--unused"), rule.now, file));
  if (!words.op.empty()) conditions.push_back(of_op(globals, words.op, file));
  if (!words.device_class.empty()) conditions.push_back(of_device(words.device_class, file));
  if (words.other_devices) conditions.push_back(of_other_devices(globals));
  if (words.stale) {
    const auto judging = std::make_shared<Judging>(globals, file);
    conditions.push_back({[judging](const store::Record& record) { return judging->is_stale(record); },
                          [judging](const store::PackedCubin& cubin) { return judging->is_stale(cubin); }});
  }
  if (conditions.empty()) return chosen;
  rule.record = [conditions, keys = &chosen->records](const store::Record& record) {
    const bool goes =
        std::all_of(conditions.begin(), conditions.end(), [&](const Condition& each) { return each.record(record); });
    if (goes) keys->push_back(record.key);
    return goes;
  };
  rule.cubin = [conditions](const store::PackedCubin& cubin) {
    return std::all_of(conditions.begin(), conditions.end(), [&](const Condition& each) { return each.cubin(cubin); });
  };
  return chosen;
}

}  // namespace kiln::cli

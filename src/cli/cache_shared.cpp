// kiln cache push and kiln cache pull: between files of records and the store that machines share.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "answer/machine_code.hpp"
#include "answer/serving.hpp"
#include "cli/cache.hpp"
#include "cli/damaged_rows.hpp"
#include "cli/installed.hpp"
#include "cli/output.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "manifest/op_bucket.hpp"
#include "remote/open.hpp"
#include "store/merge_order.hpp"

namespace kiln::cli {
namespace {

constexpr std::chrono::minutes limit{5};  // of one space's list, and of what is written at once

/// A record's bucket on the device that it is for; nothing where no op here has it.
struct RecordBucket {
  manifest::DeviceFacts facts;
  manifest::Bucket bucket;
};
std::unique_ptr<RecordBucket> bucket_of(const manifest::Catalogue& ops, const store::Record& record) try {
  const manifest::Op* const op = ops.op(record.op);
  const auto edge = op != nullptr ? manifest::parse_bucket(*op, record.bucket) : std::nullopt;
  const auto facts = manifest::DeviceFacts::from_device_class(record.device_class);
  if (!edge || !facts) return nullptr;
  auto found = std::make_unique<RecordBucket>();
  found->facts = *facts;
  for (const Regime regime : {Regime::cold_l2, Regime::hot_l2}) {
    found->bucket = manifest::Bucket({*op, found->facts, regime}, *edge);
    if (found->bucket.key() == record.key) return found;
  }
  return nullptr;
} catch (const Error&) {
  return nullptr;
}

/// The shared store as a command has it: without limits of a launch, and every failure an Error.
class Shared {
 public:
  Shared(const Globals& globals, const std::string& signing_key) : ops_(load_ops(globals)) {
    FileOptions options = engine_options(globals);
    if (!signing_key.empty()) refuse_absent(signing_key);
    if (!signing_key.empty()) options.signing_key = signing_key;
    const std::string address = remote::address_of(options);
    if (address.empty())
      throw Error(ErrorKind::bad_input, "no shared store is named; give --remote ADDRESS, or set KILN_REMOTE");
    std::vector<std::string> warnings;
    remote::ClientSettings settings = remote::client_settings(options, warnings);
    signs_ = settings.signer.has_value();
    settings.is_usable = [this](const store::Record& record) {
      const auto known = bucket_of(ops_, record);
      // What no op here has is checked by the machine that has it.
      return ops_.op(record.op) == nullptr || (known && answer::servings_of(known->bucket, record).any());
    };
    settings.warn = [quiet = globals.quiet](const std::string& warning) {
      if (!quiet) note(warning);
    };
    if (!globals.quiet)
      for (const std::string& each : warnings) note(each);
    std::unique_ptr<store::RemoteStore> store = remote::open(address);
    name_ = store->name();
    try {  // so that a wrong setting is an error, not an empty list
      spaces_ = store->spaces(std::chrono::steady_clock::now() + limit);
    } catch (const store::RemoteFailure& failure) {
      throw Error(ErrorKind::io, failure.what());
    }
    client_.emplace(std::move(store), std::move(settings));
  }

  /// Calls `use` with the rows of each space; of one op, or of all.
  template <class Use>
  void each_space(const std::string& op, Use&& use) {
    for (const std::string& space : spaces_)
      if (is_of(space, op)) use(client_->list(space, limit));
  }
  [[nodiscard]] bool has(const std::string& op) const {
    return std::ranges::any_of(spaces_, [&](const std::string& space) { return is_of(space, op); });
  }
  void publish(const store::Record& record, store::Layers& layers) {
    client_->publish(record, signs_ ? code_of(record, layers) : std::vector<store::CubinRow>());
    constexpr std::int64_t at_once = 256;
    if (++waiting_ % at_once == 0) finish();
  }
  void finish() {
    if (!client_->wait_until(std::chrono::steady_clock::now() + limit))
      throw Error(ErrorKind::io, fmt::format("{} does not take what is pushed in time", name_));
  }
  [[nodiscard]] remote::ClientCounters counters() const { return client_->counters(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  static bool is_of(const std::string& space, const std::string& op) {
    return op.empty() || space.starts_with(fmt::format("1|{}@", op));
  }
  /// What the record's answers load, of the layers that may supply machine code.
  std::vector<store::CubinRow> code_of(const store::Record& record, store::Layers& layers) {
    std::vector<store::CubinRow> rows;
    const auto of = bucket_of(ops_, record);
    if (!of) return rows;
    std::set<manifest::Digest> keys;
    for (const jit::Specialisation& needed :
         answer::code_needed(answer::resolve_with(of->bucket, record), jit::target_arch(of->facts.sm())))
      for (const std::string& compiler : layers.compilers()) {
        auto found = layers.find_cubin(jit::cubin_key(needed, compiler));
        if (found && keys.insert(found->value.key).second) rows.push_back(std::move(found->value));
      }
    return rows;
  }

  manifest::Catalogue ops_;
  std::string name_;
  bool signs_ = false;
  std::int64_t waiting_ = 0;
  std::vector<std::string> spaces_;
  std::optional<remote::Client> client_;  // last: its thread uses the others
};

struct SharedSettings {
  std::string op, key;
};

void declare_op(CLI::App& command, SharedSettings& settings) {
  command.add_option("--op", settings.op, "Only this op")->type_name("OP");
}

void declare_push(CLI::App& command, SharedSettings& settings) {
  declare_op(command, settings);
  command
      .add_option("--key", settings.key,
                  "The private Ed25519 key that signs what is pushed; else $KILN_SIGNING_KEY. Machine code needs one")
      ->type_name("KEY.pem");
}

int push(const Globals& globals, const SharedSettings& settings) {
  Shared shared(globals, settings.key);
  std::optional<store::Layers> layers;
  std::set<std::string> pushed;  // keys, of which the first layer's record counts
  const std::vector<NamedFile> files = files_to_show(globals, {}, layers);
  check_op(globals, files, settings.op);
  for (const NamedFile& each : files)
    for (const store::Record& record : each.file->records(settings.op, true))
      if (pushed.insert(record.key).second) shared.publish(record, *layers);
  say_damaged(globals, *layers);
  shared.finish();
  const remote::ClientCounters counts = shared.counters();
  const auto records = static_cast<std::int64_t>(pushed.size());
  if (globals.json)
    print_json({{"event", "pushed"},
                {"store", shared.name()},
                {"records", records},
                {"written", counts.published},
                {"errors", counts.errors},
                {"bytes", counts.bytes}});
  else
    print(fmt::format("{} of {} written to {}, {}; of the rest it had the same or better ones{}\n", counts.published,
                      counted(records, "record"), shared.name(), format_bytes(counts.bytes),
                      counts.errors > 0 ? fmt::format(", or {} happened", counted(counts.errors, "failure")) : ""));
  return counts.errors > 0 ? exit_wrong : exit_good;
}

int pull(const Globals& globals, const SharedSettings& settings) {
  Shared shared(globals, {});
  store::Layers layers = open_layers(globals);
  if (!shared.has(settings.op)) check_op(globals, {}, settings.op);
  std::int64_t found = 0, written = 0, code = 0;
  shared.each_space(settings.op, [&](const std::vector<remote::Rows>& all) {
    for (const remote::Rows& rows : all) {
      ++found;
      code += std::ranges::count_if(rows.code,
                                    [&](const store::CubinRow& each) { return !layers.overlay().has_cubin(each.key); });
      const auto own = layers.overlay().find_record(rows.record.key, true);
      const bool is_new = !own || store::is_better(rows.record, *own);
      layers.put_all({&rows.record, is_new ? std::size_t{1} : std::size_t{0}}, rows.code);
      if (is_new) ++written;
    }
  });
  if (const std::string why = layers.not_kept(); !why.empty() && (written > 0 || code > 0))
    throw Error(ErrorKind::io, fmt::format("what was pulled is not kept: {}", why));
  const std::int64_t errors = shared.counters().errors;
  if (globals.json)
    print_json({{"event", "pulled"},
                {"store", shared.name()},
                {"records", found},
                {"written", written},
                {"cubins", code},
                {"errors", errors}});
  else
    print(fmt::format("{} of {} of {} written to the overlay, and {}; of the rest it had the same or better ones{}\n",
                      written, counted(found, "record"), shared.name(), counted(code, "cubin"),
                      errors > 0 ? fmt::format("; {} did not hold or failed", counted(errors, "value")) : ""));
  return errors > 0 ? exit_wrong : exit_good;
}

}  // namespace

NamedFile shared_records(const Globals& globals, const std::string& op) {
  Shared shared(globals, {});
  NamedFile named{shared.name(), store::File::in_memory(), nullptr};
  named.file = named.owned.get();
  shared.each_space(op, [&](const std::vector<remote::Rows>& all) {
    for (const remote::Rows& rows : all) named.file->put(rows.record, nullptr);
  });
  return named;
}

void add_cache_push(CLI::App& cache, Chosen& chosen) {
  add_command<SharedSettings>(cache, chosen, "push",
                              "Write the records of the overlay and the bases to the shared store", declare_push, push,
                              takes_layers | takes_templates | takes_remote)
      ->footer(
          "The store keeps what it has where that is better: by its signature, then as kiln cache merge prefers.\n"
          "Example:\n  kiln cache push --remote /nfs/kiln --key cluster.pem");
  add_command<SharedSettings>(cache, chosen, "pull", "Take the records of the shared store into the overlay",
                              declare_op, pull, takes_layers | takes_templates | takes_remote)
      ->footer(
          "Machine code comes along where a trusted key signed it. What does not hold is passed over, and is exit status 1.\n"
          "Example:\n  kiln cache pull --remote /nfs/kiln --trusted-keys keys/");
}

}  // namespace kiln::cli

#include "cli/next_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "answer/machine_code.hpp"
#include "cli/other_files.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "jit/specialisation.hpp"
#include "store/keys.hpp"

namespace kiln::cli {
namespace {

/// Returns the folder into which a newly trusted key goes.
std::string key_folder(const Globals& globals) {
  const auto folders = layer_settings(globals).key_folders;
  const bool is_users = folders.empty() || folders.front() == "/etc/kiln/trusted";
  return is_users ? "~/.config/kiln/trusted" : shell_word(folders.front().string());
}

/// Says how the file becomes trusted for machine code.
NextStep how_to_trust(const Globals& globals, const store::Layer& layer) {
  const std::string path = layer.path.string();
  const std::string sign = fmt::format("kiln cache sign {} --key KEY.pem", shell_word(path));
  const std::string trust = fmt::format("install -D -m 644 PUBLIC.pem {}/PUBLIC.pem", key_folder(globals));
  const std::string owned = engine_options(globals).trust == TrustPolicy::owner
                                ? "; or give it to root or to you, and let nobody else write it or its folder"
                                : "";
  const auto signers = layer.file->signers();
  if (signers.empty())
    return {fmt::format("sign {}, and trust the key unless it is trusted{}", path, owned), {sign, trust}};
  const store::KeyRing keys = code_trust(silenced(globals)).keys;
  const auto unknown =
      std::ranges::find_if(signers, [&](const store::PublicKey& each) { return keys.revoked(each) == nullptr; });
  if (unknown == signers.end()) return {fmt::format("sign {} by a key that is not revoked{}", path, owned), {sign}};
  return {fmt::format("trust the key that signed {}, with the fingerprint {}, or sign the file by a trusted key{}",
                      path, store::fingerprint(*unknown), owned),
          {trust, sign}};
}

/// Under the policy `signed` a file that a command has just written is not trusted.
std::string then_add(const Globals& globals) {
  return engine_options(globals).trust == TrustPolicy::signed_files
             ? ", sign FILE.kiln (kiln cache sign FILE.kiln --key KEY.pem), then add --base FILE.kiln"
             : ", then add --base FILE.kiln";
}

/// A device class implies the architecture for which engines ask.
std::string class_option(const Target& target) {
  const bool has_link = target.facts.link != manifest::TeamLink::none;
  const bool is_implied = target.arch == jit::target_arch(target.facts.sm());
  return fmt::format("{} --device-class {}{}{}", is_implied ? "" : " --arch " + target.arch,
                     class_word(target.facts.device_class()), has_link ? "/" : "",
                     manifest::to_string(target.facts.link));
}

/// A command without -o tunes into the overlay, which must then be a file.
NextStep how_to_tune(Globals globals, const Target& target, const std::string& command, int ranks) {
  const bool writes = command.find(" -o ") != std::string::npos;
  const bool needs_overlay = !writes && wants_no_overlay(globals);
  const std::string then = writes || needs_overlay ? then_add(globals) : ", and keep it in the overlay";
  if (needs_overlay) globals.overlay = "FILE.kiln";
  const std::string ordinal = globals.device == 0 ? "" : fmt::format(" --device {}", globals.device);
  const bool is_network = ranks > 0 && target.facts.link == manifest::TeamLink::network;
  const std::string on = ranks > 0 ? counted(ranks, "GPU") : "a GPU";
  return {fmt::format("tune what is missing, on {} of class {}{}{}", on, class_word(target.facts.device_class()),
                      is_network ? ", by a launcher that starts the command on each rank" : "", then),
          {fmt::format("{}{}{}{}{}", is_network ? "KILN_TEAM_ADDRESS=HOST:PORT " : "", command,
                       ranks > 0 && !is_network ? fmt::format(" --ranks {}", ranks) : "", options_that_find(globals),
                       ranks > 0 ? "" : ordinal)}};
}

}  // namespace

void add_missing(MissingWork& missing, const manifest::OpBucket& of, const answer::Answer* answer, const Target& target,
                 store::Layers& layers) {
  if (answer == nullptr) {
    const auto can_serve = [&](const manifest::Implementation& each) {
      const bool may_be_tuned = !each.is_library() || target.facts.link == manifest::TeamLink::network;
      return may_be_tuned && !manifest::why_not_eligible({*of.op, target.facts}, each, of.bucket);
    };
    if (std::ranges::any_of(of.op->implementations, can_serve) && missing.known[of.op].insert(of.bucket).second)
      missing.records.push_back(of);
    return;
  }
  if (!answer->implementation->has_kernels() ||
      answer::layer_with_code({*of.op, target.facts}, *answer, target.arch, layers))
    return;
  if (const auto layer = answer::untrusted_layer_with_code({*of.op, target.facts}, *answer, target.arch, layers))
    missing.untrusted.insert(*layer);
  else
    missing.code = true;
}

int ranks_for(const std::vector<manifest::OpBucket>& buckets) {
  for (const manifest::OpBucket& each : buckets)
    if (each.is_of_team()) return static_cast<int>(each.bucket.axes[static_cast<std::size_t>(each.op->team_axis())]);
  return 0;
}

std::string shell_word(const std::string& word) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,+@%-";
  if (word.empty()) return "\"\"";
  if (word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char each : word) each == '\'' ? quoted += "'\\''" : quoted += each;
  return quoted + "'";
}

std::string options_that_find(const Globals& globals) {
  std::string options;
  const auto add = [&](std::string_view name, const std::string& value) {
    options += fmt::format(" {} {}", name, shell_word(value));
  };
  for (const std::string& each : globals.bases) add("--base", each);
  if (globals.overlay) add("--overlay", *globals.overlay);
  if (globals.trust) add("--trust", *globals.trust);
  for (const std::string& each : globals.trusted_keys) add("--trusted-keys", each);
  if (globals.remote) add("--remote", *globals.remote);
  for (const std::string& each : globals.templates) add("--templates", each);
  return options;
}

std::vector<NextStep> next_steps(const Globals& globals, const Target& target, const store::Layers& layers,
                                 const MissingWork& missing, const Remedy& remedy) {
  std::vector<NextStep> steps;
  for (const std::size_t layer : missing.untrusted) steps.push_back(how_to_trust(globals, layers.layers()[layer]));
  const auto others = files_with_records(globals, target, missing.records);
  if (!others.empty()) {
    const OtherFile& best = others.front();
    const bool has_all = best.records == missing.records.size();
    steps.push_back(
        {fmt::format("add --base {}, which has {}", shell_word(best.path.string()),
                     has_all ? "what is missing"
                             : fmt::format("{} of the {} missing records", best.records, missing.records.size()))});
    if (has_all) return steps;
  }
  if (!missing.records.empty())
    steps.push_back(how_to_tune(globals, target, remedy.tune, ranks_for(missing.records)));
  else if (missing.code)
    steps.push_back(
        {fmt::format("compile what is missing, without a GPU{}{}", then_add(globals),
                     remedy.note.empty() ? "" : "; " + remedy.note),
         {fmt::format("{}{}{} -o FILE.kiln", remedy.compile, class_option(target), options_that_find(globals))}});
  return steps;
}

void print_next_steps(const std::vector<NextStep>& steps) {
  for (const NextStep& each : steps) {
    print(wrapped_text(fmt::format("next: {}\n", each.what), 6));
    for (const std::string& command : each.commands) print(wrapped_command(command));
  }
}

Json json_of(const std::vector<NextStep>& steps) {
  Json json = Json::array();
  for (const NextStep& each : steps) json.push_back({{"what", each.what}, {"commands", each.commands}});
  return json;
}

}  // namespace kiln::cli

#include "cli/next_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "answer/machine_code.hpp"
#include "cli/other_files.hpp"
#include "cli/output.hpp"
#include "cli/units.hpp"
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
std::string how_to_trust(const Globals& globals, const store::Layer& layer) {
  const std::string folder = key_folder(globals);
  const std::string sign = fmt::format("kiln cache sign {} --key KEY.pem", shell_word(layer.path.string()));
  const std::string trust = fmt::format("install -D -m 644 PUBLIC.pem {}/PUBLIC.pem", folder);
  const std::string owned = engine_options(globals).trust == TrustPolicy::owner
                                ? "; or give it to root or to you, and let nobody else write it or its folder"
                                : "";
  const auto signers = layer.file->signers();
  if (signers.empty())
    return fmt::format("sign {} ({}), and trust the key where it is not trusted yet ({}){}", layer.path.string(), sign,
                       trust, owned);
  const store::KeyRing keys = code_trust(silenced(globals)).keys;
  const auto unknown =
      std::ranges::find_if(signers, [&](const store::PublicKey& each) { return keys.revoked(each) == nullptr; });
  if (unknown == signers.end())
    return fmt::format("sign {} by a key that is not revoked ({}){}", layer.path.string(), sign, owned);
  return fmt::format("trust the key that signed {}, whose fingerprint is {} ({}), or sign it by a trusted key ({}){}",
                     layer.path.string(), store::fingerprint(*unknown), trust, sign, owned);
}

/// Under the policy `signed` a file that a command has just written is not trusted.
std::string signing_note(const Globals& globals) {
  return engine_options(globals).trust == TrustPolicy::signed_files
             ? "; sign it (kiln cache sign FILE.kiln --key KEY.pem)"
             : "";
}

std::string class_option(const Target& target) {
  const bool has_link = target.facts.link != manifest::TeamLink::none;
  return fmt::format(" --arch {} --device-class {}{}{}", target.arch, class_word(target.facts.device_class()),
                     has_link ? "/" : "", manifest::to_string(target.facts.link));
}

/// A command without -o tunes into the overlay, which must then be a file.
std::string how_to_tune(Globals globals, const Target& target, const std::string& command, int ranks,
                        const std::string& sign) {
  const bool writes = command.find(" -o ") != std::string::npos;
  const bool needs_overlay = !writes && wants_no_overlay(globals);
  if (needs_overlay) globals.overlay = "FILE.kiln";
  const std::string ordinal = globals.device == 0 ? "" : fmt::format(" --device {}", globals.device);
  const std::string then = writes || needs_overlay
                               ? fmt::format(" and writes all to FILE.kiln{}; then add --base FILE.kiln", sign)
                               : " and keeps it in the overlay";
  const bool is_network = ranks > 0 && target.facts.link == manifest::TeamLink::network;
  const std::string on = is_network  ? fmt::format("begun by a launcher on each of {}, on GPUs", counted(ranks, "rank"))
                         : ranks > 0 ? fmt::format("on {}", counted(ranks, "GPU"))
                                     : "on a GPU";
  return fmt::format("{}{}{}{}{}, {} of class {}, tunes what is missing{}",
                     is_network ? "KILN_TEAM_ADDRESS=HOST:PORT " : "", command,
                     ranks > 0 && !is_network ? fmt::format(" --ranks {}", ranks) : "", options_that_find(globals),
                     ranks > 0 ? "" : ordinal, on, class_word(target.facts.device_class()), then);
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

std::vector<std::string> next_steps(const Globals& globals, const Target& target, const store::Layers& layers,
                                    const MissingWork& missing, const Remedy& remedy) {
  std::vector<std::string> steps;
  for (const std::size_t layer : missing.untrusted) steps.push_back(how_to_trust(globals, layers.layers()[layer]));
  const auto others = files_with_records(globals, target, missing.records);
  if (!others.empty()) {
    const OtherFile& best = others.front();
    const bool has_all = best.records == missing.records.size();
    steps.push_back(
        fmt::format("add --base {}, which has {}", shell_word(best.path.string()),
                    has_all ? "what is missing"
                            : fmt::format("{} of the {} missing records", best.records, missing.records.size())));
    if (has_all) return steps;
  }
  const std::string sign = signing_note(globals);
  if (!missing.records.empty())
    steps.push_back(how_to_tune(globals, target, remedy.tune, ranks_for(missing.records), sign));
  else if (missing.code)
    steps.push_back(fmt::format(
        "{}{}{} -o FILE.kiln compiles what is missing, without a GPU{}{}; then add --base FILE.kiln", remedy.compile,
        class_option(target), options_that_find(globals), remedy.note.empty() ? "" : ", " + remedy.note, sign));
  return steps;
}

void print_next_steps(const std::vector<std::string>& steps) {
  for (const std::string& each : steps) print(fmt::format("next: {}\n", each));
}

}  // namespace kiln::cli

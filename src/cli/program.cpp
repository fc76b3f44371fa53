#include "cli/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <new>
#include <sstream>
#include <string_view>

#include "cli/build.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "kiln/error.hpp"
#include "manifest/text.hpp"

namespace kiln::cli {
namespace {

constexpr const char* summary =
    "Specialises CUDA kernels at run time, tunes them once for each bucket of sizes, and keeps the results in a file.";

constexpr const char* epilogue = R"(Examples:
  kiln doctor                                        what this machine has, and what follows
  kiln ops rms_norm                                  an op's axes, types and implementations
  kiln check my_op --templates my_ops                what is wrong in an op of your own; kiln new begins one
  kiln tune rms_norm rows=1..16384 cols=4096,8192    tune every bucket of these sizes, once
  kiln run rms_norm rows=137 cols=4096               launch, verify, time
  kiln explain rms_norm rows=137 cols=4096           what would be launched, and why
  kiln prewarm llama3_8b.toml --arch sm_90a -o llama3_8b.kiln --base h200.kiln
                                                     a file to deploy, made without a GPU
  kiln replay stream.trace --base llama3_8b.kiln     launch a recorded stream, count answers by origin
  kiln report -o report.html --base h200.kiln        an HTML report of the records
  kiln bench records --base h200.kiln                time the records again

Files are asked in this order: the overlay (yours; --overlay, else $KILN_CACHE, else ~/.cache/kiln/overlay.kiln), then each --base.
An install has records (h100.kiln, h200.kiln) and workloads (such as llama3_8b.toml): their bare names are enough.

Exit status: 0 success, 1 something is wrong or missing (a wrong result, a bucket without a record), 2 bad input,
3 this machine lacks a driver, a device, memory or NVRTC, 4 a file was refused, cannot be read or written, or
the overlay cannot keep results, 5 a compile or the driver failed, 130 interrupted, 141 the reader of the output
closed it (| head).)";

void declare_globals(CLI::App& app, Globals& globals) {
  app.add_flag("--json", globals.json,
               "Print one JSON object a line; errors as {\"error\": {...}} on the standard error");
  app.add_flag("-q,--quiet", globals.quiet, "No progress and no notes");
  app.add_option("--device", globals.device, "The GPU to use")->transform(whole_number_from(0, 1023))->type_name("N");
  app.add_option("--overlay", globals.overlay,
                 "Your own file of records; created when missing, by commands that write it. \"\": in memory")
      ->type_name("FILE");
  app.add_option(
         "--base", globals.bases,
         "A shipped file of records, .kiln or .jsonl; may be repeated. A bare name may be that of an installed one, h100.kiln or h200.kiln")
      ->allow_extra_args(false)
      ->type_name("FILE");
  app.add_option(
         "--trust", globals.trust,
         "Bases that may supply machine code: owner (those of this user or root, and signed ones) or signed (signed ones alone); else $KILN_TRUST, else owner")
      ->type_name("owner|signed");
  app.add_option("--trusted-keys", globals.trusted_keys, "A folder of trusted public keys, NAME.pem; may be repeated")
      ->allow_extra_args(false)
      ->type_name("DIR");
  app.add_option(
         "--remote", globals.remote,
         "A store that machines share: the full path of a folder, or redis://, rediss:// or unix://; else $KILN_REMOTE. \"\": none")
      ->type_name("ADDRESS");
  app.add_option("--templates", globals.templates,
                 "A folder of op folders, which come before the built-in ops; may be repeated")
      ->allow_extra_args(false)
      ->type_name("DIR");
}

/// The command that was named last, or kiln itself.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* command = &app;
  for (auto below = app.get_subcommands(); !below.empty(); below = command->get_subcommands()) command = below.front();
  return *command;
}

/// Returns the message for a word where a command of `app` is expected. `chosen`: what was named before, "cache ".
std::string unknown_command(const CLI::App& app, std::string_view chosen, std::string_view word) {
  std::vector<std::string> names;
  const auto any = [](const CLI::App*) { return true; };
  for (const CLI::App* command : app.get_subcommands(any)) {
    names.push_back(command->get_name());
    for (const CLI::App* below : command->get_subcommands(any))
      if (below->get_name() == word)
        return fmt::format("there is no command {}; it is kiln {} {}", manifest::quote(word), command->get_name(),
                           word);
  }
  return fmt::format("there is no command {}{}; there are {}", manifest::quote(std::string(chosen).append(word)),
                     manifest::did_you_mean(word, names), fmt::join(names, ", "));
}

/// Returns the message for a command without an argument or a command of its own that it needs; else `otherwise`.
std::string what_is_required(const CLI::App& command, const std::string& chosen, const std::string& otherwise) {
  for (const CLI::Option* option : command.get_options())
    if (option->get_required() && option->get_positional() && option->count() == 0)
      return option->get_type_name() + " is required";
  std::vector<std::string> names;
  for (const CLI::App* each : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(each->get_name());
  return names.empty() ? otherwise : fmt::format("kiln {}needs a command: {}", chosen, fmt::join(names, ", "));
}

/// Returns the commands that were named, each with a space after it: "cache sign ".
std::string names_of_chosen(const CLI::App& app) {
  std::string names;
  for (auto below = app.get_subcommands(); !below.empty(); below = below.front()->get_subcommands())
    names += below.front()->get_name() + " ";
  return names;
}

/// Returns the message for an option that neither the command nor kiln has.
std::string unknown_option(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  const CLI::App* command = &app;
  const auto add_options = [&] {
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  };
  add_options();
  for (auto below = app.get_subcommands(); !below.empty(); below = command->get_subcommands()) {
    command = below.front();
    add_options();
  }
  const std::string chosen = names_of_chosen(app);
  if (std::ranges::find(names, word) != names.end())
    return fmt::format("{} goes after the command: kiln {}{} ...; see kiln {}--help", manifest::quote(word), chosen,
                       word, chosen);
  // Without the dashes, which all have: else --dtype would be as near to --stale as it is to a slip.
  const auto bare = [](std::string_view name) { return std::string(name.substr(name.find_first_not_of('-'))); };
  std::vector<std::string> plain;
  for (const std::string& name : names) plain.push_back(bare(name));
  const std::string near =
      word.find_first_not_of('-') == std::string_view::npos ? std::string() : manifest::nearest(bare(word), plain);
  const bool takes_settings = std::ranges::any_of(command->get_options(), [](const CLI::Option* each) {
    return each->get_positional() && each->get_type_name().find("NAME=VALUE") != std::string::npos;
  });
  const std::string otherwise = takes_settings ? "; sizes, types and choices have no dashes: dtype=bf16" : "";
  return fmt::format("kiln {}has no option {}{}; see kiln {}--help", chosen, manifest::quote(word),
                     near.empty() ? otherwise : fmt::format(" (did you mean '--{}'?)", near), chosen);
}

/// Asked where the options are not read yet. CLI11 takes a flag as --json=true too, and as --json=false.
bool wants_json(int argc, char** argv) noexcept {
  constexpr std::string_view flag = "--json", with_value = "--json=";
  constexpr std::array<std::string_view, 7> no{"false", "0", "no", "off", "n", "f", "disable"};  // as CLI11 reads them
  return std::any_of(argv, argv + argc, [&](std::string_view word) {
    const std::string_view value = word.substr(std::min(word.size(), with_value.size()));
    return word == flag || (word.starts_with(with_value) && std::ranges::find(no, value) == no.end());
  });
}

/// Returns CLI11's message for an option with too many values, or with none, in plain words; any other as it is.
std::string in_plain_words(const std::string& message) {
  constexpr std::string_view many = ": At Most 1 required but received ", none = ": 1 required ", missing = " missing";
  if (const auto at = message.find(many); at != std::string::npos)
    return fmt::format("{} takes one value, and {} were given; give it once", message.substr(0, at),
                       message.substr(at + many.size()));
  const auto at = message.find(none);
  if (at == std::string::npos || !message.ends_with(missing)) return message;
  const std::size_t type = at + none.size();
  return fmt::format("{} needs a value, {}", message.substr(0, at),
                     message.substr(type, message.size() - missing.size() - type));
}

int bad_usage(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const bool json = wants_json(argc, argv);
  const CLI::App& command = innermost(app);
  const std::string chosen = names_of_chosen(app);
  const bool needs_command = !command.get_subcommands([](const CLI::App*) { return true; }).empty();
  std::string message = in_plain_words(error.what());
  const auto left = app.remaining(true);
  const auto word =
      std::find_if(left.begin(), left.end(), [](const std::string& each) { return !each.starts_with('-'); });
  const auto option =
      std::find_if(left.begin(), left.end(), [](const std::string& each) { return each.starts_with("--"); });
  if (needs_command && word != left.end())
    message = unknown_command(command, chosen, *word);
  else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && option != left.end())
    message = unknown_option(app, std::string_view(*option).substr(0, option->find('=')));
  else if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    message = fmt::format("{}; see kiln {}--help", what_is_required(command, chosen, message), chosen);
  else
    message += fmt::format("; see kiln {}--help", chosen);
  std::replace(message.begin(), message.end(), '\n', ' ');
  say_error(json, "bad_input", message);
  return exit_usage;
}

int run_chosen(Chosen& chosen) {
  try {
    find_paths(chosen.globals);
    return chosen.run(chosen.globals);
  } catch (const Error& error) {
    say_error(chosen.globals.json, to_string(error.kind()), error.what());
    return exit_code_of(error.kind());
  } catch (const std::filesystem::filesystem_error& error) {  // such as a name that is too long
    say_error(chosen.globals.json, to_string(ErrorKind::io), error.what());
    return exit_refused;
  } catch (const std::bad_alloc&) {
    say_out_of_memory(chosen.globals.json);
    return exit_lacking;
  } catch (const std::exception& error) {
    say_error(chosen.globals.json, "internal", fmt::format("an error that kiln did not expect: {}", error.what()));
    return exit_failed;
  }
}

/// Prints what --help and --version request.
int show_asked(const CLI::App& app, const CLI::Success& asked) {
  std::ostringstream output, errors;
  const int status = app.exit(asked, output, errors);
  print(wrapped_help(output.str()));
  say(errors.str());
  return status;
}

/// Returns the option of this name of `app` or of a command below it, if it takes a value, or null.
const CLI::Option* option_with_value(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = name.starts_with("--") ? app.get_option_no_throw(name) : nullptr;
  if (option != nullptr && option->get_items_expected_max() > 0) return option;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (const CLI::Option* below = option_with_value(*command, name)) return below;
  return nullptr;
}

/// Returns the arguments as CLI11 reads them rightly: "help check" as "check --help", and "--overlay=" as "--overlay"
/// and an empty word, since CLI11 would take the next word for the value.
std::vector<std::string> normalised(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words;
  const bool asks_help = argc > 1 && std::string_view(argv[1]) == "help";
  bool is_option = true;  // until "--"
  for (int at = asks_help ? 2 : 1; at < argc; ++at) {
    std::string word = argv[at];
    is_option = is_option && word != "--";
    const bool is_empty = is_option && word.size() > 1 && word.find('=') == word.size() - 1 &&
                          option_with_value(app, word.substr(0, word.size() - 1)) != nullptr;
    if (is_empty) word.pop_back();
    words.push_back(std::move(word));
    if (is_empty) words.emplace_back();
  }
  if (asks_help) words.emplace_back("--help");
  return words;
}

constexpr std::pair<unsigned, const char*> global_options[] = {
    {takes_device, "--device"}, {takes_overlay, "--overlay"},   {takes_bases, "--base"},
    {takes_trust, "--trust"},   {takes_keys, "--trusted-keys"}, {takes_templates, "--templates"},
    {takes_remote, "--remote"}};

std::string names_of_taken(unsigned takes) {
  std::string names = "--json, --quiet";
  for (const auto& [option, name] : global_options)
    if ((takes & option) != 0) names.append(", ").append(name);
  return names;
}

/// Adds to each command's help the global options that it takes.
void name_globals(const Chosen& chosen) {
  for (const auto& [command, takes] : chosen.takes) {
    const std::string footer = command->get_footer();
    command->footer("Global options that apply: " + names_of_taken(takes) + "; see kiln --help" +
                    (footer.empty() ? "" : "\n\n" + footer));
  }
}

/// Returns the message for global options that the command does not take, or an empty string.
std::string not_taken(const CLI::App& app, const Chosen& chosen) {
  for (const auto& [command, takes] : chosen.takes) {
    if (!command->parsed()) continue;
    std::vector<std::string> given;
    for (const auto& [option, name] : global_options)
      if ((takes & option) == 0 && app.get_option(name)->count() > 0) given.emplace_back(name);
    if (given.empty()) continue;
    const std::string names = names_of_chosen(app);
    return fmt::format("kiln {}does not take {}; of the global options it takes {}; see kiln {}--help", names,
                       fmt::join(given, ", "), names_of_taken(takes), names);
  }
  return {};
}

std::string empty_text(std::string_view option) {
  return fmt::format("{} is empty; give it a value, or leave it out", option);
}

/// Returns the message for an option with a value that may be left out, and is empty: CLI11 does not tell these apart.
std::string given_empty(const CLI::App& app, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i + 1 < words.size() && words[i] != "--"; ++i) {
    const CLI::Option* option = words[i + 1].empty() ? option_with_value(app, words[i]) : nullptr;
    if (option != nullptr && option->get_items_expected_min() == 0) return empty_text(words[i]);
  }
  return {};
}

/// Returns the message for an option of `app` or of the commands below it that was given an empty value, or an empty
/// string: a variable of a shell that is not set must not count as an option that was left out.
std::string given_empty(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const auto& values = option->results();
    const std::string name = option->get_name();
    const bool may_be_empty = name == "--overlay" || name == "--remote" || option->get_items_expected_min() == 0;
    if (may_be_empty || std::ranges::find(values, "") == values.end()) continue;
    return empty_text(name);
  }
  for (const CLI::App* command : app.get_subcommands())
    if (std::string message = given_empty(*command); !message.empty()) return message;
  return {};
}

int run_command(CLI::App& app, Chosen& chosen, int argc, char** argv) {
  app.set_version_flag("--version", fmt::format("kiln {}, build {}", KILN_VERSION, build()));
  app.fallthrough();
  declare_globals(app, chosen.globals);
  for (const auto add : {add_doctor, add_devices, add_ops, add_check, add_new, add_tune, add_prewarm, add_coverage,
                         add_run, add_explain, add_replay, add_trace, add_workload, add_cache, add_report, add_bench})
    add(app, chosen);
  name_globals(chosen);
  app.footer(epilogue);  // after the commands, which would begin with it
  if (argc < 2) {
    print(wrapped_help(app.help()));
    return exit_usage;
  }
  app.require_subcommand(1);
  std::vector<std::string> words = normalised(app, argc, argv);
  if (const std::string why = given_empty(app, words); !why.empty()) {
    say_error(wants_json(argc, argv), "bad_input", why);
    return exit_usage;
  }
  try {
    std::ranges::reverse(words);  // the order that CLI11 takes
    app.parse(std::move(words));
  } catch (const CLI::Success& asked) {  // --help, --version
    return show_asked(app, asked);
  } catch (const CLI::ParseError& error) {
    return bad_usage(app, error, argc, argv);
  }
  for (const std::string& why : {not_taken(app, chosen), given_empty(app)}) {
    if (why.empty()) continue;
    say_error(chosen.globals.json, "bad_input", why);
    return exit_usage;
  }
  return run_chosen(chosen);
}

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write past the file-size limit then fails with EFBIG
  open_output();
  try {
    CLI::App app(summary, "kiln");
    Chosen chosen;
    return close_output(run_command(app, chosen, argc, argv), chosen.globals.json);
  } catch (const std::bad_alloc&) {  // before the command runs, where its options are declared and read
    say_out_of_memory(wants_json(argc, argv));
    return exit_lacking;
  }
}

}  // namespace
}  // namespace kiln::cli

int kiln_command_main(int argc, char** argv) { return kiln::cli::main(argc, argv); }

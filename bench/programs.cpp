// Says what machine code rows of results and choices of records speak of. Needs no GPU.
//
//   bench_programs [--device h100|h200|CLASS] [--tree CHECKOUT] [--templates FOLDER]... [--ptx] [--code] [--jobs N] [--keep FOLDER] < ROWS
//
// A row is a JSON object a line: `op`, `problem` (NAME=VALUE words), `implementation`, `config`; also `device_class` where it is not
// --device's (h200); of a choice also `sizes`, for the largest of which its config is checked, and `source_digest`. Its other fields come back in `id`.
// --tree: manifests and common/ headers of another checkout, by the present parser and the present compile options. --templates: ops of folders.
//
// The answer is a line for each row, in their order:
//   op, implementation, config   the config with each parameter: one that the row lacks has its default
//   device_class, source         of the facts that were used; jit::source_digest
//   current                      whether the row's source_digest is of these sources, where it has one
//   library                      a library that takes part, and what it computes
//   names, options               name expressions; the options that determine the bytes; none for a library without kernels
//   ptx, compiler                with --ptx, or --code, where there are kernels: 16 digits of the SHA-256 of normal_ptx(), and what made it
//   code, functions              with --code: 16 digits of machine_code(), and of each function its registers, the bytes that it spills and its own code
//   error                        alone after `config`, which is then the row's, where the row speaks of nothing that there is; or why a compile failed
// Equal specialisations are compiled once. --keep: the PTX as NVRTC gave it, and the cubin, as FOLDER/SOURCE.ptx and .cubin.
#include <fmt/format.h>

#include <atomic>
#include <fstream>
#include <future>
#include <iostream>
#include <map>
#include <span>
#include <thread>

#include "command_line.hpp"
#include "jit/compile_pool.hpp"
#include "kiln/error.hpp"
#include "programs/compile.hpp"
#include "programs/machine_code.hpp"
#include "programs/ptx.hpp"
#include "programs/rows.hpp"

namespace {

using bench::Json;
using bench::Program;
namespace fs = std::filesystem;

struct Asked {
  std::string device_class = bench::class_of_device("h200");
  fs::path tree, keep;
  std::vector<fs::path> templates;
  bool ptx = false, code = false;
  int jobs = 0;
};

using bench::number;
using bench::refuse;

Asked parse(int argc, char** argv) {
  Asked asked;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto value = [&] {
      if (++i == argc) refuse(fmt::format("{} is given without a value", option));
      return std::string(argv[i]);
    };
    if (option == "--device")
      asked.device_class = bench::class_of_device(value());
    else if (option == "--tree")
      asked.tree = value();
    else if (option == "--templates")
      asked.templates.emplace_back(value());
    else if (option == "--ptx")
      asked.ptx = true;
    else if (option == "--code")
      asked.ptx = asked.code = true;
    else if (option == "--jobs")
      asked.jobs = number(value());
    else if (option == "--keep")
      asked.keep = value();
    else
      refuse(fmt::format("there is no option '{}'", option));
  }
  return asked;
}

std::string digits_of(std::string_view text) {
  return kiln::manifest::to_hex(kiln::manifest::Hasher().field(text).finish()).substr(0, 16);
}

void keep(const fs::path& folder, const Program& program, const bench::Compiled& compiled) {
  std::ofstream(folder / (program.source + ".ptx"), std::ios::binary) << compiled.ptx;
  if (!compiled.image.empty())
    std::ofstream(folder / (program.source + ".cubin"), std::ios::binary)
        .write(reinterpret_cast<const char*>(compiled.image.data()),
               static_cast<std::streamsize>(compiled.image.size()));
}

/// Returns what --ptx and --code add to the answer, or an error.
Json compiled_fields(const Program& program, const Asked& asked) {
  Json fields = Json::object();
  try {
    const auto compiled = bench::compile(program.code, asked.code ? bench::Wanted::ptx_and_code : bench::Wanted::ptx);
    if (!asked.keep.empty()) keep(asked.keep, program, compiled);
    fields["ptx"] = digits_of(bench::normal_ptx(compiled.ptx));
    fields["compiler"] = kiln::jit::compiler_identity();
    if (!asked.code) return fields;
    const bench::MachineCode code = bench::machine_code(compiled.image);
    fields["code"] = code.digest.substr(0, 16);
    for (const bench::Function& each : code.functions)
      fields["functions"].push_back(
          {{"registers", each.registers}, {"spills", each.spill_bytes}, {"code", each.digest.substr(0, 16)}});
  } catch (const kiln::Error& error) {
    fields = {{"error", error.what()}};
  }
  return fields;
}

/// Compiles in threads: sources without toolkit headers scale there as in processes.
class Compiles {
 public:
  Compiles(std::span<const Program> programs, const Asked& asked) : asked_(asked) {
    for (const Program& each : programs)
      if (each.error.empty() && each.code.has_kernels() && places_.try_emplace(key_of(each), all_.size()).second)
        all_.push_back(&each);
    answers_.resize(all_.size());
    const auto threads =
        std::min<std::size_t>(all_.size(), static_cast<std::size_t>(kiln::jit::compiles_at_once(asked.jobs)));
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Compiles() {
    for (std::thread& each : threads_) each.join();
  }
  Compiles(const Compiles&) = delete;
  Compiles& operator=(const Compiles&) = delete;
  /// Waits for the compile of one of the programs.
  [[nodiscard]] Json of(const Program& program) {
    return program.code.has_kernels() ? answers_[places_.at(key_of(program))].future.get() : Json::object();
  }

 private:
  struct Answer {
    std::promise<Json> promise;
    std::shared_future<Json> future = promise.get_future().share();
  };
  static std::string key_of(const Program& program) {
    return kiln::manifest::to_hex(kiln::jit::cubin_key(program.code, ""));
  }
  void work() {
    for (std::size_t i = next_++; i < all_.size(); i = next_++)
      answers_[i].promise.set_value(compiled_fields(*all_[i], asked_));
  }

  const Asked& asked_;
  std::vector<const Program*> all_;
  std::map<std::string, std::size_t> places_;  // by cubin key
  std::vector<Answer> answers_;
  std::atomic<std::size_t> next_{0};
  std::vector<std::thread> threads_;
};

Json answer_of(const Program& program) {
  Json answer = {{"op", program.op}, {"implementation", program.implementation}, {"config", program.config}};
  if (program.error.empty()) {
    answer["device_class"] = program.device_class;
    answer["source"] = program.source;
    if (!program.stored.empty()) answer["current"] = program.is_current;
    if (!program.code.library.empty()) answer["library"] = program.code.library + ": " + program.code.library_product;
    answer["names"] = program.code.name_expressions;
    answer["options"] = Json::array();
    if (program.code.has_kernels()) answer["options"] = kiln::jit::byte_determining_options(program.code);
  } else {
    answer["error"] = program.error;
  }
  if (!program.rest.empty()) answer["id"] = program.rest;
  return answer;
}

int run(const Asked& asked) {
  bench::Ops ops(asked.templates, asked.tree);
  std::vector<Program> programs;
  for (std::string line; std::getline(std::cin, line);)
    if (!line.empty()) programs.push_back(bench::read_program(ops, line, asked.device_class));
  Compiles compiles(asked.ptx ? std::span<const Program>(programs) : std::span<const Program>(), asked);
  for (const Program& each : programs) {
    Json answer = answer_of(each);
    if (asked.ptx && each.error.empty()) answer.update(compiles.of(each));
    std::cout << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_programs: {}\n", error.what());
    return 3;
  }
}

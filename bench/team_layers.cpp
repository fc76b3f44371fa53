// Stacks of layers cut over the GPUs of one host, on batches of different lengths: bench/peers/team_layers.py has torch's.
//
//   bench_team_layers llama|flux [--world N] [--layers N] [--seconds S] [--overlay FILE] [--base FILE]... < bench/problems/team_layers.txt
//
// A line is a stack and a batch's tokens, of all ranks. llama: norm, gather and product, SwiGLU, product and scatter, of Llama 3 70B's MLP.
// flux: FLUX.1's attention by Ulysses (all_to_all, attention over all tokens of some heads, all_to_all back) and an MLP. Layers take two sets of
// weights in turns. JSON lines, times are maxima over the ranks:
//   first    each batch once: ms, and what was tuned and compiled for it
//   stream   seconds from the start of the process until the last batch has ended, weights included
//   steady   median ms of a batch from an idle device until it is idle again
//   memory   bytes by which the device's free memory fell from before the team was there, where that was most
// --seconds: batches are left out that would begin later than this.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "blocks/block.hpp"
#include "command_line.hpp"
#include "ranks.hpp"
#include "row.hpp"
#include "team_layers/layers.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using kiln::bench::Layers;

constexpr int steady_runs = 5;
constexpr std::int64_t team_bytes = std::int64_t{1} << 30;

struct Settings {
  std::string stack;
  int world = 2, layers = 0;
  double seconds = 1e9;
  kiln::Options options;
  std::vector<std::int64_t> batches;  // tokens
};

Settings parse(int argc, char** argv) {
  Settings settings;
  if (argc > 1) settings.stack = argv[1];
  if (settings.stack != "llama" && settings.stack != "flux")
    throw kiln::Error(kiln::ErrorKind::bad_input, "the first word is llama or flux");
  settings.layers = settings.stack == "llama" ? 80 : 57;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (bench::take_file(argc, argv, i, settings.options)) continue;
    if (i + 1 == argc)
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is not known, or has no value", word));
    if (word == "--world")
      settings.world = std::stoi(argv[++i]);
    else if (word == "--layers")
      settings.layers = std::stoi(argv[++i]);
    else if (word == "--seconds")
      settings.seconds = std::stod(argv[++i]);
    else
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is not known", word));
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string stack;
    std::int64_t tokens = 0;
    if (!(words >> stack) || stack != settings.stack) continue;
    if (!(words >> tokens) || tokens < settings.world)
      throw kiln::Error(kiln::ErrorKind::bad_input, "a line is a stack and at least a token a rank: " + line);
    settings.batches.push_back(tokens);
  }
  if (settings.batches.empty())
    throw kiln::Error(kiln::ErrorKind::bad_input, "no line of the input is of " + settings.stack);
  return settings;
}

/// Since the kernel began this process.
double seconds_of_process() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  const std::string text((std::istreambuf_iterator<char>(stat)), {});
  std::istringstream after_name(text.substr(text.rfind(')') + 2));
  std::string word;
  for (int field = 3; field <= 22; ++field) after_name >> word;  // proc(5): starttime
  double now = 0;
  uptime >> now;
  return now - std::stod(word) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::int64_t free_bytes() {
  std::size_t free = 0, total = 0;
  kiln::cuda::check(kiln::cuda::Driver::get().cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  return static_cast<std::int64_t>(free);
}

class Rank {
 public:
  Rank(const Settings& settings, int rank, const std::string& name)
      : settings_(settings),
        rank_(rank),
        context_(rank),
        scope_(context_),
        free_before_(free_bytes()),
        team_(std::make_shared<kiln::Team>(rank, settings.world, name, kiln::TeamOptions{rank, team_bytes})),
        engine_(options()) {}

  void run(double begun) {
    const std::int64_t most = rows_of(*std::ranges::max_element(settings_.batches));
    const auto layers = settings_.stack == "llama" ? kiln::bench::make_llama_layers(engine_, settings_.world, most)
                                                   : kiln::bench::make_flux_layers(engine_, settings_.world, most);
    std::vector<std::int64_t> ran;
    for (const std::int64_t tokens : settings_.batches) {
      if (largest({seconds_of_process()}).front() > settings_.seconds) break;
      const kiln::Stats before = engine_.stats();
      const double ms = batch_ms(*layers, tokens);
      const kiln::Stats after = engine_.stats();
      const auto all = largest(
          {ms, static_cast<double>(after.tunes - before.tunes), static_cast<double>(after.compiles - before.compiles)});
      emit("first", R"("tokens":{},"ms":{:.2f},"tunes":{},"compiles":{})", tokens, all[0], all[1], all[2]);
      ran.push_back(tokens);
    }
    const double seconds = largest({seconds_of_process() + begun}).front();
    emit("stream", R"("batches":{},"seconds":{:.2f})", ran.size(), seconds);
    for (const std::int64_t tokens : ran) {
      std::vector<double> ms;
      for (int i = 0; i < steady_runs; ++i) ms.push_back(largest({batch_ms(*layers, tokens)}).front());
      std::ranges::sort(ms);
      emit("steady", R"("tokens":{},"ms":{:.3f})", tokens, ms[ms.size() / 2]);
    }
    const std::int64_t taken = free_before_ - free_bytes();
    const bool finite = layers->is_finite(stream_.handle());
    const auto all = largest({static_cast<double>(taken), finite ? 0.0 : 1.0});
    emit("memory", R"("device_bytes":{:.0f},"finite":{})", all[0], all[1] == 0);
    static_cast<void>(engine_.check(stream_.handle()));
  }

 private:
  [[nodiscard]] kiln::Options options() const {
    kiln::Options options = settings_.options;
    options.device = rank_;
    options.team = team_;
    return options;
  }
  /// Of each rank, as many: a batch that cannot be divided is padded.
  [[nodiscard]] std::int64_t rows_of(std::int64_t tokens) const {
    return (tokens + settings_.world - 1) / settings_.world;
  }
  std::vector<double> largest(std::vector<double> values) { return bench::largest(*team_, std::move(values)); }

  double batch_ms(Layers& layers, std::int64_t tokens) {
    layers.take(rows_of(tokens));
    static_cast<void>(largest({0}));  // the ranks begin together
    const Clock::time_point begun = Clock::now();
    for (int layer = 0; layer < settings_.layers; ++layer) layers.launch(layer, stream_.handle());
    stream_.synchronize();
    return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
  }

  template <class... Values>
  void emit(std::string_view phase, fmt::format_string<Values...> text, Values&&... values) const {
    if (rank_ != 0) return;
    fmt::print(R"({},"stack":"{}","side":"kiln","world":{},"layers":{},"phase":"{}",)",
               bench::compiled_row("team_layers"), settings_.stack, settings_.world, settings_.layers, phase);
    fmt::print(text, std::forward<Values>(values)...);
    fmt::print("}}\n");
    std::fflush(stdout);
  }

  const Settings& settings_;
  int rank_;
  kiln::cuda::Context context_;
  kiln::cuda::Context::Scope scope_;
  std::int64_t free_before_;
  std::shared_ptr<kiln::Team> team_;
  kiln::Engine engine_;
  kiln::cuda::Stream stream_;
};

}  // namespace

int main(int argc, char** argv) try {
  const Settings settings = parse(argc, argv);
  const double begun = seconds_of_process();  // what this process took before it forked
  return bench::run_ranks(settings.world, [&](int rank, const std::string& name) {
    Rank(settings, rank, name).run(begun);
    return 0;
  });
} catch (const std::exception& error) {
  std::fputs(fmt::format("bench_team_layers: {}\n", error.what()).c_str(), stderr);
  return 2;
}

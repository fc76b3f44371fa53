// A block of Llama 3 8B or of FLUX.1, forward and backward, over batches whose lengths differ: bench/peers/blocks.py has torch's.
//
//   bench_blocks llama|flux --overlay FILE [--base FILE]... [--templates DIR] [--batches N] [--miss POLICY] [--name NAME] [--steady] [--dump DIR]
//       < PROBLEMS
//
// bench/problems/blocks.txt says what a line is. N: only so many lines of the block. NAME: of this side, in what is printed.
// Weights, inputs and tables of positions lie on the device before a clock starts. JSON lines:
//   first    each batch once: ms until infer, then train, have ended; what was tuned and compiled for it
//   stream   all of that from the engine's constructor on, which the lines do not count
//   steady   with --steady: ns of infer and of train by events, back to back as a loop enqueues them, host included
//   memory   bytes of tensors, and by how much the device's free memory fell since the context was there: at the end, since nothing is freed
//   dumped   with --dump: results of the shortest batch, files for blocks.py --check
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "blocks/block.hpp"
#include "command_line.hpp"
#include "row.hpp"

namespace {

using kiln::bench::Batch;
using kiln::bench::Block;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string block, name = "kiln";
  kiln::Options options;
  std::size_t batches = 1000;
  bool steady = false;
  std::filesystem::path dump;
};

kiln::MissPolicy policy(std::string_view word) {
  if (word == "tune") return kiln::MissPolicy::tune;
  if (word == "background") return kiln::MissPolicy::background;
  if (word == "nearest") return kiln::MissPolicy::nearest;
  if (word == "error") return kiln::MissPolicy::error;
  throw kiln::Error(kiln::ErrorKind::bad_input,
                    fmt::format("--miss is tune, background, nearest or error, not {}", word));
}

Settings parse(int argc, char** argv) {
  Settings settings;
  if (argc > 1) settings.block = argv[1];
  if (settings.block != "llama" && settings.block != "flux")
    throw kiln::Error(kiln::ErrorKind::bad_input, "the first word is llama or flux");
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (bench::take_file(argc, argv, i, settings.options)) continue;
    if (word == "--steady") {
      settings.steady = true;
      continue;
    }
    if (i + 1 == argc)
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is unknown or lacks a value", word));
    const char* value = argv[++i];
    if (word == "--templates")
      settings.options.template_paths.emplace_back(value);
    else if (word == "--batches")
      settings.batches = std::stoul(value);
    else if (word == "--miss")
      settings.options.on_miss = policy(value);
    else if (word == "--name")
      settings.name = value;
    else if (word == "--dump")
      settings.dump = value;
    else
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is unknown", word));
  }
  if (!settings.options.overlay) throw kiln::Error(kiln::ErrorKind::bad_input, "--overlay FILE is missing");
  return settings;
}

std::vector<Batch> read_batches(std::istream& from, const Settings& settings) {
  std::vector<Batch> batches;
  for (std::string line; std::getline(from, line) && batches.size() < settings.batches;) {
    std::istringstream words(line);
    std::string block;
    if (!(words >> block) || block != settings.block) continue;
    Batch& batch = batches.emplace_back();
    for (int length = 0; words >> length;) batch.lengths.push_back(length);
    if (batch.lengths.empty() || (block == "flux" && batch.lengths.size() != 2))
      throw kiln::Error(kiln::ErrorKind::bad_input, "a line wants lengths, flux two: " + line);
  }
  if (batches.empty()) throw kiln::Error(kiln::ErrorKind::bad_input, "no line of the input is of " + settings.block);
  return batches;
}

double ms_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

std::int64_t free_bytes() {
  std::size_t free = 0, total = 0;
  kiln::cuda::check(kiln::cuda::Driver::get().cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  return static_cast<std::int64_t>(free);
}

template <class... Values>
void emit(const Settings& settings, std::string_view phase, fmt::format_string<Values...> text, Values&&... values) {
  fmt::print("{},\"block\":\"{}\",\"side\":\"{}\",\"phase\":\"{}\",", bench::compiled_row("blocks"), settings.block,
             settings.name, phase);
  fmt::print(text, std::forward<Values>(values)...);
  fmt::print("}}\n");
  std::fflush(stdout);
}

std::int64_t fallbacks_of(const kiln::Stats& stats) { return stats.nearest + stats.model + stats.default_; }

class Bench {
 public:
  explicit Bench(Settings settings, std::vector<Batch> batches)
      : settings_(std::move(settings)),
        batches_(std::move(batches)),
        context_(settings_.options.device),
        scope_(context_) {}

  void run() {
    const std::int64_t free_before = free_bytes();
    make_block();
    for (std::size_t i = 0; i < batches_.size(); ++i) first(i);
    const kiln::Stats stats = engine_->stats();
    emit(settings_, "stream", "\"batches\":{},\"ms\":{:.1f},\"tunes\":{},\"compiles\":{},\"fallbacks\":{}",
         batches_.size(), stream_ms_, stats.tunes, stats.compiles, fallbacks_of(stats));
    if (settings_.steady)
      for (std::size_t i = 0; i < batches_.size(); ++i) steady(i);
    emit(settings_, "memory", "\"tensor_bytes\":{},\"device_bytes\":{}", block_->tensor_bytes(),
         free_before - free_bytes());
    if (!settings_.dump.empty()) dump();
    for (const std::string& warning : engine_->warnings()) fmt::print(stderr, "bench_blocks: {}\n", warning);
  }

 private:
  void make_block() {
    const Clock::time_point begun = Clock::now();
    engine_.emplace(settings_.options);
    stream_ms_ = ms_since(begun);
    std::int64_t most = 0;
    for (const Batch& batch : batches_) most = std::max(most, batch.tokens());
    block_ =
        settings_.block == "llama" ? kiln::bench::make_llama(*engine_, most) : kiln::bench::make_flux(*engine_, most);
  }

  void first(std::size_t i) {
    const kiln::Stats before = engine_->stats();
    block_->take(batches_[i]);
    const Clock::time_point begun = Clock::now();
    block_->infer(stream_.handle());
    stream_.synchronize();
    const double infer_ms = ms_since(begun);
    block_->train(stream_.handle());
    stream_.synchronize();
    const double ms = ms_since(begun);
    stream_ms_ += ms;
    const kiln::Stats after = engine_->stats();
    emit(settings_, "first",
         "\"batch\":{},\"tokens\":{},\"infer_ms\":{:.2f},\"train_ms\":{:.2f},\"tunes\":{},\"compiles\":{}", i,
         batches_[i].tokens(), infer_ms, ms - infer_ms, after.tunes - before.tunes, after.compiles - before.compiles);
  }

  void steady(std::size_t i) {
    block_->take(batches_[i]);
    const double infer_ns = time_ns([&] { block_->infer(stream_.handle()); });
    const double train_ns = time_ns([&] { block_->train(stream_.handle()); });
    emit(settings_, "steady", "\"batch\":{},\"tokens\":{},\"infer_ns\":{:.0f},\"train_ns\":{:.0f}", i,
         batches_[i].tokens(), infer_ns, train_ns);
  }

  /// Median over batches of launches of some 30 ms, as peers/blocks.py does it.
  template <class Step>
  double time_ns(const Step& step) const {
    const auto elapsed_ns = [&](int steps) {
      const kiln::cuda::Event begin, end;
      begin.record(stream_.handle());
      for (int i = 0; i < steps; ++i) step();
      end.record(stream_.handle());
      end.synchronize();
      return kiln::cuda::Event::elapsed_ns(begin, end) / steps;
    };
    elapsed_ns(1);
    const int steps = std::clamp(static_cast<int>(30e6 / elapsed_ns(1)), 1, 20);
    std::vector<double> samples;
    for (int i = 0; i < 5; ++i) samples.push_back(elapsed_ns(steps));
    std::ranges::sort(samples);
    return samples[samples.size() / 2];
  }

  void dump() {
    const Batch& shortest = *std::ranges::min_element(batches_, {}, &Batch::tokens);
    std::filesystem::create_directories(settings_.dump);
    std::ofstream lengths(settings_.dump / "lengths.txt");
    lengths << fmt::format("{}\n", fmt::join(shortest.lengths, " "));
    if (!lengths.flush()) throw kiln::Error(kiln::ErrorKind::io, "lengths.txt cannot be written");
    block_->take(shortest);
    poison();
    block_->infer(stream_.handle());
    write(block_->results().front(), "inferred");
    poison();
    block_->train(stream_.handle());
    for (const kiln::bench::Result& result : block_->results()) write(result, result.name);
    emit(settings_, "dumped", "\"tokens\":{}", shortest.tokens());
  }
  /// NaN: what is not written shows.
  void poison() {
    for (const kiln::bench::Result& result : block_->results())
      kiln::cuda::check(
          kiln::cuda::Driver::get().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(result.values), 0xff,
                                                    static_cast<std::size_t>(2 * result.elements), stream_.handle()),
          "cuMemsetD8Async");
  }
  void write(const kiln::bench::Result& result, const std::string& name) {
    stream_.synchronize();
    std::vector<kiln::bench::Bf16> values(static_cast<std::size_t>(result.elements));
    kiln::cuda::check(kiln::cuda::Driver::get().cuMemcpyDtoH_v2(
                          values.data(), reinterpret_cast<CUdeviceptr>(result.values), 2 * values.size()),
                      "cuMemcpyDtoH");
    std::ofstream file(settings_.dump / (name + ".bf16"), std::ios::binary);
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(2 * values.size()));
    if (!file.flush()) throw kiln::Error(kiln::ErrorKind::io, fmt::format("{} cannot be written", name));
  }

  Settings settings_;
  std::vector<Batch> batches_;
  kiln::cuda::Context context_;
  kiln::cuda::Context::Scope scope_;
  kiln::cuda::Stream stream_;
  std::optional<kiln::Engine> engine_;
  std::unique_ptr<Block> block_;
  double stream_ms_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    Settings settings = parse(argc, argv);
    std::vector<Batch> batches = read_batches(std::cin, settings);
    Bench(std::move(settings), std::move(batches)).run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_blocks: {}\n", error.what());
    return 3;
  }
  return 0;
}

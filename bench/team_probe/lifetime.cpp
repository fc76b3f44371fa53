// Whether a mapping outlives the process that exported the memory, and whether a process maps memory of a device that it does not see.
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "kiln/error.hpp"
#include "team_probe/items.hpp"
#include "team_probe/member.hpp"

namespace kiln::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t shared_bytes = std::size_t{64} << 20;

void write_for(const Member& member, milliseconds duration, const cuda::Buffer& passes) {
  member.launch("write_for", {32, 512, 0}, member.peers.pointer(),
                static_cast<unsigned long long>(member.peers.bytes() / 16),
                static_cast<unsigned long long>(std::chrono::nanoseconds(duration).count()), passes.pointer());
}

/// Calls `work`, and returns the error's text where it throws.
std::string outcome(const std::function<CUresult()>& work) {
  try {
    return name_of(work());
  } catch (const Error& error) {
    return escaped(error.what());
  }
}

[[noreturn]] void wait_to_be_killed(const Member& member, bool writing) {
  const cuda::Buffer passes(16);
  if (writing) write_for(member, milliseconds(1800), passes);
  member.link.send(getpid());
  std::this_thread::sleep_for(std::chrono::seconds(5));
  throw Error(ErrorKind::io, "rank 1 was to be killed within 5 s, and was not");
}

void write_on(const Member& member, const char* exporter) {
  int passes = 0;
  std::int64_t wrong = 0;
  const std::string result = outcome([&] {
    CUresult each = CUDA_SUCCESS;
    for (const auto end = Clock::now() + std::chrono::seconds(1); Clock::now() < end && each == CUDA_SUCCESS;
         ++passes) {
      const auto seed = static_cast<unsigned>(passes);
      member.fill(member.peers.pointer(), shared_bytes, seed);
      wrong += member.wrong_words(member.peers.pointer(), shared_bytes, seed, each);
    }
    return each;
  });
  print_line(
      "dead_exporter",
      R"("exporter":"{}","phase":"1 s of writes and reads after its end","result":"{}","passes":{},"wrong_words":{})",
      exporter, result, passes, wrong);
}

void survive(const Member& member, const char* exporter) {
  const auto process = static_cast<pid_t>(member.link.receive());
  const cuda::Buffer passes(16);
  write_for(member, milliseconds(800), passes);
  std::this_thread::sleep_for(milliseconds(200));
  kill(process, SIGKILL);
  const bool closed = member.link.closes_within(std::chrono::seconds(3));
  const std::string during = outcome([&] { return member.synchronize(); });
  print_line("dead_exporter",
             R"("exporter":"{}","phase":"a kernel that wrote while it was killed","result":"{}","socket_closed":{})",
             exporter, during, closed);
  std::this_thread::sleep_for(milliseconds(300));
  write_on(member, exporter);
  std::int64_t wrong = 0;
  const std::string plain = outcome([&] {
    CUresult result = CUDA_SUCCESS;
    member.fill(member.own.pointer(), shared_bytes, 3);
    wrong = member.wrong_words(member.own.pointer(), shared_bytes, 3, result);
    return result;
  });
  print_line("dead_exporter", R"("exporter":"{}","phase":"a launch on own memory","result":"{}","wrong_words":{})",
             exporter, plain, wrong);
}

void dead_exporter(const Side& side, bool writing) {
  Member member(side.rank, side.ordinal, side.link, shared_bytes);
  if (side.rank == 1) wait_to_be_killed(member, writing);
  const char* exporter = writing ? "writing to the survivor" : "idle";
  survive(member, exporter);
  print_line("dead_exporter", R"("exporter":"{}","phase":"unmapping","result":"{}")", exporter,
             name_of(member.peers.close()));
}

}  // namespace

void dead_exporter_idle(const Side& side) { dead_exporter(side, false); }
void dead_exporter_writing(const Side& side) { dead_exporter(side, true); }

void restricted_visibility(const Side& side) {
  const Member member(side.rank, side.ordinal, side.link, std::size_t{2} << 20);
  const auto seed_of = [](int rank) { return static_cast<unsigned>(100 + rank); };
  int devices = 0;
  cuda::check(cuda::Driver::get().cuDeviceGetCount(&devices), "cuDeviceGetCount");
  const std::string written = outcome([&] {
    member.fill(member.peers.pointer(), member.peers.bytes(), seed_of(side.rank));
    return member.synchronize();
  });
  side.link.meet();
  CUresult result = CUDA_SUCCESS;
  const std::int64_t wrong =
      member.wrong_words(member.own.pointer(), member.own.bytes(), seed_of(1 - side.rank), result);
  print_line("restricted_visibility",
             R"("rank":{},"devices_seen":{},"write":"{}","read":"{}","wrong_words":{},"words":{})", side.rank, devices,
             written, name_of(result), wrong, member.own.bytes() / 4);
  side.link.meet();
}

}  // namespace kiln::bench

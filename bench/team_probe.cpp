// What a team of two GPUs of one host can count on: facts for the design of team ops.
//
//   bench_team_probe [--devices 0,1] [--only ITEM,...] | --compile
//
// Prints one JSON object a line. Each item runs in two new processes, one a device, which pass descriptors over a socket pair. An item that
// fails or takes longer than its limit prints {"bench":"team_probe","probe":ITEM,"error":...}, and the others go on. All end within 58 s.
// Items: host_link facts push push_both_ways copy flags dead_exporter_idle dead_exporter_writing restricted_visibility.
// --compile compiles the kernels for sm_90a and needs no device.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kiln/error.hpp"
#include "team_probe/items.hpp"
#include "team_probe/member.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using kiln::bench::print_line;

constexpr std::chrono::seconds total_limit{58};
constexpr int link_descriptor = 3;  // of a member, on which it finds its end of the socket pair
constexpr int peer_ended_status = 4;

struct Item {
  const char* name;
  void (*measure)(const kiln::bench::Side&);
  int ranks;
  int limit_s;
  bool restricted;   // each process sees its own device alone
  bool second_dies;  // by SIGKILL, as a part of the item
};

constexpr std::array<Item, 9> items = {{
    {"host_link", kiln::bench::host_link, 2, 5, false, false},
    {"facts", kiln::bench::facts, 1, 15, false, false},
    {"flags", kiln::bench::flags, 2, 15, false, false},
    {"restricted_visibility", kiln::bench::restricted_visibility, 2, 10, true, false},
    {"dead_exporter_idle", kiln::bench::dead_exporter_idle, 2, 12, false, true},
    {"dead_exporter_writing", kiln::bench::dead_exporter_writing, 2, 12, false, true},
    {"copy", kiln::bench::copy, 2, 12, false, false},
    {"push_both_ways", kiln::bench::push_both_ways, 2, 15, false, false},
    {"push", kiln::bench::push, 2, 30, false, false},
}};

std::vector<std::string> parts(std::string_view list) {
  std::vector<std::string> all;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    all.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return all;
}

/// A device as CUDA_VISIBLE_DEVICES has to name it: where the variable is set already, an ordinal counts in its list.
std::string visible_name(const std::string& ordinal) {
  const char* set = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::vector<std::string> listed = parts(set != nullptr ? set : "");
  const auto index = static_cast<std::size_t>(std::stoul(ordinal));
  return index < listed.size() ? listed[index] : ordinal;
}

/// In a child: becomes the member `rank` of the item.
[[noreturn]] void become(const Item& item, int rank, int socket, const std::vector<std::string>& devices) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::array<std::string, 2> ordinals = {devices[static_cast<std::size_t>(rank)],
                                         devices[static_cast<std::size_t>(1 - rank)]};
  if (item.restricted) {
    setenv("CUDA_VISIBLE_DEVICES", visible_name(ordinals[0]).c_str(), 1);
    ordinals = {"0", "0"};
  }
  if (socket == link_descriptor) {
    fcntl(socket, F_SETFD, 0);
  } else {
    dup2(socket, link_descriptor);
  }
  const std::string own_rank = std::to_string(rank);
  execl("/proc/self/exe", "bench_team_probe", "--member", item.name, own_rank.c_str(), ordinals[0].c_str(),
        ordinals[1].c_str(), nullptr);
  _exit(127);
}

void report_end(const Item& item, int rank, int status) {
  if (WIFEXITED(status)) {
    const int code = WEXITSTATUS(status);
    if (code != 0 && code != 1 && code != peer_ended_status)  // 1: it has printed its error
      print_line(item.name, R"("rank":{},"error":"the process ended with status {}")", rank, code);
  } else if (!(item.second_dies && rank == 1 && WTERMSIG(status) == SIGKILL)) {
    print_line(item.name, R"("rank":{},"error":"the process was ended by signal {}")", rank, WTERMSIG(status));
  }
}

/// Waits for the members until `end`, then kills those that are left.
void wait_for(const Item& item, std::vector<pid_t> processes, Clock::time_point end) {
  bool late = false;
  while (std::any_of(processes.begin(), processes.end(), [](pid_t each) { return each != 0; })) {
    for (std::size_t rank = 0; rank < processes.size(); ++rank) {
      int status = 0;
      if (processes[rank] == 0 || waitpid(processes[rank], &status, WNOHANG) != processes[rank]) continue;
      processes[rank] = 0;
      if (!late) report_end(item, static_cast<int>(rank), status);
    }
    if (!late && Clock::now() > end) {
      late = true;
      print_line(item.name, R"("error":"took longer than its limit of {} s, or than all items' limit of {} s")",
                 item.limit_s, total_limit.count());
      for (const pid_t each : processes)
        if (each != 0) kill(each, SIGKILL);
    }
    if (late && Clock::now() > end + std::chrono::seconds(3)) return;  // the driver holds it
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void run(const Item& item, const std::vector<std::string>& devices, Clock::time_point last_end) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return print_line(item.name, R"("error":"socketpair: {}")", std::strerror(errno));
  const auto begin = Clock::now();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < item.ranks; ++rank) {
    const pid_t process = fork();
    if (process == 0) become(item, rank, ends[rank], devices);
    if (process < 0) print_line(item.name, R"("error":"fork: {}")", std::strerror(errno));
    if (process > 0) processes.push_back(process);
  }
  close(ends[0]);
  close(ends[1]);
  wait_for(item, processes, std::min(last_end, begin + std::chrono::seconds(item.limit_s)));
  print_line("item", R"("item":"{}","seconds":{:.1f})", item.name,
             std::chrono::duration<double>(Clock::now() - begin).count());
}

int serve_member(char** words) {
  const std::string_view name = words[0];
  const auto item = std::find_if(items.begin(), items.end(), [&](const Item& each) { return name == each.name; });
  if (item == items.end()) return 2;
  try {
    const kiln::bench::Link link(link_descriptor);
    item->measure({std::atoi(words[1]), std::atoi(words[2]), std::atoi(words[3]), link});
    return 0;
  } catch (const kiln::bench::PeerEnded&) {
    return peer_ended_status;
  } catch (const std::exception& error) {
    print_line(item->name, R"("rank":{},"error":"{}")", words[1], kiln::bench::escaped(error.what()));
    return 1;
  }
}

int compile_only() {
  const kiln::jit::Cubin cubin = kiln::bench::compile_kernels("sm_90a");
  print_line("compile", R"("arch":"sm_90a","ok":true,"cubin_bytes":{},"ns":{})", cubin.image.size(),
             cubin.compile_time.count());
  if (!cubin.log.empty()) fmt::print(stderr, "{}\n", cubin.log);
  return 0;
}

int refuse(std::string_view why) {
  fmt::print(stderr, "bench_team_probe: {}\n", why);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> devices = {"0", "1"}, only;
  if (argc == 6 && std::string_view(argv[1]) == "--member") return serve_member(argv + 2);
  try {
    for (int i = 1; i < argc; i += 2) {
      const std::string_view word = argv[i];
      if (word == "--compile") return compile_only();
      if (word != "--devices" && word != "--only") return refuse(fmt::format("there is no option '{}'", word));
      if (i + 1 == argc) return refuse(fmt::format("{} is given without a value", word));
      (word == "--devices" ? devices : only) = parts(argv[i + 1]);
    }
    const auto number = [](const std::string& text) {
      return text.find_first_not_of("0123456789") == std::string::npos;
    };
    if (devices.size() != 2 || !std::all_of(devices.begin(), devices.end(), number))
      return refuse("--devices takes two ordinals, such as 0,1");
    for (const std::string& name : only)
      if (std::none_of(items.begin(), items.end(), [&](const Item& each) { return name == each.name; }))
        return refuse(fmt::format("there is no item '{}'", name));
  } catch (const kiln::Error& error) {
    return refuse(error.what());
  }
  const auto end = Clock::now() + total_limit;
  for (const Item& item : items)
    if (only.empty() || std::find(only.begin(), only.end(), item.name) != only.end()) run(item, devices, end);
  return 0;
}

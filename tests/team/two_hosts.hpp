// Two network namespaces with a link between them, in place of two hosts.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "team/descriptor.hpp"

namespace kiln::test {

/// Of addresses 10.231.S.1 and 10.231.S.2, where S follows from the process. Needs root and iproute2.
class TwoHosts {
 public:
  TwoHosts() {
    are_there_ =
        run(fmt::format("ip netns add {0}a && ip netns add {0}b && "
                        "ip link add {0}a netns {0}a type veth peer name {0}b netns {0}b",
                        name_));
    for (const char side : {'a', 'b'})
      are_there_ = are_there_ && run(fmt::format("ip -n {0}{1} addr add {2}/24 dev {0}{1} && ip -n {0}{1} link set "
                                                 "{0}{1} up && ip -n {0}{1} link set lo up",
                                                 name_, side, address(side)));
  }
  ~TwoHosts() {
    for (const char side : {'a', 'b'}) static_cast<void>(run(fmt::format("ip netns del {}{}", name_, side)));
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  [[nodiscard]] bool are_there() const noexcept { return are_there_; }
  [[nodiscard]] std::string address(char side) const {
    return fmt::format("10.231.{}.{}", subnet_, side == 'a' ? 1 : 2);
  }
  /// Moves the calling process, which was forked and has one thread, to a host: 'a' or 'b'.
  [[nodiscard]] bool enter(char side) const {
    const team::Descriptor space(open(fmt::format("/var/run/netns/{}{}", name_, side).c_str(), O_RDONLY | O_CLOEXEC));
    return space && setns(space.get(), CLONE_NEWNET) == 0;
  }
  /// Ends the link without a word to either host.
  [[nodiscard]] bool cut() const { return run(fmt::format("ip -n {0}a link set {0}a down", name_)); }

 private:
  static bool run(const std::string& command) {
    return std::system(("( " + command + " ) >/dev/null 2>&1").c_str()) == 0;
  }

  int subnet_ = getpid() % 250 + 1;
  std::string name_ = fmt::format("kn{}", getpid());
  bool are_there_ = false;
};

}  // namespace kiln::test

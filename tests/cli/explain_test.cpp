// kiln explain: what it says of a fallback's speed, of devices by name, and of files that do not exist.
#include "tuned_files.hpp"

using namespace kiln::testing;

namespace {

/// The skeleton of kiln new, which has no cost model.
std::string own_op(const Command& command) {
  REQUIRE(command.run("new mine " + command.path("")).status == 0);
  return " --templates " + command.path("");
}

}  // namespace

TEST_CASE("explain says that it does not know how slow a default without a cost model is, however small the launch") {
  const Command command;
  const std::string own = own_op(command);
  for (const char* count : {"10", "1000", "100000000"}) {
    const Ran ran = command.run("explain mine count=" + std::string(count) + " --device-class H100" + own);
    CAPTURE(ran.output);
    CHECK(ran.status == 0);
    CHECK(says(ran.output, "unknown: no near record timed it, and it has no cost model\n"));
    CHECK(says(command.run("--json explain mine count=10 --device-class H100" + own).output,
               "\"expected_slowdown\":null,\"slowdown_grounds\":\"no near record timed it"));
  }
}

TEST_CASE("explain takes the devices that ops takes, and says where a class is by a data sheet") {
  const Command command;
  for (const char* name : {"A100", "l40s", "L4", "4090", "B200", "5090"}) {
    const Ran ran = command.run("explain rms_norm rows=137 cols=4096 --device-class " + std::string(name));
    CAPTURE(name);
    CHECK(ran.status == 0);
    CHECK(says(ran.output, " by its data sheet; kiln devices prints a present GPU's class\n"));
  }
  CHECK(says(command.run("explain rms_norm rows=137 cols=4096 --device-class A100").output,
             "next: tune what is missing, on a GPU of class A100"));
  CHECK(says(command.run("explain rms_norm rows=137 cols=4096 --device-class H100").output,
             "the device class that was named\n"));
}

TEST_CASE("explain exits with 1 where nothing can serve") {
  const Command command;
  const std::string own = own_op(command);
  REQUIRE(std::system(("sed -i 's/^all = \\[/all = [\"count % 32 == 0\", /' " + command.path("mine/vectorized.toml"))
                          .c_str()) == 0);
  const Ran ran = command.run("explain mine count=100 --device-class H100" + own);
  CAPTURE(ran.output);
  CHECK(ran.status == 1);
  CHECK(says(ran.output, "nothing can serve"));
  CHECK(command.run("--json explain mine count=100 --device-class H100" + own).status == 1);
  CHECK(command.run("explain mine count=128 --device-class H100" + own).status == 0);
}

TEST_CASE("explain and doctor say that a file does not exist, and whether one is trusted by yes or no") {
  const Command command;
  const std::string base = tuned_file(command, "base.kiln", true);
  const std::string asked = "explain rms_norm rows=300 cols=4096 dtype=bf16 --device-class H200 --base " + base;
  const std::string first = command.run(asked).output;
  CAPTURE(first);
  CHECK(says(first, "trusted for machine code\n"));
  CHECK(says(first, "overlay.kiln  the file does not exist yet"));
  CHECK(says(first, "  yes: the first write makes it, for this user alone\n"));
  CHECK(says(first, "  yes: it and its folder belong to "));
  CHECK_FALSE(says(first, "can be written by nobody else\noverlay"));
  CHECK(says(command.run("doctor").output, "the file does not exist yet"));
  const std::string untrusted = command.run(asked + " --trust signed").output;
  CAPTURE(untrusted);
  CHECK(says(untrusted, "  no: the policy is signed, and nobody signed it\n"));
  CHECK(says(command.run("--json " + asked).output, "\"opened\":true,\"trusted\":true,\"trust\":\"the first write"));
}

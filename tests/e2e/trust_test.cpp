// Signed files, from the commands that make them to the launch that loads their machine code.
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "e2e/command.hpp"

namespace e2e {
namespace {

namespace fs = std::filesystem;

/// A tuned file to deploy in a folder that anybody may write, and a key pair made by the openssl command.
class Deployment {
 public:
  Deployment() {
    fs::create_directories(folder_ / "shared");
    fs::create_directories(folder_ / "keys");
    fs::permissions(folder_ / "keys", fs::perms(0755));
    expect(0, "kiln tune scale rows=64 cols=128 dtype=f32" + globals(folder_));
    expect(0, "kiln cache export -o " + base() + globals(folder_));
    fs::permissions(folder_ / "shared", fs::perms::all);
    expect(0, "openssl genpkey -algorithm ed25519 -out " + secret());
    expect(0, "openssl pkey -in " + secret() + " -pubout -out " + open());
    fs::permissions(open(), fs::perms(0644));
    std::ofstream(folder_ / "trace") << "scale rows=50 cols=100 dtype=f32\nscale rows=51 cols=100 dtype=f32\n";
  }
  [[nodiscard]] std::string base() const { return (folder_ / "shared/base.kiln").string(); }
  [[nodiscard]] std::string secret() const { return (folder_ / "release.secret").string(); }
  [[nodiscard]] std::string open() const { return (folder_ / "keys/release.pem").string(); }
  [[nodiscard]] std::string keys() const { return (folder_ / "keys").string(); }
  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }
  /// Where nobody else may write, as it must be.
  std::string sign(const std::string& more = "") const {
    fs::permissions(folder_ / "shared", fs::perms::owner_all);
    std::string said = expect(0, "kiln cache sign " + more + base() + " --key " + secret());
    fs::permissions(folder_ / "shared", fs::perms::all);
    return said;
  }
  [[nodiscard]] std::string explain(const std::string& more) const {
    return expect(0, "kiln explain scale rows=64 cols=128 dtype=f32 --base " + base() + " " + more +
                         globals(folder_, "none.kiln"));
  }
  /// Without NVRTC, so that only machine code of the base can be launched.
  [[nodiscard]] Outcome replay(const std::string& more) const {
    return shell("KILN_NVRTC_LIBRARY=none kiln replay " + (folder_ / "trace").string() + " --json --base " + base() +
                 " " + more + globals(folder_, "none.kiln"));
  }

 private:
  TemporaryFolder folder_;
};

/// The signature stands behind its public key, whose 32 bytes end the DER form.
void flip_signature(const Deployment& deployment) {
  const std::string der = (deployment.folder() / "public.der").string();
  expect(0, "openssl pkey -pubin -in " + deployment.open() + " -outform DER -out " + der);
  const auto read = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  std::string bytes = read(deployment.base());
  const std::string key = read(der).substr(12);
  REQUIRE(key.size() == 32);
  const auto at = bytes.find(key);
  REQUIRE(at != std::string::npos);
  bytes[at + key.size()] = static_cast<char>(bytes[at + key.size()] ^ 1);
  std::ofstream(deployment.base(), std::ios::binary) << bytes;
}

bool lacks_openssl() {
  if (shell("openssl version").status == 0) return false;
  MESSAGE("skipped: there is no openssl command");
  return true;
}

}  // namespace

TEST_CASE("a signed file serves machine code from a folder that anybody may write, with neither NVRTC nor an overlay") {
  if (lacks_openssl()) return;
  const Deployment deployment;
  const std::string trusting = "--trusted-keys " + deployment.keys() + " ";
  CHECK(deployment.replay(trusting).status != 0);
  const std::string said = deployment.sign();
  CHECK(contains(said, " is signed: 1 record, "));
  const std::string fingerprint = expect(
      0, "openssl pkey -pubin -in " + deployment.open() + " -outform DER | openssl dgst -sha256 -r | cut -c1-64");
  CHECK(contains(said, ("key fingerprint " + fingerprint).c_str()));
  for (const char* policy : {"", "--trust owner ", "--trust signed "}) {
    const Outcome replayed = deployment.replay(trusting + policy);
    CHECK_MESSAGE(replayed.status == 0, replayed.output);
    CHECK_MESSAGE(contains(replayed.output, "\"compiles\":0"), replayed.output);
    CHECK(contains(deployment.explain(trusting + policy), ("signed by release (" + deployment.open() + ")").c_str()));
  }
  CHECK(contains(expect(0, "kiln doctor --base " + deployment.base() + " " + trusting + globals(deployment.folder())),
                 "signed by release ("));
  CHECK(deployment.replay("").status != 0);  // nobody's keys are trusted
  CHECK(contains(deployment.explain(""), "an unknown one (fingerprint"));
}

TEST_CASE("the keys and the policy come from the environment too, and a wrong policy is bad input") {
  if (lacks_openssl()) return;
  const Deployment deployment;
  deployment.sign("--json ");
  ::setenv("KILN_TRUSTED_KEYS", deployment.keys().c_str(), 1);
  ::setenv("KILN_TRUST", "signed", 1);
  CHECK(contains(deployment.explain(""), "signed by release ("));
  ::setenv("KILN_TRUST", "anybody", 1);
  CHECK(contains(expect(2, "kiln doctor" + globals(deployment.folder())), "KILN_TRUST is 'anybody'"));
  ::unsetenv("KILN_TRUST");
  ::unsetenv("KILN_TRUSTED_KEYS");
  CHECK(contains(expect(2, "kiln doctor --trust anybody" + globals(deployment.folder())), "--trust is 'anybody'"));
}

TEST_CASE("a signed file that was changed is refused, and a revoked key's file gives configurations only") {
  if (lacks_openssl()) return;
  const Deployment deployment;
  const std::string trusting = "--trusted-keys " + deployment.keys() + " ";
  deployment.sign();
  fs::create_directories(deployment.keys() + "/revoked");
  fs::copy(deployment.open(), deployment.keys() + "/revoked/release.pem");
  CHECK(deployment.replay(trusting).status != 0);
  CHECK(contains(deployment.explain(trusting), "is revoked ("));
  const std::string imported = expect(
      0, "kiln cache import " + deployment.base() + " " + trusting + own_overlay(deployment.folder(), "to.kiln"));
  CHECK(contains(imported, "1 record added"));
  CHECK(contains(imported, "were left behind"));
  const std::string exporting = "kiln cache export " + deployment.base() + " --replace -o " +
                                (deployment.folder() / "out.kiln").string() + " " + trusting;
  CHECK(contains(expect(0, exporting), "cubins of " + deployment.base() + " were left behind"));
  fs::remove_all(deployment.keys() + "/revoked");
  CHECK(!contains(expect(0, exporting), "left behind"));
  CHECK(!contains(expect(0, "kiln cache import " + deployment.base() + " " + trusting +
                                own_overlay(deployment.folder(), "too.kiln")),
                  "were left behind"));
  flip_signature(deployment);
  CHECK(contains(deployment.explain(trusting), "is not one over its manifest"));
  CHECK(contains(expect(4, "kiln cache ls " + deployment.base()), "is damaged"));
}

TEST_CASE("sign says what is wrong with a key, in one line") {
  if (lacks_openssl()) return;
  const Deployment deployment;
  const auto refused = [&](const std::string& key, const char* said) {
    const std::string output = expect(2, "kiln cache sign " + deployment.base() + " --key " + key);
    CHECK_MESSAGE(contains(output, said), output);
  };
  const std::string other = (deployment.folder() / "other.pem").string();
  expect(0, "openssl genpkey -algorithm x25519 -out " + other);
  refused(other, "openssl genpkey -algorithm ed25519 -out KEY.pem");
  expect(0, "openssl pkey -aes256 -passout pass:word -in " + deployment.secret() + " -out " + other);
  refused(other, "is encrypted");
  refused(deployment.open(), "is a public key");
}

}  // namespace e2e

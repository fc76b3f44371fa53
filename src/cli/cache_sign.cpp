// kiln cache sign: signs a file, so that others can check it.
#include <fmt/format.h>

#include "cli/cache.hpp"
#include "cli/installed.hpp"
#include "cli/output.hpp"
#include "cli/units.hpp"
#include "store/custody.hpp"
#include "store/signing.hpp"

namespace kiln::cli {
namespace {

struct CacheSignSettings {
  std::string file, key;
};

void declare(CLI::App& command, CacheSignSettings& settings) {
  command.add_option("file", settings.file, "The file to sign; it is sealed first if it is not")
      ->required()
      ->type_name("FILE");
  command
      .add_option("--key", settings.key,
                  "Your private Ed25519 key, as openssl genpkey -algorithm ed25519 -out KEY.pem writes it")
      ->required()
      ->type_name("KEY.pem");
}

int run(const Globals& globals, const CacheSignSettings& settings) {
  refuse_absent(settings.file);
  refuse_absent(settings.key);
  const store::PrivateKey key = store::PrivateKey::read(settings.key);
  if (const auto objection = store::secret_objection(settings.key); !objection.empty() && !globals.quiet)
    note(objection);
  const store::SigningReport report = store::sign(settings.file, key);
  if (globals.json) {
    print_json({{"event", "signed"},
                {"file", settings.file},
                {"fingerprint", report.fingerprint},
                {"sealed", report.sealed},
                {"records", report.records},
                {"candidates", report.candidates},
                {"cubins", report.cubins}});
    return exit_good;
  }
  print(fmt::format("{} is {}signed: {}, {}, {}\nkey fingerprint {}\n", settings.file,
                    report.sealed ? "sealed and " : "", counted(report.records, "record"),
                    counted(report.candidates, "candidate"), counted(report.cubins, "cubin"), report.fingerprint));
  return exit_good;
}

}  // namespace

void add_cache_sign(CLI::App& cache, Chosen& chosen) {
  add_command<CacheSignSettings>(cache, chosen, "sign",
                                 "Sign a file, so that its machine code is trusted by its signature", declare, run,
                                 takes_none)
      ->footer(
          "Example:\n  openssl genpkey -algorithm ed25519 -out release.pem            once; keep it to yourself\n"
          "  kiln cache sign h200.kiln --key release.pem\n"
          "  openssl pkey -in release.pem -pubout -out release-2026.pem     to everyone who shall trust it, for\n"
          "                                                                 ~/.config/kiln/trusted or /etc/kiln/trusted\n"
          "A key is revoked by putting its file into the folder's sub-folder revoked/. A later write to the file removes the seal and\n"
          "the signatures.");
}

}  // namespace kiln::cli

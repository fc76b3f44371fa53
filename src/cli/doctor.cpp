// kiln doctor: reports what this machine has, and what follows from it.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "cli/cache.hpp"
#include "cli/commands.hpp"
#include "cli/installed.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "cuda/cublaslt_api.hpp"
#include "cuda/device.hpp"
#include "cuda/library.hpp"
#include "cuda/nvrtc_api.hpp"
#include "cuda/search_path.hpp"
#include "jit/compile_pool.hpp"
#include "jit/specialisation.hpp"
#include "kiln/error.hpp"
#include "manifest/environment.hpp"
#include "process/child.hpp"
#include "remote/open.hpp"

namespace kiln::cli {
namespace {

enum class Health { ok, absent, broken };

struct Finding {
  std::string what;
  Health health = Health::ok;
  std::string found;
  std::string meaning;
};

std::string_view word_of(Health health) {
  switch (health) {
    case Health::ok: return "ok";
    case Health::absent: return "absent";
    case Health::broken: return "BROKEN";
  }
  return "unknown";
}

/// Whether the user has named a library by this variable, rather than "none".
bool is_named(const char* variable) {
  const std::string named = variable == nullptr ? std::string() : manifest::environment(variable);
  return !named.empty() && named != "none";
}

/// Returns what `look` finds. An Error of the kind `absence` means absent, any other broken, as does one of a library
/// that `variable` names.
Finding finding(const std::string& what, ErrorKind absence, const std::string& without,
                const std::function<Finding()>& look, const char* variable = nullptr) {
  try {
    return look();
  } catch (const Error& error) {
    const bool absent = error.kind() == ErrorKind::no_device || (error.kind() == absence && !is_named(variable));
    return {what, absent ? Health::absent : Health::broken, error.what(), without};
  }
}

Finding driver() {
  return finding(
      "driver", ErrorKind::no_driver,
      "nothing can be launched or tuned here; lookups, prewarm --arch and the cache commands work",
      [] {
        int number = 0;
        const cuda::Driver& opened = cuda::Driver::get();
        cuda::check(opened.cuDriverGetVersion(&number), "cuDriverGetVersion");
        return Finding{"driver", Health::ok, fmt::format("{}, {}", format_cuda(number), opened.path()),
                       "kernels can be launched"};
      },
      "KILN_CUDA_LIBRARY");
}

/// Broken where NVRTC is not whole, or newer than the driver.
Finding compile_here(const cuda::Nvrtc& nvrtc) {
  if (const std::string why = cuda::why_newer_than_driver(nvrtc); !why.empty())
    return {"NVRTC", Health::broken, why, "what is compiled here may not load"};
  try {
    jit::compile_probe();
    return {"NVRTC", Health::ok, {}, {}};
  } catch (const Error& error) {
    return {"NVRTC", Health::broken, error.what(), "nothing can be compiled or tuned until this is fixed"};
  }
}

Finding nvrtc() {
  return finding(
      "NVRTC", ErrorKind::no_nvrtc,
      "nothing can be compiled or tuned: only what the files hold machine code for can be launched",
      [] {
        const cuda::Nvrtc& opened = cuda::Nvrtc::get();
        const auto archs = jit::supported_archs();
        if (Finding broken = compile_here(opened); broken.health == Health::broken) return broken;
        return Finding{
            "NVRTC", Health::ok,
            fmt::format("{}.{}, {}, {}", opened.major, opened.minor,
                        archs.empty() ? "no architecture" : archs.front() + " to " + archs.back(), opened.path),
            "kernels can be compiled, for these architectures even without a GPU"};
      },
      "KILN_NVRTC_LIBRARY");
}

Finding headers() {
  const auto folders = cuda::toolkit_include_directories();
  if (folders.empty())
    return {"toolkit headers", Health::absent, "not found",
            "built-in ops need none; an op of your own that says toolkit_headers = true does not compile"};
  std::vector<std::string> texts;
  for (const auto& folder : folders) texts.push_back(folder.string());
  return {"toolkit headers", Health::ok, fmt::format("{}", fmt::join(texts, ", ")), "ops of your own may include them"};
}

Finding worker() {
  const process::FoundWorker found = process::look_for_worker({});
  if (found.program.empty())
    return {"worker", Health::absent,
            found.refused.empty()
                ? "kiln-worker was not found beside this program, where Kiln was installed, nor where KILN_WORKER says"
                : fmt::format("{}", fmt::join(found.refused, "; ")),
            "candidates run in the tuning process: a fault ends the tune"};
  return finding("worker", ErrorKind::no_device, "nothing can be compiled or tuned until this is fixed", [&] {
    const process::Child begun(found.program);
    return Finding{"worker", Health::ok, found.program.lexically_normal().string(),
                   "candidates run in their own process: one that faults or hangs is rejected and the tune continues"};
  });
}

Finding compiles(const Finding& worker) {
  const jit::CompileSettings settings{.program = process::find_worker({})};
  const int at_once = jit::compiles_at_once(settings.workers);
  if (settings.program.empty())
    return {"compiles", Health::ok, fmt::format("in this process, up to {}", counted(at_once, "thread")),
            "a template that crashes the compiler ends the process"};
  if (worker.health == Health::broken)
    return {"compiles", Health::broken, "in processes of kiln-worker, which does not run", worker.meaning};
  return {"compiles", Health::ok,
          fmt::format("in up to {} of kiln-worker, each within {} s a compile and {}", counted(at_once, "process"),
                      settings.limit.count() / 1000, format_bytes(settings.memory_bytes)),
          "a template that crashes the compiler or never ends fails, and the tune continues"};
}

Finding cublaslt() {
  return finding(
      "cuBLASLt", ErrorKind::no_cublaslt, "configs that use it are skipped, and tunes try Kiln's own kernels alone",
      [] {
        const cuda::CublasLt& opened = cuda::CublasLt::get();
        return Finding{"cuBLASLt", Health::ok, fmt::format("{}, {}", opened.version, opened.path),
                       "it is a candidate when matrix products are tuned"};
      },
      "KILN_CUBLASLT_LIBRARY");
}

/// Throws where the device's mode keeps this process out.
std::string mode_text(const cuda::DeviceInfo& device) {
  if (device.mode == cuda::ComputeMode::shared) return {};
  const cuda::Context opened(device.ordinal);
  return fmt::format(
      "; it is in exclusive-process mode: one process at a time may use it, and candidates run in the tuning process "
      "(nvidia-smi -i {} -c DEFAULT)",
      device.ordinal);
}

std::vector<Finding> devices() {
  std::vector<Finding> findings;
  try {
    for (const cuda::DeviceInfo& device : cuda::devices()) {
      const std::string what = fmt::format("device {}", device.ordinal);
      try {
        findings.push_back(
            {what, Health::ok,
             fmt::format("{}, {}, {}", device.name, format_bytes(device.memory_bytes), device.facts.device_class()),
             fmt::format("kernels are compiled for {}{}", jit::default_arch(device.facts.sm()), mode_text(device))});
      } catch (const Error& error) {
        findings.push_back({what, Health::broken, error.what(), "nothing can be launched on it"});
      }
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_driver && error.kind() != ErrorKind::no_device)
      findings.push_back({"devices", Health::broken, error.what(), "nothing can be launched"});
  }
  return findings;
}

std::string how_to_add_bases() {
  const std::vector<std::string> installed = installed_records();
  if (installed.empty()) return "add shipped records with --base FILE";
  return fmt::format("add shipped records with --base FILE; installed are {}", fmt::join(installed, ", "));
}

std::vector<Finding> files(const Globals& globals) {
  const store::Layers layers(layer_settings(globals));
  say_warnings(globals, layers);
  std::vector<Finding> findings;
  for (const store::Layer& layer : layers.layers()) {
    const bool overlay = layer.kind == store::LayerKind::overlay;
    if (!layer.file) {
      findings.push_back({name_of(layer), Health::broken, layer.refused, "it is not asked"});
      continue;
    }
    const std::string in_memory = "what is tuned is lost when the process ends";
    if (!layer.refused.empty()) {
      findings.push_back({name_of(layer), Health::broken, layer.refused, in_memory});
      continue;
    }
    if (!layer.set_aside.empty())
      findings.push_back({name_of(layer), Health::broken, layer.set_aside, "what it held is tuned again"});
    std::error_code unknown;
    if (overlay && !layer.path.empty() && !std::filesystem::exists(layer.path, unknown)) {
      findings.push_back({name_of(layer), Health::absent, "the file does not exist yet", layer.trust});
      continue;
    }
    findings.push_back(finding(name_of(layer), ErrorKind::no_device, "lookups miss what it does not give", [&] {
      layer.file->refuse_if_damaged("read");
      const store::FileStats stats = layer.file->stats();
      return Finding{name_of(layer), Health::ok,
                     fmt::format("{}, {}, {}", counted(stats.records, "record"), counted(stats.cubins, "cubin"),
                                 format_bytes(stats.file_bytes)),
                     overlay && layer.path.empty() ? in_memory
                     : layer.trusted_for_code      ? layer.trust
                                                   : "configurations only: " + layer.trust};
    }));
  }
  if (globals.bases.empty()) findings.push_back({"bases", Health::absent, "none given", how_to_add_bases()});
  return findings;
}

Finding ops(const Globals& globals) {
  std::string where = "built-in";
  for (const std::string& folder : globals.templates) where.insert(0, folder + ", ");
  if (const std::string path = cuda::environment("KILN_TEMPLATE_PATH"); !path.empty())
    where += ", KILN_TEMPLATE_PATH=" + path;
  try {
    const manifest::Catalogue found = load_ops(silenced(globals));
    if (!found.refused().empty())
      return {"ops", Health::broken, found.refused().front().why,
              fmt::format("{} left out, and the other ops serve",
                          counted(static_cast<std::int64_t>(found.refused().size()), "op"))};
    const auto own = std::ranges::count_if(found.all(), [](const manifest::Op& op) { return op.folder != "built-in"; });
    return {"ops", Health::ok, fmt::format("{}, {} of them not built in ({})", found.size(), own, where),
            "kiln ops lists them"};
  } catch (const Error& error) {
    return {"ops", Health::broken, error.what(), "no command that needs an op works until this is fixed"};
  }
}

/// What the shared store lets this user do, tried by a look and by a claim of no bucket.
std::vector<Finding> shared_store(const Globals& globals) {
  const std::string what = "shared store";
  const FileOptions options = engine_options(globals);
  const std::string address = remote::address_of(options);
  if (address.empty())
    return {
        {what, Health::absent, "none named", "machines tune each for itself; name one with --remote or KILN_REMOTE"}};
  std::string name = what;
  try {
    std::vector<std::string> warnings;
    const remote::ClientSettings settings = remote::client_settings(options, warnings);
    const std::unique_ptr<store::RemoteStore> store = remote::open(address);
    name = fmt::format("{}, {}", what, store->name());
    const auto soon = [] { return std::chrono::steady_clock::now() + remote::operation_limit; };
    const auto spaces = static_cast<std::int64_t>(store->spaces(soon()).size());
    std::vector<Finding> findings{
        {name, Health::ok, fmt::format("it answers, with {} of ops, revisions and devices", counted(spaces, "group")),
         settings.signer
             ? "records and machine code of tunes go to it"
             : "records of tunes go to it, and machine code does not: no signing key is named (KILN_SIGNING_KEY)"}};
    try {
      const store::RemotePlace nowhere{"doctor", "none"};
      const std::string token = "doctor";
      store->claim(nowhere, token, std::chrono::seconds(1), soon());
      store->release(nowhere, token, soon());
    } catch (const store::RemoteFailure& failure) {
      findings.push_back(
          {name + ", writing", Health::broken, failure.what(), "what it has is served; what is tuned here stays here"});
    }
    for (const std::string& each : warnings)
      findings.push_back({name + ", keys", Health::broken, each, "what such a key signed is not trusted"});
    return findings;
  } catch (const store::RemoteFailure& failure) {
    return {{name, Health::broken, failure.what(), "this machine tunes for itself until it answers"}};
  } catch (const Error& error) {
    return {{name, Health::broken, error.what(), "no engine starts with this setting"}};
  }
}

std::vector<Finding> examine(const Globals& globals) {
  std::vector<Finding> findings{driver()};
  const auto append = [&](std::vector<Finding> more) { findings.insert(findings.end(), more.begin(), more.end()); };
  append(devices());
  const Finding found_worker = worker();
  append({nvrtc(), headers(), found_worker, compiles(found_worker), cublaslt(), ops(globals)});
  append(files(globals));
  append(shared_store(globals));
  return findings;
}

/// Returns text in lines of the terminal's width, those after the first below its beginning.
std::string indented(const std::string& text) {
  constexpr std::size_t indent = 8;
  const std::size_t width = output_width() > 2 * indent ? output_width() - indent : 0;
  std::string all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    for (const std::string& each : wrapped(line, width)) all.append(all.empty() ? 0 : indent, ' ').append(each) += '\n';
  return all.empty() ? "\n" : all;
}

struct DoctorSettings {};

int run(const Globals& globals, const DoctorSettings& /*settings*/) {
  const std::vector<Finding> findings = examine(globals);
  bool broken = false;
  for (const Finding& each : findings) {
    broken = broken || each.health == Health::broken;
    if (globals.json)
      print_json(
          {{"what", each.what}, {"health", word_of(each.health)}, {"found", each.found}, {"meaning", each.meaning}});
    else
      print(fmt::format("{:<8}{}{:8}{}", word_of(each.health), indented(each.what + ": " + each.found), "",
                        indented(each.meaning)));
  }
  return broken ? exit_wrong : exit_good;
}

}  // namespace

void add_doctor(CLI::App& app, Chosen& chosen) {
  add_command<DoctorSettings>(app, chosen, "doctor",
                              "Report the driver, NVRTC, headers and files found, and what follows", nullptr, run,
                              takes_layers | takes_templates | takes_remote)
      ->footer("Exit status 1: something is broken. If something is merely absent, the status is 0.");
}

}  // namespace kiln::cli

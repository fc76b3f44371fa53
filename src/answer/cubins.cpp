#include "answer/cubins.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/nvrtc_api.hpp"
#include "jit/library.hpp"
#include "kiln/error.hpp"

namespace kiln::answer {

namespace {

/// For what has no kernels: returns an empty cubin with the library as compiler, or nothing where the library is
/// missing.
std::optional<KeyedCubin> in_library(const jit::Specialisation& specialisation) {
  std::string identity = jit::library_identity(specialisation.library);
  if (identity.empty()) return std::nullopt;
  return KeyedCubin{{}, std::move(identity), {}, {}};
}

/// Says why no file supplies this machine code.
std::string why_in_no_file(const store::Layers& layers, const jit::Specialisation& specialisation) {
  if (const auto at = untrusted_layer_with(layers, specialisation))
    return fmt::format("{} has the machine code and may not supply it ({})", name_of(layers.layers()[*at]),
                       layers.layers()[*at].trust);
  for (const store::Layer& layer : layers.layers())
    if (!layer.file) return fmt::format("no file has the machine code, and a base is left out: {}", layer.refused);
  return "no file has the machine code";
}

}  // namespace

std::optional<std::size_t> untrusted_layer_with(const store::Layers& layers,
                                                const jit::Specialisation& specialisation) {
  for (std::size_t at = 0; at < layers.layers().size(); ++at) {
    const store::Layer& layer = layers.layers()[at];
    if (!layer.file || layer.trusted_for_code) continue;
    const auto look_up = [&](const manifest::Digest& key) { return layer.file->find_cubin(key); };
    for (const std::string& compiler : layer.file->compilers())
      if (jit::find_by_key(specialisation, compiler, look_up)) return at;
  }
  return std::nullopt;
}

std::string Cubins::compiler_for(const jit::Specialisation& specialisation) {
  try {
    if (!pool_.may_compile())
      throw Error(
          ErrorKind::no_nvrtc,
          "a compile is needed, and Options::compile is never; add the file that holds the code, or bring it there by Tuner::compile");
    return jit::compiler_identity();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_nvrtc) throw;
    throw Error(error.kind(),
                fmt::format("{}: {}; {}", specialisation.label, why_in_no_file(layers_, specialisation), error.what()));
  }
}

const std::string& Cubins::own_compiler() {
  static const auto& none = *new std::string;
  if (!pool_.may_compile() || cuda::Nvrtc::find() == nullptr)
    return none;  // for now: what could not be opened may be later
  std::call_once(once_, [this] { compiler_ = jit::compiler_identity(); });
  return compiler_;
}

std::optional<KeyedCubin> Cubins::find(const jit::Specialisation& specialisation, store::Counters* met) {
  if (!specialisation.has_kernels()) return in_library(specialisation);
  return own_compiler().empty() ? find_serving(specialisation, {}, met)
                                : find_under(own_compiler(), specialisation, met);
}

std::optional<KeyedCubin> Cubins::find_serving(const jit::Specialisation& specialisation, std::string_view recorded,
                                               store::Counters* met) {
  if (!specialisation.has_kernels()) return in_library(specialisation);
  bool is_refused = false;  // then it is compiled anew, whatever another compiler made
  const auto ask = [&](std::string_view compiler) {
    is_refused = is_passed_over(specialisation, compiler);
    return is_refused ? std::nullopt : find_under(compiler, specialisation, met);
  };
  const std::string& own = own_compiler();
  if (!own.empty())
    if (auto found = ask(own); found || is_refused) return found;
  if (!recorded.empty() && recorded != own)
    if (auto found = ask(recorded); found || is_refused) return found;
  for (const std::string& compiler : layers_.compilers())  // reads all rows
    if (compiler != own && compiler != recorded)
      if (auto found = ask(compiler); found || is_refused) return found;
  return std::nullopt;
}

bool Cubins::holds(const jit::Specialisation& specialisation, std::string_view recorded) {
  const auto look_up = [&](const manifest::Digest& key) { return layers_.has_cubin(key); };
  for (const std::string_view compiler : {std::string_view(own_compiler()), recorded}) {
    if (compiler.empty()) continue;
    if (is_passed_over(specialisation, compiler)) return false;
    if (jit::find_by_key(specialisation, compiler, look_up)) return true;
  }
  return false;
}

std::optional<KeyedCubin> Cubins::find_under(std::string_view compiler, const jit::Specialisation& specialisation,
                                             store::Counters* met) {
  if (is_passed_over(specialisation, compiler)) return std::nullopt;
  auto found = jit::find_by_key(specialisation, compiler,
                                [&](const manifest::Digest& key) { return layers_.find_cubin(key, met); });
  if (!found) return std::nullopt;
  jit::Cubin cubin{std::move(found->value.image), std::move(found->value.lowered_names), {}, {}};
  return KeyedCubin{jit::cubin_key(specialisation, compiler), std::string(compiler), std::move(cubin), found->layer};
}

void Cubins::prefetch(const jit::Specialisation& specialisation, jit::Urgency urgency) {
  begin_compile_unless([&] { return find(specialisation).has_value(); }, specialisation, urgency);
}

void Cubins::prefetch_serving(const jit::Specialisation& specialisation, std::string_view recorded) {
  begin_compile_unless([&] { return find_serving(specialisation, recorded).has_value(); }, specialisation,
                       jit::Urgency::now);
}

void Cubins::begin_compile_unless(const std::function<bool()>& is_found, const jit::Specialisation& specialisation,
                                  jit::Urgency urgency) {
  if (!specialisation.has_kernels() || own_compiler().empty()) return;
  try {
    if (!is_found()) pool_.submit(jit::cubin_key(specialisation, own_compiler()), specialisation, urgency);
  } catch (const Error& error) {  // refused sources: get() throws again
    if (error.kind() != ErrorKind::compile_failed) throw;
  }
}

std::shared_future<jit::Cubin> Cubins::begin_spare(const jit::Specialisation& specialisation) {
  return pool_.submit(jit::cubin_key(specialisation, own_compiler()), specialisation, jit::Urgency::spare);
}

void Cubins::keep(const jit::Specialisation& specialisation, const jit::Cubin& cubin) {
  put(specialisation, {jit::cubin_key(specialisation, own_compiler()), own_compiler(), cubin, {}});
}

void Cubins::put(const jit::Specialisation& specialisation, const KeyedCubin& cubin) {
  const store::CubinRow row = to_row(specialisation, cubin);
  if (!is_passed_over(specialisation, cubin.compiler)) return layers_.put_all({}, {&row, 1});
  layers_.put_all({}, {&row, 1}, store::Existing::replace);
  const std::lock_guard lock(refused_mutex_);
  refused_[cubin.key] = false;
}

bool Cubins::note_refused(const manifest::Digest& key) {
  const std::lock_guard lock(refused_mutex_);
  return refused_.insert_or_assign(key, true).second;
}

bool Cubins::has_refused() {
  const std::lock_guard lock(refused_mutex_);
  return !refused_.empty();
}

bool Cubins::is_passed_over(const jit::Specialisation& specialisation, std::string_view compiler) {
  if (!has_refused() || !can_compile()) return false;
  const manifest::Digest key = jit::cubin_key(specialisation, compiler);
  const std::lock_guard lock(refused_mutex_);
  const auto found = refused_.find(key);
  return found != refused_.end() && found->second;
}

bool Cubins::passes_over(const jit::Specialisation& specialisation, std::string_view recorded) {
  if (!has_refused()) return false;
  std::vector<std::string> compilers = layers_.compilers();
  compilers.insert(compilers.end(), {own_compiler(), std::string(recorded)});
  return std::ranges::any_of(compilers, [&](const std::string& each) { return is_passed_over(specialisation, each); });
}

KeyedCubin Cubins::compile(const jit::Specialisation& specialisation, const std::function<void()>& begun) {
  if (!specialisation.has_kernels())
    throw Error(specialisation.library == "nccl" ? ErrorKind::no_nccl : ErrorKind::no_cublaslt,
                specialisation.label + ": the library " + specialisation.library + " is not here");
  const std::string compiler = compiler_for(specialisation);
  const manifest::Digest key = jit::cubin_key(specialisation, compiler);
  const auto cubin = pool_.submit(key, specialisation);
  if (begun) begun();
  return {key, compiler, cubin.get(), {}};
}

KeyedCubin Cubins::get(const jit::Specialisation& specialisation) {
  if (auto found = find(specialisation)) return std::move(*found);
  return compile(specialisation);
}

KeyedCubin Cubins::get_and_keep(const jit::Specialisation& specialisation) {
  if (auto found = find(specialisation)) return std::move(*found);
  return compile_and_keep(specialisation);
}

KeyedCubin Cubins::get_serving_and_keep(const jit::Specialisation& specialisation) {
  if (auto found = find_serving(specialisation, {})) return std::move(*found);
  return compile_and_keep(specialisation);
}

KeyedCubin Cubins::compile_and_keep(const jit::Specialisation& specialisation, const std::function<void()>& begun) {
  KeyedCubin cubin = compile(specialisation, begun);
  put(specialisation, cubin);
  return cubin;
}

store::CubinRow to_row(const jit::Specialisation& specialisation, const KeyedCubin& cubin) {
  return {cubin.key,
          specialisation.op,
          manifest::to_hex(jit::code_digest(specialisation)),
          specialisation.label,
          specialisation.arch,
          cubin.compiler,
          specialisation.name_expressions,
          cubin.cubin.lowered_names,
          cubin.cubin.image};
}

}  // namespace kiln::answer

// What kiln_torch/_library.py calls by ctypes: it defines ops of torch at run time, so that a user's op is defined as ours are.
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "op.hpp"

namespace kiln_torch {
namespace {

constexpr std::size_t most_ops = 512;

const kiln_python_table* table = nullptr;
std::array<std::atomic<Op*>, most_ops> ops;
std::mutex defining;
std::size_t op_count = 0;

using Boxed = void (*)(StableIValue*, std::uint64_t, std::uint64_t);

/// A boxed function does not learn which op it is of, so each op has one of its own.
template <std::size_t Index>
void boxed(StableIValue* stack, std::uint64_t, std::uint64_t) {
  ops[Index].load(std::memory_order_acquire)->call(stack);
}

template <std::size_t... Index>
constexpr std::array<Boxed, sizeof...(Index)> all_boxed(std::index_sequence<Index...>) {
  return {boxed<Index>...};
}
constexpr std::array<Boxed, most_ops> functions = all_boxed(std::make_index_sequence<most_ops>());

void define(const std::string& space, const std::string& name, const char* schema, Signature signature) {
  const std::lock_guard lock(defining);
  if (op_count == most_ops) fail("kiln.torch has " + std::to_string(most_ops) + " ops, which is the most in a process");
  const std::size_t at = op_count++;
  TorchLibraryHandle library = nullptr;
  ops[at].store(new Op(name, std::move(signature)),
                std::memory_order_release);  // as long as the process, as torch's op
  check_torch(aoti_torch_library_init_fragment(space.c_str(), __FILE__, __LINE__, &library), "opening a namespace");
  check_torch(aoti_torch_library_def(library, schema), "defining an op");
  for (const char* const key : {"CUDA", "CPU"}) {  // of which the second refuses in a sentence
    check_torch(aoti_torch_library_init_impl(space.c_str(), key, __FILE__, __LINE__, &library), "opening a namespace");
    check_torch(torch_library_impl(library, name.c_str(), functions[at], TORCH_ABI_VERSION), "implementing an op");
  }
}

std::string& failure() {
  thread_local std::string text;
  return text;
}

template <class Function>
const char* told(const Function& function) noexcept {
  try {
    function();
    return nullptr;
  } catch (const std::exception& error) {
    failure() = error.what();
    return failure().c_str();
  }
}

}  // namespace

const kiln_python_table& kiln() { return *table; }

}  // namespace kiln_torch

// Both give null, or why not.
extern "C" {
[[gnu::visibility("default")]] const char* kiln_torch_install(const kiln_python_table* with) {
  return kiln_torch::told([&] {
    if (with->size != sizeof *with)
      kiln_torch::fail("kiln-kernels and kiln-kernels-torch are of different versions; install the same of both");
    kiln_torch::table = with;
    kiln_torch::share_allocator();
  });
}

[[gnu::visibility("default")]] const char* kiln_torch_define(const char* space, const char* name, const char* schema,
                                                             const char* signature) {
  return kiln_torch::told([&] { kiln_torch::define(space, name, schema, kiln_torch::parse_signature(signature)); });
}
}

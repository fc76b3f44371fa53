#include "driver/machine.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "driver/control.hpp"

namespace fake_cuda {

Machine& Machine::get() {
  // Never destroyed: an engine's thread may call the driver while the process exits.
  static auto& machine = *new Machine;
  return machine;
}

Machine::Machine() {
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking != nullptr && std::atoi(blocking) != 0) settings.blocking = 1;
  const char* command = std::getenv("FAKE_CUDA");
  if (command == nullptr || obey(command)) return;
  std::fprintf(stderr, "fake_cuda: FAKE_CUDA is not understood: %s\n", command);
  std::abort();
}

ContextStack& context_stack() noexcept {
  constinit thread_local static ContextStack stack;
  return stack;
}

void Machine::require_device(CUdevice device) const {
  require(device >= 0 && device < settings.devices, CUDA_ERROR_INVALID_DEVICE);
}

bool Machine::may_use_devices() {
  const char* file = std::getenv("FAKE_CUDA_EXCLUSIVE");
  if (settings.mode != 3 || file == nullptr || exclusive_ >= 0) return settings.mode != 2;
  exclusive_ = ::open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (exclusive_ < 0 || ::flock(exclusive_, LOCK_EX | LOCK_NB) == 0) return true;
  ::close(std::exchange(exclusive_, -1));
  return false;
}

CUcontext Machine::retain(CUdevice device) {
  require_device(device);
  auto& context = contexts[device];
  if (!context) context = std::make_unique<CUctx_st>(device);
  ++context->retained;
  return context.get();
}

CUstream Machine::begin_stream(CUctx_st& context, bool blocking) {
  if (free_stream_handles.empty()) free_stream_handles.push_back(reinterpret_cast<CUstream>(last_stream_handle += 16));
  CUstream_st* const handle = free_stream_handles.back();
  free_stream_handles.pop_back();
  streams.make_as(handle, context, blocking);
  return handle;
}

void Machine::end_stream(CUstream stream) {
  std::unique_ptr<CUstream_st> ended = streams.take(stream);
  free_stream_handles.push_back(stream);
  if (!ended->late.empty()) ended_streams.push_back(std::move(ended));
}

void Machine::release(CUdevice device) {
  require_device(device);
  const auto found = contexts.find(device);
  require(found != contexts.end(), CUDA_ERROR_INVALID_CONTEXT);
  if (--found->second->retained > 0) return;
  empty(device);
  contexts.erase(found);
}

void Machine::empty(CUdevice device) {
  CUctx_st* context = contexts.at(device).get();
  run_late(*this);
  std::erase_if(captures, [&](const auto& capture) { return streams[capture->origin].context == context; });
  events.destroy_if([&](const CUevent_st& event) { return event.context == context; });
  streams.destroy_if([&](const CUstream_st& stream) { return stream.context == context; });
  modules.destroy_if([&](const CUmod_st& module) { return module.context == context; });
  heap.release_all(device);
  context->broken = CUDA_SUCCESS;
}

bool Machine::obey(std::string_view command) {
  Settings new_settings = settings;
  Faults new_faults = faults;
  for (const std::string_view statement : split(command, ';')) {
    const std::vector<std::string_view> words = split(statement, ' ');
    if (words.empty()) continue;
    if (new_faults.obey(statement)) continue;
    if (words.size() != 2 || !new_settings.set(words[0], words[1])) return false;
  }
  settings = new_settings;
  faults = std::move(new_faults);
  return true;
}

std::int64_t Machine::answer(std::string_view question) const {
  const std::string_view word = question.substr(0, question.find(' '));
  const std::string_view rest = question.substr(std::min(word.size() + 1, question.size()));
  if (word == "memory") return heap.bytes();
  if (word == "peak") return heap.peak_bytes();
  if (word == "allocations") return heap.count();
  if (word == "mappings") return virtual_memory.count();
  if (word == "handles")
    return streams.count() + events.count() + modules.count() + graphs.count() + executables.count();
  if (word == "calls") return faults.calls(rest);
  if (word == "faults") return faults.effective();
  if (word == "unsafe") return unsafe_calls;
  if (word == "blocked") return blocked_launches;
  if (word == "broken") return captures_broken;
  if (word == "contexts") return static_cast<std::int64_t>(contexts.size());
  if (word != "launches") return -1;
  std::int64_t count = 0;
  for (const auto& [kernel, times] : launches) {
    if (kernel.find(rest) != std::string::npos) count += times;
  }
  return count;
}

}  // namespace fake_cuda

int fake_cuda_control(const char* command) {
  fake_cuda::Machine& machine = fake_cuda::Machine::get();
  const std::lock_guard lock(machine.mutex);
  const bool understood = machine.obey(command);
  machine.healed.notify_all();
  return understood ? 0 : 1;
}

std::int64_t fake_cuda_query(const char* question) {
  fake_cuda::Machine& machine = fake_cuda::Machine::get();
  const std::lock_guard lock(machine.mutex);
  return machine.answer(question);
}

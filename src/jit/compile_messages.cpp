#include "jit/compile_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "process/message.hpp"

namespace kiln::jit {

using Json = nlohmann::json;

Json to_json(const CompileRequest& request) {
  const Specialisation& specialisation = request.specialisation;
  return {{"compile",
           {{"key", process::to_json(std::span<const std::byte>(request.key))},
            {"op", specialisation.op},
            {"label", specialisation.label},
            {"entry", specialisation.entry},
            {"folder", specialisation.folder},
            {"files", process::to_json(specialisation.files)},
            {"names", specialisation.name_expressions},
            {"options", specialisation.options},
            {"arch", specialisation.arch},
            {"toolkit_headers", specialisation.toolkit_headers},
            {"nvrtc", request.nvrtc},
            {"memory_bytes", request.memory_bytes},
            {"low_priority", request.low_priority}}}};
}

CompileRequest request_from_json(const Json& message) {
  const Json& json = message.at("compile");
  CompileRequest request;
  const auto key = process::bytes_from_json(json.at("key"));
  std::copy_n(key.begin(), std::min(key.size(), request.key.size()), request.key.begin());
  Specialisation& specialisation = request.specialisation;
  json.at("op").get_to(specialisation.op);
  json.at("label").get_to(specialisation.label);
  json.at("entry").get_to(specialisation.entry);
  json.at("folder").get_to(specialisation.folder);
  specialisation.files = process::files_from_json(json.at("files"));
  json.at("names").get_to(specialisation.name_expressions);
  json.at("options").get_to(specialisation.options);
  json.at("arch").get_to(specialisation.arch);
  json.at("toolkit_headers").get_to(specialisation.toolkit_headers);
  json.at("nvrtc").get_to(request.nvrtc);
  json.at("memory_bytes").get_to(request.memory_bytes);
  json.at("low_priority").get_to(request.low_priority);
  return request;
}

Json to_json(const Cubin& cubin) {
  return {{"image", process::to_json(std::span<const std::byte>(cubin.image))},
          {"lowered", cubin.lowered_names},
          {"log", cubin.log},
          {"compile_ns", cubin.compile_time.count()}};
}

Cubin cubin_from_json(const Json& message, std::size_t names) {
  Cubin cubin;
  cubin.image = process::bytes_from_json(message.at("image"));
  message.at("lowered").get_to(cubin.lowered_names);
  message.at("log").get_to(cubin.log);
  cubin.compile_time = std::chrono::nanoseconds(message.at("compile_ns").get<std::int64_t>());
  if (cubin.image.empty()) throw std::runtime_error("it holds no machine code");
  if (cubin.lowered_names.size() != names)
    throw std::runtime_error(
        fmt::format("it holds {} lowered names, and {} were asked for", cubin.lowered_names.size(), names));
  return cubin;
}

}  // namespace kiln::jit

// Reads [pass.model], the work of a pass, for the cost model.
#include "manifest/manifest_parts.hpp"

namespace kiln::manifest {

PassModel read_pass_model(const ManifestReader& reader, const TomlValue& section, const Op& op,
                          const Symbols& symbols) {
  constexpr std::string_view where = "[pass.model]";
  reader.check_keys(section, where,
                    {"operations", "unit", "read_bytes", "traffic_bytes", "written_bytes", "memory_bytes",
                     "shared_bytes", "bytes_in_flight", "round_trips", "registers"});
  PassModel model;
  const auto read = [&](std::string_view key, std::optional<Expression>& into) {
    if (const TomlValue* value = section.find(key))
      into = reader.expression(*value, "'" + std::string(key) + "'", symbols, op, Known::launch);
  };
  read("operations", model.operations);
  read("read_bytes", model.read_bytes);
  read("traffic_bytes", model.traffic_bytes);
  read("written_bytes", model.written_bytes);
  read("memory_bytes", model.memory_bytes);
  read("shared_bytes", model.shared_bytes);
  read("bytes_in_flight", model.bytes_in_flight);
  read("round_trips", model.round_trips);
  read("registers", model.registers);
  if (const TomlValue* unit = section.find("unit"))
    model.unit = static_cast<Unit>(reader.one_of(*unit, "'unit'", {"instruction", "fma", "mma", "wgmma"}));
  return model;
}

}  // namespace kiln::manifest

# Writes OUTPUT, a C++ source with every .toml and .cuh file under ROOT as {path, text}; paths are relative to ROOT.
file(GLOB_RECURSE files RELATIVE "${ROOT}" "${ROOT}/*.toml" "${ROOT}/*.cuh")
list(SORT files)
set(arrays "")
set(table "")
set(index 0)
foreach(file IN LISTS files)
  file(READ "${ROOT}/${file}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "const unsigned char file_${index}[] = {${bytes}0};\n")
  string(APPEND table "    {\"${file}\", {reinterpret_cast<const char*>(file_${index}), sizeof file_${index} - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include \"manifest/embedded.hpp\"\n\nnamespace kiln::manifest {\nnamespace {\n${arrays}
const EmbeddedFile table[] = {\n${table}};\n}  // namespace\n
std::span<const EmbeddedFile> embedded_files() noexcept { return table; }\n\n}  // namespace kiln::manifest\n")

# Installs BUILD into SCRATCH, then configures, builds and runs the consumer against that prefix alone, and against the build tree itself.
# README's program is the consumer's.
foreach(name BUILD SOURCE SCRATCH COMPILER TYPE README)
  if(NOT DEFINED ${name})
    message(FATAL_ERROR "check.cmake needs -D${name}=")
  endif()
endforeach()
file(REMOVE_RECURSE "${SCRATCH}")

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
file(READ "${README}" readme)
file(READ "${SOURCE}/main.cpp" program)
string(FIND "${readme}" "```cpp\n${program}```" shown)
if(shown EQUAL -1)
  message(FATAL_ERROR "the program in ${README} is not ${SOURCE}/main.cpp: copy that file between the lines ```cpp and ```")
endif()

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/prefix" --component library)
foreach(package "${SCRATCH}/prefix" "${BUILD}") # installed, then where it was built
  get_filename_component(name "${package}" NAME)
  set(program "${SCRATCH}/with_${name}")
  run("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${program}" -G Ninja "-Dkiln_ROOT=${package}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_BUILD_TYPE=${TYPE}")
  run("${CMAKE_COMMAND}" --build "${program}")
  if(NOT EXISTS "${program}/kiln-worker")
    message(FATAL_ERROR "kiln::worker of ${package} was not copied beside ${program}/consumer")
  endif()
  execute_process(COMMAND "${program}/consumer" RESULT_VARIABLE status)
  if(NOT status EQUAL 0 AND NOT status EQUAL 3) # 3: there is no GPU
    message(FATAL_ERROR "${program}/consumer ended with ${status}")
  endif()
endforeach()

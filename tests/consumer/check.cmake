# Installs BUILD into SCRATCH, then configures, builds and runs the consumer against that prefix alone.
foreach(name BUILD SOURCE SCRATCH COMPILER TYPE)
  if(NOT DEFINED ${name})
    message(FATAL_ERROR "check.cmake needs -D${name}=")
  endif()
endforeach()
file(REMOVE_RECURSE "${SCRATCH}")

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/prefix" --component library)
run("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${SCRATCH}/build" -G Ninja "-DCMAKE_PREFIX_PATH=${SCRATCH}/prefix"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_BUILD_TYPE=${TYPE}")
run("${CMAKE_COMMAND}" --build "${SCRATCH}/build")
run("${SCRATCH}/build/consumer")

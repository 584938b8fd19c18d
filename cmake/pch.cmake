# Precompiled headers: the parts of the standard library that most files include, and fmt. They save
# about a third of a file's compile time. Sources include what they use all the same, so that
# -DTALON_PCH=OFF builds, too; only C++ gets them, not CUDA.

option(TALON_PCH "Precompile headers" ON)

set(TALON_PCH_HEADERS
  <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstdio> <cstring>
  <functional> <limits> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view>
  <thread> <unordered_map> <utility> <variant> <vector> <fmt/core.h>)

# talon_precompile(TARGET KIND HEADER...): the first target of a KIND makes the precompiled header,
# the others use it. Targets of a kind must be compiled with the same options, -O1 to -O3 apart.
function(talon_precompile target kind)
  if(NOT TALON_PCH)
    return()
  endif()
  get_property(owner GLOBAL PROPERTY TALON_PCH_OF_${kind})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
    set_property(GLOBAL PROPERTY TALON_PCH_OF_${kind} ${target})
  endif()
endfunction()

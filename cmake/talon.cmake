# One library per module, one test program per module, the same warnings everywhere.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

# The libraries also become part of the Python module, a shared object. Hidden names keep the compiler
# as free as in a program: it may inline what cannot be replaced from outside.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

find_program(TALON_CCACHE ccache)
if(TALON_CCACHE)
  # Without these ccache would not cache what uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${TALON_CCACHE})
endif()

# Options of the C++ compiler, which nvcc takes only when they are handed on.
function(talon_compile_options)
  foreach(option ${ARGN})
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${option}>" "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${option}>")
  endforeach()
endfunction()

talon_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wno-psabi)
# The same source must give the same bits wherever a row is computed: no compiler-chosen contraction.
talon_compile_options(-ffp-contract=off)
if(TALON_SANITIZE)
  add_compile_options(-fsanitize=${TALON_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TALON_SANITIZE})
endif()
# Two checks of every pointer double the time of compiling. AddressSanitizer stops at null pointers
# anyway; alignment is checked in the modules that read bytes as numbers.
if(TALON_SANITIZE MATCHES "undefined")
  add_compile_options(-fno-sanitize=null,alignment)
endif()
set(TALON_ALIGNMENT_CHECKED compute kv model wire)

include(${CMAKE_CURRENT_LIST_DIR}/pch.cmake)

# Release builds compile quickly what takes no time when it runs.
function(talon_compile_quickly target)
  target_compile_options(${target} PRIVATE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  # GCC 12 is wrong about std::string where it inlines some of it.
  foreach(warning array-bounds restrict stringop-overflow stringop-overread)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-${warning}>)
  endforeach()
endfunction()

# Libraries and tests are compiled eight sources at a time: a whole build takes half as long. For
# work on the code, where one file changes at a time, -DTALON_UNITY=OFF is quicker.
option(TALON_UNITY "Compile several sources of a library or a test at once" ON)
function(talon_unity target)
  if(NOT TALON_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  # GCC takes an included source for a header, and the others are wrong where it inlines more.
  foreach(warning array-bounds maybe-uninitialized restrict stringop-overflow subobject-linkage)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-${warning}>)
  endforeach()
endfunction()

# talon_library(NAME [COLD] [JSON] SOURCES ... DEPS ...): static library talon_NAME with src/ as its
# include root. COLD: nothing in it takes time when it runs. JSON: most sources need base/json.h.
function(talon_library name)
  cmake_parse_arguments(arg "COLD;JSON" "" "SOURCES;DEPS" ${ARGN})
  add_library(talon_${name} STATIC ${arg_SOURCES})
  target_include_directories(talon_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  talon_unity(talon_${name})
  target_link_libraries(talon_${name} PUBLIC ${arg_DEPS})
  if(TALON_SANITIZE MATCHES "undefined" AND name IN_LIST TALON_ALIGNMENT_CHECKED)
    target_compile_options(talon_${name} PRIVATE -fsanitize=alignment)
  endif()
  if(arg_COLD)
    talon_compile_quickly(talon_${name})
  endif()
  if(arg_JSON)
    talon_precompile(talon_${name} LIBRARIES_WITH_JSON ${TALON_PCH_HEADERS} <nlohmann/json.hpp>)
  else()
    talon_precompile(talon_${name} LIBRARIES ${TALON_PCH_HEADERS})
  endif()
endfunction()

# ctest starts first what has the highest COST, so that nothing long runs alone at the end: seconds,
# here of a shard; tests/CMakeLists.txt has those of scripts.
set(TALON_SHARD_COST 22)

# talon_add_shards(NAME PROGRAM N [VARIABLE=VALUE ...]): N tests NAME_1 to NAME_N, each with a part of a
# gtest program's cases.
function(talon_add_shards name program shards)
  foreach(number RANGE 1 ${shards})
    math(EXPR index "${number} - 1")
    add_test(NAME ${name}_${number} COMMAND ${program})
    set_tests_properties(${name}_${number} PROPERTIES COST ${TALON_SHARD_COST}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index};${ARGN}")
  endforeach()
endfunction()

# talon_test(NAME [SHARDS N] [COST SECONDS] SOURCES ... DEPS ... [LAUNCHER ...]): gtest program NAME,
# run by ctest as a whole, by a command where one is given, or as N tests NAME_1 to NAME_N side by side.
function(talon_test name)
  if(NOT TALON_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "" "SHARDS;COST" "SOURCES;DEPS;LAUNCHER" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gtest_main)
  # What takes time is in the libraries; a test's own code should compile quickly.
  talon_compile_quickly(${name})
  if(TALON_SANITIZE)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  endif()
  talon_unity(${name})
  talon_precompile(${name} TESTS ${TALON_PCH_HEADERS} <gtest/gtest.h>)
  target_compile_definitions(${name} PRIVATE TALON_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT arg_SHARDS)
    add_test(NAME ${name} COMMAND ${arg_LAUNCHER} $<TARGET_FILE:${name}>)
    if(arg_COST)
      set_tests_properties(${name} PROPERTIES COST ${arg_COST})
    endif()
    return()
  endif()
  talon_add_shards(${name} ${name} ${arg_SHARDS})
endfunction()

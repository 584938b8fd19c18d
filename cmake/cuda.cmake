# The CUDA backend. TALON_WITH_CUDA is AUTO (built where nvcc is found), ON (an error where it is not)
# or OFF. Sets TALON_HAS_CUDA and TALON_HAS_NCCL. The preset `cuda` says AUTO; elsewhere OFF keeps
# builds fast on machines that have nvcc.

set(TALON_WITH_CUDA OFF CACHE STRING "The CUDA backend: AUTO, ON or OFF")
set_property(CACHE TALON_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TALON_HAS_CUDA OFF)

if(TALON_WITH_CUDA)
  # Many machines have nvcc without having it on the PATH.
  find_program(TALON_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH ENV CUDA_HOME
    PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
  if(TALON_NVCC AND NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${TALON_NVCC} CACHE FILEPATH "The CUDA compiler")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(TALON_HAS_CUDA ON)
  elseif(TALON_WITH_CUDA STREQUAL "AUTO")
    talon_lacks("nvcc" "--device cuda")
  else()
    message(FATAL_ERROR "TALON_WITH_CUDA is ${TALON_WITH_CUDA}, but nvcc was not found")
  endif()
endif()

if(TALON_HAS_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES "80;90a" CACHE STRING "GPU architectures to compile for")
  if(TALON_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${TALON_CCACHE})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  find_package(CUDAToolkit REQUIRED)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-lineinfo>")
  # fmt is only half constexpr under nvcc unless told otherwise, and nvcc takes assigning a Status for
  # ignoring one.
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-DFMT_USE_CONSTEXPR=1;--diag-suppress=2810>")
  # nvcc needs moves in return statements that GCC calls redundant.
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wno-redundant-move>")

  # GPUs of several ranks exchange by it. It has no CMake or pkg-config file everywhere.
  option(TALON_WITH_NCCL "Connect the GPUs of several ranks by NCCL where it is found" ON)
  set(TALON_HAS_NCCL OFF)
  if(TALON_WITH_NCCL AND TALON_HAS_MPI)
    find_path(TALON_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(TALON_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
    if(TALON_NCCL_INCLUDE AND TALON_NCCL_LIBRARY)
      set(TALON_HAS_NCCL ON)
      add_library(talon_nccl INTERFACE)
      target_include_directories(talon_nccl SYSTEM INTERFACE ${TALON_NCCL_INCLUDE})
      target_link_libraries(talon_nccl INTERFACE ${TALON_NCCL_LIBRARY})
    endif()
  endif()
  if(NOT TALON_HAS_NCCL)
    talon_lacks("NCCL" "GPUs of several ranks exchange through host memory, slowly")
  endif()
  message(STATUS "CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
endif()

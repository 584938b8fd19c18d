# Matrix kernels: portable ones, and small files that only their own flags can compile. Which of them
# run is decided at run time (cpu_features.h).

set(TALON_CPU_KERNEL_SOURCES
  cpu/cpu_features.cc cpu/matmul/kernels_float.cc cpu/matmul/kernels_portable.cc
  cpu/matmul/kernels_portable_int4.cc cpu/matmul/kernels_table.cc cpu/matmul/matmul.cc
  cpu/matmul/mxfp4/mxfp4.cc cpu/matmul/mxfp4/mxfp4_kernels.cc cpu/matmul/pack.cc cpu/peak_kernels.cc cpu/matmul/quantize.cc
  cpu/matmul/product/block_sums.cc cpu/matmul/product/pack_rows.cc cpu/matmul/product/run_block.cc cpu/matmul/product/store_rows.cc)
set(TALON_CPU_KERNEL_TESTS
  cpu/matmul/int4_test.cc cpu/matmul/mxfp4/mxfp4_test.cc cpu/matmul/test.cc cpu/matmul/testing.cc cpu/matmul/quantize_test.cc
  cpu/matmul/product/segments_test.cc)

function(talon_kernel source)
  set_source_files_properties(${source} PROPERTIES
    COMPILE_OPTIONS "${ARGN}" SKIP_PRECOMPILE_HEADERS ON)
  set(TALON_CPU_KERNEL_SOURCES ${TALON_CPU_KERNEL_SOURCES} ${source} PARENT_SCOPE)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  talon_kernel(cpu/matmul/kernels_arm_bf16.cc -march=armv8.2-a+bf16)
  talon_kernel(cpu/matmul/kernels_arm_dotprod.cc -march=armv8.2-a+dotprod)
  talon_kernel(cpu/matmul/kernels_arm_dotprod_int4.cc -march=armv8.2-a+dotprod)
  talon_kernel(cpu/matmul/kernels_arm_fp16.cc -march=armv8.2-a+fp16fml)
  talon_kernel(cpu/matmul/mxfp4/mxfp4_arm_dotprod.cc -march=armv8.2-a+dotprod)
  talon_kernel(cpu/matmul/kernels_arm_i8mm.cc -march=armv8.2-a+i8mm)
  talon_kernel(cpu/matmul/kernels_arm_i8mm_int4.cc -march=armv8.2-a+i8mm)
  talon_kernel(cpu/matmul/mxfp4/mxfp4_arm_i8mm.cc -march=armv8.2-a+i8mm)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  talon_kernel(cpu/matmul/kernels_x86_amx.cc -mamx-tile -mamx-int8 -mamx-bf16)
  talon_kernel(cpu/matmul/kernels_x86_avx2.cc -mavx2)
  talon_kernel(cpu/matmul/kernels_x86_avx2_int4.cc -mavx2 -mfma)
  talon_kernel(cpu/matmul/mxfp4/mxfp4_x86_avx2.cc -mavx2 -mfma)
  # GCC 12 takes the undefined operand inside its own AVX-512 functions for a mistake of ours.
  set(TALON_AVX512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -Wno-maybe-uninitialized)
  talon_kernel(cpu/matmul/kernels_x86_avx512.cc ${TALON_AVX512})
  talon_kernel(cpu/matmul/kernels_x86_amx_int4.cc ${TALON_AVX512} -mavx512vnni -mamx-tile -mamx-int8)
  talon_kernel(cpu/matmul/kernels_x86_bf16.cc ${TALON_AVX512} -mavx512bf16)
  talon_kernel(cpu/matmul/kernels_x86_vnni.cc ${TALON_AVX512} -mavx512vnni)
  talon_kernel(cpu/matmul/kernels_x86_vnni_int4.cc ${TALON_AVX512} -mavx512vnni)
  talon_kernel(cpu/matmul/mxfp4/mxfp4_x86_vnni.cc ${TALON_AVX512} -mavx512vnni)
endif()

// For small loops that the compiler vectorises: x86 builds have them for several sets of
// instructions, of which the program takes the best at its start. Elsewhere the baseline is enough.
// A level is taken by what the processor can do, a name like skylake-avx512 on that model only.
#ifndef TALON_COMPUTE_CPU_VECTOR_CLONES_H_
#define TALON_COMPUTE_CPU_VECTOR_CLONES_H_

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TALON_VECTOR_CLONES \
  __attribute__((flatten, target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define TALON_VECTOR_CLONES
#endif

#endif  // TALON_COMPUTE_CPU_VECTOR_CLONES_H_

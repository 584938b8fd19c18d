// A fault of the device, for tests of what happens then.
#ifndef TALON_COMPUTE_CUDA_TESTING_TRAP_H_
#define TALON_COMPUTE_CUDA_TESTING_TRAP_H_

namespace talon::cuda {

// Runs a kernel that traps. From then on every CUDA call of this process fails.
void TrapDevice();

// Lets every later launch of the backend fail, or no longer.
void FailLaunches(bool fail);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TESTING_TRAP_H_

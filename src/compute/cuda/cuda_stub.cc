// Stands in for the CUDA backend in builds without it.
#include "compute/cuda/cuda_backend.h"

namespace talon {

Result<std::unique_ptr<Backend>> NewCudaBackend(const CudaOptions&) {
  return Unimplemented(
      "this build has no CUDA backend (nvcc was not found, or the preset was not cuda); use "
      "--device cpu");
}

int NumCudaDevices() { return 0; }

Result<std::string> LinkGpus(Backend* backend, Ranks* /*ranks*/, bool /*wanted*/) {
  return InvalidArgument("the {} backend is not a CUDA device", backend->info().name);
}

Result<double> MeasureCudaReadBandwidth(Backend* backend) {
  return InvalidArgument("the {} backend is not a CUDA device", backend->info().name);
}

Result<double> MeasureCudaMatrixPeak(Backend* backend) { return MeasureCudaReadBandwidth(backend); }

}  // namespace talon

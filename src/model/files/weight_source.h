// Where a model's tensors come from: files, or a generator for speed measurements.
#ifndef TALON_MODEL_FILES_WEIGHT_SOURCE_H_
#define TALON_MODEL_FILES_WEIGHT_SOURCE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "compute/backend.h"
#include "model/config.h"
#include "model/files/safetensors.h"
#include "model/files/tensor_layout.h"

namespace talon {

// Used by one thread.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // The tensor as a matrix of a floating type (a vector is one row), valid until Release().
  virtual Result<HostMatrix> Load(const TensorSpec& spec) = 0;
  // The tensors loaded since the last call are no longer needed; but for those whose matrix has an
  // owner, which live as long as that.
  virtual void Release() = 0;
  // In which form it has the experts of sparse layers.
  virtual ExpertTensors expert_tensors() const { return ExpertTensors::kSeparate; }
};

// The safetensors of a model directory. All tensors of the model are looked up before this returns:
// a missing one, or a shape that contradicts the configuration, is found before anything is loaded.
Result<std::unique_ptr<WeightSource>> OpenWeightFiles(const std::string& dir,
                                                      const ModelConfig& config);

// The same for the given tensors of an open reader.
Result<std::unique_ptr<WeightSource>> NewFileWeights(SafetensorsReader reader,
                                                     std::span<const TensorSpec> tensors,
                                                     const QuantConfig& quantised);

// Random matrices of `dtype` with a standard deviation of 0.02, norms of one and biases of zero; a
// tensor depends on the seed and its name. Holds one group of tensors at a time. Experts are MXFP4
// where `mxfp4`.
std::unique_ptr<WeightSource> NewRandomWeights(DType dtype, uint64_t seed, bool mxfp4 = false);

}  // namespace talon

#endif  // TALON_MODEL_FILES_WEIGHT_SOURCE_H_

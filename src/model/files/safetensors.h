// Safetensors files: a memory-mapped reader for one file or a sharded set, and a small writer.
//
// Headers are untrusted: lengths, types, shapes and offsets are validated against each other and
// the file's size when it is opened, so a TensorView always covers exactly its elements. Errors
// name the file, the tensor and the number.
#ifndef TALON_MODEL_FILES_SAFETENSORS_H_
#define TALON_MODEL_FILES_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "compute/dtype.h"

namespace talon {

// A tensor in host memory, row-major, not owned. The bytes may be unaligned for their type.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;      // empty for a scalar
  std::span<const uint8_t> bytes;  // product(shape) * DTypeSize(dtype)

  int64_t NumElements() const;
};

// "[3, 4]"
std::string ShapeString(std::span<const int64_t> shape);

// The tensors of a whole file in memory, by name. `what` names it in messages.
Result<std::map<std::string, TensorView>> ParseSafetensors(std::span<const uint8_t> file,
                                                           const std::string& what);

// Read-only, so several threads may use it.
class SafetensorsReader {
 public:
  static Result<SafetensorsReader> OpenFile(const std::string& path);
  // `dir`/model.safetensors, or the shards named by `dir`/model.safetensors.index.json.
  static Result<SafetensorsReader> OpenDirectory(const std::string& dir);

  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const TensorView* Find(const std::string& name) const;  // null if missing
  // The file that holds a tensor of this reader, for messages; the set's name if there is none.
  const std::string& FileOf(const std::string& name) const;
  // The tensor's pages are not needed soon; reading them again is still allowed.
  void Release(const TensorView& tensor) const;

 private:
  struct Shard {
    std::string path;
    MappedFile file;
  };
  static Result<SafetensorsReader> OpenShards(const std::string& index_path,
                                              const std::string& dir);
  // Maps and parses one more file.
  Result<std::map<std::string, TensorView>> AddShard(const std::string& path);

  std::string path_;  // the file or index that was opened
  std::vector<Shard> shards_;
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, size_t> shard_of_;  // index into shards_, by tensor name
};

// Writes tensors, largest element type first, so that all of them are aligned.
Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors);

}  // namespace talon

#endif  // TALON_MODEL_FILES_SAFETENSORS_H_

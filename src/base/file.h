// Files: whole reads and read-only memory maps.
#ifndef TALON_BASE_FILE_H_
#define TALON_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace talon {

// At most 1 GiB; errors name the path and the reason ("is a directory", "no such file").
Result<std::string> ReadFile(const std::string& path);
// Written beside the target and renamed, so a reader never sees half a file.
Status WriteFile(const std::string& path, const std::string& contents);
bool IsDirectory(const std::string& path);
bool FileExists(const std::string& path);

// A read-only map of a whole file, unmapped on destruction. Move-only.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  // Tells the system that these bytes are not needed soon, so that packed weights do not count
  // twice. Reading them again is still allowed.
  void Release(std::span<const uint8_t> range) const;

 private:
  MappedFile(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace talon

#endif  // TALON_BASE_FILE_H_

#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/math.h"

namespace talon {
namespace {

constexpr size_t kMaxWholeFile = size_t{1} << 30;
constexpr size_t kReadChunk = size_t{1} << 20;

// Closes on scope exit.
struct FileDescriptor {
  explicit FileDescriptor(int descriptor) : fd(descriptor) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd >= 0) close(fd);
  }
  int fd;
};

Status ErrnoStatus(const std::string& path, const char* verb) {
  const int error = errno;
  const StatusCode code = error == ENOENT ? StatusCode::kNotFound : StatusCode::kInvalidArgument;
  return {code, fmt::format("{}: cannot {}: {}", path, verb, std::strerror(error))};
}

// Size of a regular file; an error for anything else.
Result<size_t> RegularFileSize(int fd, const std::string& path) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return ErrnoStatus(path, "stat");
  if (S_ISDIR(info.st_mode)) return InvalidArgument("{}: is a directory, not a file", path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("{}: is not a regular file", path);
  return static_cast<size_t>(info.st_size);
}

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return ErrnoStatus(path, "open");
  if (IsDirectory(path)) return InvalidArgument("{}: is a directory, not a file", path);
  std::string contents;
  for (;;) {  // by chunks, because pipes have no size
    const size_t done = contents.size();
    if (done > kMaxWholeFile) return InvalidArgument("{}: more than 1 GiB", path);
    contents.resize(done + kReadChunk);
    const ssize_t got = read(file.fd, contents.data() + done, kReadChunk);
    if (got < 0) return ErrnoStatus(path, "read");
    contents.resize(done + static_cast<size_t>(got));
    if (got == 0) return contents;
  }
}

Status WriteFile(const std::string& path, const std::string& contents) {
  const std::string temporary = path + ".tmp";
  {
    const FileDescriptor file(
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.fd < 0) return ErrnoStatus(path, "write");
    size_t done = 0;
    while (done < contents.size()) {
      const ssize_t put = write(file.fd, contents.data() + done, contents.size() - done);
      if (put < 0) return ErrnoStatus(path, "write");
      done += static_cast<size_t>(put);
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(path, "write");
  return OkStatus();
}

bool IsDirectory(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool FileExists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return ErrnoStatus(path, "open");
  TALON_ASSIGN_OR_RETURN(const size_t size, RegularFileSize(file.fd, path));
  if (size == 0) return MappedFile(nullptr, 0);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) return ErrnoStatus(path, "map");
  return MappedFile(static_cast<const uint8_t*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::Release(std::span<const uint8_t> range) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = RoundUp(reinterpret_cast<uintptr_t>(range.data()), page);
  const auto end = (reinterpret_cast<uintptr_t>(range.data()) + range.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace talon

#include "model/heads/token_map.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/file.h"
#include "model/files/weight_source.h"

namespace talon {
namespace {

constexpr std::string_view kSeparators = " \t\r\n,";

// The text between the brackets of a JSON list, or all of it.
std::string_view ListOf(std::string_view text) {
  const size_t first = text.find_first_not_of(kSeparators);
  const size_t last = text.find_last_not_of(kSeparators);
  if (first == std::string_view::npos || text[first] != '[' || text[last] != ']') return text;
  return text.substr(first + 1, last - first - 1);
}

Result<int32_t> ParseId(std::string_view word, const std::string& path, int vocab_size) {
  int32_t id = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
  if (error != std::errc() || end != word.data() + word.size()) {
    return InvalidArgument(
        "{}: '{}' is not a token id; the file is a JSON list of ids, or ids "
        "separated by white space",
        path, word.substr(0, 20));
  }
  if (id < 0 || id >= vocab_size) {
    return InvalidArgument("{}: token id {}, the vocabulary has {}", path, id, vocab_size);
  }
  return id;
}

}  // namespace

Result<std::vector<int32_t>> ReadTokenMap(const std::string& path, int vocab_size) {
  if (path.ends_with(".pt") || path.ends_with(".bin")) {
    return InvalidArgument("{}: a PyTorch file, which is not read; write its list of ids as JSON",
                           path);
  }
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const std::string_view list = ListOf(text);
  std::vector<int32_t> ids;
  for (size_t at = list.find_first_not_of(kSeparators); at < list.size();) {
    const size_t end = std::min(list.find_first_of(kSeparators, at), list.size());
    TALON_ASSIGN_OR_RETURN(const int32_t id, ParseId(list.substr(at, end - at), path, vocab_size));
    ids.push_back(id);
    at = list.find_first_not_of(kSeparators, end);
  }
  if (ids.empty()) return InvalidArgument("{}: no token ids in it", path);
  std::ranges::sort(ids);
  if (const auto twice = std::ranges::adjacent_find(ids); twice != ids.end()) {
    return InvalidArgument("{}: token id {} stands there twice", path, *twice);
  }
  return ids;
}

Result<std::unique_ptr<Weight>> CutRows(const std::string& dir, const TensorSpec& matrix,
                                        std::span<const int32_t> ids, Backend* backend,
                                        WeightFormat format) {
  TALON_ASSIGN_OR_RETURN(SafetensorsReader file, SafetensorsReader::OpenDirectory(dir));
  TALON_ASSIGN_OR_RETURN(const auto source, NewFileWeights(std::move(file), {&matrix, 1}, {}));
  TALON_ASSIGN_OR_RETURN(const HostMatrix all, source->Load(matrix));
  const size_t row_bytes = static_cast<size_t>(all.cols) * DTypeSize(all.dtype);
  std::vector<uint8_t> rows;
  rows.reserve(ids.size() * row_bytes);
  for (const int32_t id : ids) {
    const uint8_t* row =
        static_cast<const uint8_t*>(all.data) + static_cast<size_t>(id) * row_bytes;
    rows.insert(rows.end(), row, row + row_bytes);
  }
  const HostMatrix cut{.data = rows.data(),
                       .dtype = all.dtype,
                       .rows = static_cast<int64_t>(ids.size()),
                       .cols = all.cols,
                       .expanded = all.expanded};
  return backend->PackWeight({&cut, 1}, format);
}

}  // namespace talon

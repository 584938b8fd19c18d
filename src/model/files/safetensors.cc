#include "model/files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "base/json.h"
#include "base/valid_values.h"
#include "model/config_fields.h"
#include "model/files/model_dir.h"

namespace talon {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr Range kDimRange = {.low = 0, .high = int64_t{1} << 62};

uint64_t ReadLittleEndian64(const uint8_t* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

Result<std::string_view> HeaderText(std::span<const uint8_t> file, const std::string& what) {
  TALON_RETURN_IF_ERROR(
      CheckNotLfsPointer({reinterpret_cast<const char*>(file.data()), file.size()}, what));
  if (file.size() < kLengthBytes) {
    return InvalidArgument("{}: {} bytes, too short for a safetensors file", what, file.size());
  }
  const uint64_t length = ReadLittleEndian64(file.data());
  if (length > kMaxHeader) {
    return InvalidArgument("{}: header length {}, limit {}", what, length, kMaxHeader);
  }
  if (length > file.size() - kLengthBytes) {
    return InvalidArgument("{}: header length {}, but only {} bytes follow (truncated?)", what,
                           length, file.size() - kLengthBytes);
  }
  return std::string_view(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
}

// The JSON parser silently keeps the last of two equal keys; a header with two is invalid.
// REQUIRES: valid JSON.
std::optional<std::string> FindDuplicateKey(std::string_view text) {
  std::set<std::string> seen;
  std::optional<std::string> duplicate;
  const auto visit = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1) {
      const auto& key = value.get_ref<const std::string&>();
      if (!seen.insert(key).second) duplicate = key;
    }
    return true;
  };
  const Json ignored = Json::parse(text, visit, /*allow_exceptions=*/false);
  return duplicate;
}

Result<std::vector<int64_t>> ParseShape(const Json& entry, const std::string& where) {
  const auto it = entry.find("shape");
  if (it == entry.end() || !it->is_array()) return InvalidArgument("{}: has no shape list", where);
  std::vector<int64_t> shape;
  for (const Json& dim : *it) {
    TALON_RETURN_IF_ERROR(CheckWholeNumber("shape", dim, kDimRange).WithContext(where));
    shape.push_back(dim.get<int64_t>());
  }
  return shape;
}

// product(shape) * element size, or an error if it does not fit.
Result<uint64_t> ByteSize(const TensorView& tensor, const std::string& where) {
  uint64_t bytes = DTypeSize(tensor.dtype);
  bool empty = false;
  for (const int64_t dim : tensor.shape) {
    if (dim == 0) empty = true;
  }
  if (empty) return uint64_t{0};
  for (const int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes) || bytes > INT64_MAX) {
      return InvalidArgument("{}: shape {} has too many elements", where,
                             ShapeString(tensor.shape));
    }
  }
  return bytes;
}

Result<std::span<const uint8_t>> DataSpan(const Json& entry, std::span<const uint8_t> data,
                                          const std::string& where) {
  const auto it = entry.find("data_offsets");
  const bool well_formed = it != entry.end() && it->is_array() && it->size() == 2 &&
                           (*it)[0].is_number_unsigned() && (*it)[1].is_number_unsigned();
  if (!well_formed) return InvalidArgument("{}: data_offsets is not two whole numbers", where);
  const auto begin = (*it)[0].get<uint64_t>();
  const auto end = (*it)[1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    return InvalidArgument("{}: data_offsets [{}, {}], but the file has {} data bytes", where,
                           begin, end, data.size());
  }
  return data.subspan(begin, end - begin);
}

Result<TensorView> ParseEntry(const std::string& name, const Json& entry,
                              std::span<const uint8_t> data, const std::string& what) {
  const std::string where = fmt::format("{}: tensor {}", what, name);
  if (!entry.is_object()) return InvalidArgument("{}: entry is not an object", where);
  TensorView tensor{.name = name, .dtype = DType::kF32, .shape = {}, .bytes = {}};
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) {
    return InvalidArgument("{}: has no dtype", where);
  }
  if (!ParseDType(dtype->get<std::string>(), &tensor.dtype)) {
    return InvalidArgument("{}: unknown dtype {}", where, BriefJson(*dtype));
  }
  TALON_ASSIGN_OR_RETURN(tensor.shape, ParseShape(entry, where));
  TALON_ASSIGN_OR_RETURN(const uint64_t bytes, ByteSize(tensor, where));
  TALON_ASSIGN_OR_RETURN(tensor.bytes, DataSpan(entry, data, where));
  if (tensor.bytes.size() != bytes) {
    return InvalidArgument("{}: {} {} needs {} bytes, data_offsets give {}", where,
                           DTypeName(tensor.dtype), ShapeString(tensor.shape), bytes,
                           tensor.bytes.size());
  }
  return tensor;
}

Status CheckDisjoint(const std::map<std::string, TensorView>& tensors, const std::string& what) {
  std::vector<const TensorView*> order;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.bytes.empty()) order.push_back(&tensor);
  }
  std::ranges::sort(order, {}, [](const TensorView* tensor) { return tensor->bytes.data(); });
  for (size_t i = 1; i < order.size(); ++i) {
    const auto& previous = order[i - 1]->bytes;
    if (order[i]->bytes.data() < previous.data() + previous.size()) {
      return InvalidArgument("{}: tensors {} and {} overlap", what, order[i - 1]->name,
                             order[i]->name);
    }
  }
  return OkStatus();
}

// A shard must lie in the model's own directory.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::string PaddedHeader(const Json& header) {
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

int64_t TensorView::NumElements() const {
  return static_cast<int64_t>(bytes.size() / DTypeSize(dtype));
}

std::string ShapeString(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<std::map<std::string, TensorView>> ParseSafetensors(std::span<const uint8_t> file,
                                                           const std::string& what) {
  TALON_ASSIGN_OR_RETURN(const std::string_view text, HeaderText(file, what));
  TALON_ASSIGN_OR_RETURN(const Json header, ParseJson(text, what + ": header"));
  if (!header.is_object()) return InvalidArgument("{}: header is not a JSON object", what);
  if (const auto duplicate = FindDuplicateKey(text)) {
    return InvalidArgument("{}: tensor {} appears twice in the header", what, *duplicate);
  }
  const auto data = file.subspan(kLengthBytes + text.size());
  std::map<std::string, TensorView> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    TALON_ASSIGN_OR_RETURN(TensorView tensor, ParseEntry(name, entry, data, what));
    tensors.emplace(name, std::move(tensor));
  }
  TALON_RETURN_IF_ERROR(CheckDisjoint(tensors, what));
  return tensors;
}

Result<std::map<std::string, TensorView>> SafetensorsReader::AddShard(const std::string& path) {
  TALON_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  shards_.push_back({path, std::move(file)});
  return ParseSafetensors(shards_.back().file.bytes(), path);
}

Result<SafetensorsReader> SafetensorsReader::OpenFile(const std::string& path) {
  SafetensorsReader reader;
  reader.path_ = path;
  TALON_ASSIGN_OR_RETURN(reader.tensors_, reader.AddShard(path));
  for (const auto& [name, tensor] : reader.tensors_) reader.shard_of_[name] = 0;
  return reader;
}

Result<SafetensorsReader> SafetensorsReader::OpenShards(const std::string& index_path,
                                                        const std::string& dir) {
  TALON_ASSIGN_OR_RETURN(const Json index, ReadJsonFile(index_path));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object()) {
    return InvalidArgument("{}: has no weight_map object", index_path);
  }
  SafetensorsReader reader;
  reader.path_ = index_path;
  std::map<std::string, std::pair<size_t, std::map<std::string, TensorView>>> opened;
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get<std::string>())) {
      return InvalidArgument("{}: tensor {} is in {}, expected a file name", index_path, name,
                             BriefJson(shard));
    }
    const auto file = shard.get<std::string>();
    auto it = opened.find(file);
    if (it == opened.end()) {
      TALON_ASSIGN_OR_RETURN(auto tensors, reader.AddShard(dir + "/" + file));
      it = opened.emplace(file, std::pair(reader.shards_.size() - 1, std::move(tensors))).first;
    }
    const auto tensor = it->second.second.find(name);
    if (tensor == it->second.second.end()) {
      return InvalidArgument("{}: tensor {} is not in {}", index_path, name, file);
    }
    reader.shard_of_[name] = it->second.first;
    reader.tensors_.emplace(name, tensor->second);
  }
  return reader;
}

Result<SafetensorsReader> SafetensorsReader::OpenDirectory(const std::string& dir) {
  const std::string single = dir + "/model.safetensors";
  if (FileExists(single)) return OpenFile(single);
  const std::string index = single + ".index.json";
  if (FileExists(index)) return OpenShards(index, dir);
  return MissingWeights(dir);
}

const TensorView* SafetensorsReader::Find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

const std::string& SafetensorsReader::FileOf(const std::string& name) const {
  const auto it = shard_of_.find(name);
  return it == shard_of_.end() ? path_ : shards_[it->second].path;
}

void SafetensorsReader::Release(const TensorView& tensor) const {
  const auto it = shard_of_.find(tensor.name);
  if (it != shard_of_.end()) shards_[it->second].file.Release(tensor.bytes);
}

Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [](const TensorView* tensor) { return DTypeSize(tensor->dtype); });
  Json header = Json::object();
  std::string data;
  for (const TensorView* tensor : order) {
    std::string dtype = DTypeName(tensor->dtype);
    std::ranges::transform(dtype, dtype.begin(), [](unsigned char c) { return std::toupper(c); });
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
    header[tensor->name] = {
        {"dtype", dtype}, {"shape", tensor->shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = PaddedHeader(header);
  std::string file(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) file[i] = static_cast<char>(text.size() >> (8 * i));
  return WriteFile(path, file + text + data);
}

}  // namespace talon

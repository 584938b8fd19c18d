#include "model/files/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "base/json.h"
#include "model/files/quantised.h"
#include "model/test_model.h"

namespace talon {
namespace {

std::vector<uint8_t> FileBytes(const std::string& header, size_t data_bytes,
                               std::optional<uint64_t> stated_length = std::nullopt) {
  std::vector<uint8_t> file;
  const uint64_t length = stated_length.value_or(header.size());
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<uint8_t>(length >> (8 * i)));
  file.insert(file.end(), header.begin(), header.end());
  for (size_t i = 0; i < data_bytes; ++i) file.push_back(static_cast<uint8_t>(i));
  return file;
}

std::string Entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(Safetensors, ParsesTypesShapesAndBytes) {
  const std::string header = R"({"__metadata__":{"format":"pt"},"a":)" +
                             Entry("\"F16\"", "[2,3]", "[0,12]") + R"(,"scalar":)" +
                             Entry("\"U8\"", "[]", "[12,13]") + R"(,"none":)" +
                             Entry("\"F32\"", "[0,7]", "[4,4]") + "}";
  const auto file = FileBytes(header, 13);
  const auto tensors = ParseSafetensors(file, "file");
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  ASSERT_EQ(tensors->size(), 3u);
  const TensorView& a = tensors->at("a");
  EXPECT_EQ(a.dtype, DType::kF16);
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a.NumElements(), 6);
  EXPECT_EQ(a.bytes.data(), file.data() + 8 + header.size());
  EXPECT_EQ(tensors->at("scalar").NumElements(), 1);
  EXPECT_EQ(tensors->at("scalar").bytes[0], 12);
  EXPECT_EQ(tensors->at("none").NumElements(), 0);
}

struct BadHeader {
  const char* name;
  std::string header;
  std::optional<uint64_t> stated_length;
  const char* expected;  // part of the message
};

class SafetensorsBadHeader : public testing::TestWithParam<BadHeader> {};

TEST_P(SafetensorsBadHeader, IsRefusedByName) {
  const auto file = FileBytes(GetParam().header, 16, GetParam().stated_length);
  const auto tensors = ParseSafetensors(file, "file.safetensors");
  ASSERT_FALSE(tensors.ok());
  const std::string& message = tensors.status().message();
  EXPECT_TRUE(message.starts_with("file.safetensors: ")) << message;
  EXPECT_NE(message.find(GetParam().expected), std::string::npos) << message;
}

const std::string kGood = Entry("\"F32\"", "[2]", "[0,8]");

INSTANTIATE_TEST_SUITE_P(
    All, SafetensorsBadHeader,
    testing::Values(
        BadHeader{"LengthPastEnd", "{}", 1000, "header length 1000, but only 18 bytes follow"},
        BadHeader{"HugeLength", "{}", UINT64_MAX, "header length 18446744073709551615, limit"},
        BadHeader{"NotJson", "{\"a\":", {}, "header: not valid JSON"},
        BadHeader{"NotUtf8", "{\"\xff\":1}", {}, "header: not valid JSON"},
        BadHeader{"DeepNesting", std::string(10000, '['), {}, "nested"},
        BadHeader{"NotAnObject", "[1]", {}, "not a JSON object"},
        BadHeader{"EntryNotAnObject", R"({"a":3})", {}, "tensor a: entry is not an object"},
        BadHeader{"Duplicate",
                  R"({"a":)" + kGood + R"(,"a":)" + kGood + "}",
                  {},
                  "tensor a appears twice"},
        BadHeader{
            "NoDType", R"({"a":{"shape":[2],"data_offsets":[0,8]}})", {}, "tensor a: has no dtype"},
        BadHeader{"UnknownDType",
                  R"({"a":)" + Entry("\"F8_E5M2\"", "[2]", "[0,2]") + "}",
                  {},
                  "tensor a: unknown dtype \"F8_E5M2\""},
        BadHeader{"NoShape",
                  R"({"a":{"dtype":"F32","data_offsets":[0,8]}})",
                  {},
                  "tensor a: has no shape"},
        BadHeader{"NegativeShape",
                  R"({"a":)" + Entry("\"F32\"", "[-2]", "[0,8]") + "}",
                  {},
                  "tensor a: shape: -2, must be 0 to"},
        BadHeader{"FractionalShape",
                  R"({"a":)" + Entry("\"F32\"", "[2.5]", "[0,8]") + "}",
                  {},
                  "tensor a: shape: 2.5, must be a whole number"},
        BadHeader{"ShapeOverflow",
                  R"({"a":)" + Entry("\"F32\"", "[4294967296,4294967296]", "[0,0]") + "}",
                  {},
                  "tensor a: shape [4294967296, 4294967296] has too many elements"},
        BadHeader{"ShapeWrapsToSize",
                  R"({"a":)" + Entry("\"F32\"", "[4611686018427387906]", "[0,8]") + "}",
                  {},
                  "too many elements"},
        BadHeader{"OffsetsMissing",
                  R"({"a":{"dtype":"F32","shape":[2]}})",
                  {},
                  "tensor a: data_offsets is not two"},
        BadHeader{"OffsetsNegative",
                  R"({"a":)" + Entry("\"F32\"", "[2]", "[-8,0]") + "}",
                  {},
                  "tensor a: data_offsets is not two"},
        BadHeader{"OffsetsPastEnd",
                  R"({"a":)" + Entry("\"F32\"", "[4]", "[8,24]") + "}",
                  {},
                  "tensor a: data_offsets [8, 24], but the file has 16 data bytes"},
        BadHeader{"OffsetsReversed",
                  R"({"a":)" + Entry("\"F32\"", "[2]", "[8,0]") + "}",
                  {},
                  "tensor a: data_offsets [8, 0]"},
        BadHeader{"OffsetsContradictShape",
                  R"({"a":)" + Entry("\"F32\"", "[3]", "[0,8]") + "}",
                  {},
                  "tensor a: f32 [3] needs 12 bytes, data_offsets give 8"},
        BadHeader{"OffsetsContradictDType",
                  R"({"a":)" + Entry("\"F16\"", "[2]", "[0,8]") + "}",
                  {},
                  "tensor a: f16 [2] needs 4 bytes, data_offsets give 8"},
        BadHeader{"Overlap",
                  R"({"a":)" + kGood + R"(,"b":)" + Entry("\"F32\"", "[2]", "[4,12]") + "}",
                  {},
                  "tensors a and b overlap"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Safetensors, EveryTruncationOfARealFileIsRefused) {
  const TempDirectory dir;
  const std::string path = dir.path() + "/model.safetensors";
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::span bytes(reinterpret_cast<const uint8_t*>(values.data()), 24);
  const std::vector<TensorView> tensors = {{"a", DType::kF32, {2, 3}, bytes}};
  ASSERT_TRUE(WriteSafetensors(path, tensors).ok());
  const std::string whole = *ReadFile(path);
  for (size_t length = 0; length < whole.size(); ++length) {
    ASSERT_TRUE(WriteFile(path, whole.substr(0, length)).ok());
    EXPECT_FALSE(SafetensorsReader::OpenFile(path).ok()) << length << " of " << whole.size();
  }
}

TEST(Safetensors, WriterKeepsContentsAndAlignsThem) {
  const TempDirectory dir;
  const std::string path = dir.path() + "/model.safetensors";
  const std::vector<uint8_t> flags = {1, 0, 1};
  const std::vector<float> values = {1.5f, -2.0f};
  const std::span value_bytes(reinterpret_cast<const uint8_t*>(values.data()), 8);
  const std::vector<TensorView> tensors = {{"flags", DType::kBool, {3}, flags},
                                           {"values", DType::kF32, {1, 2}, value_bytes}};
  ASSERT_TRUE(WriteSafetensors(path, tensors).ok());
  const auto reader = SafetensorsReader::OpenFile(path);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  const TensorView* read = reader->Find("values");
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(read->bytes.data()) % 8, 0u);
  EXPECT_EQ(std::memcmp(read->bytes.data(), values.data(), 8), 0);
  EXPECT_EQ(reader->Find("flags")->bytes[2], 1);
  EXPECT_EQ(reader->Find("other"), nullptr);
}

// Every code of FP8 e4m3 has the value that the format defines: 1.fraction * 2^(exponent - 7), or
// fraction * 2^-9 for exponent 0. The codes 0x7F and 0xFF are NaN, none is infinite.
TEST(Quantised, EveryCodeOfFloat8) {
  const TempDirectory dir;
  const std::string path = dir.path() + "/model.safetensors";
  std::vector<uint8_t> codes(256);
  std::iota(codes.begin(), codes.end(), 0);
  const float scale = 2;
  const std::span scale_bytes(reinterpret_cast<const uint8_t*>(&scale), 4);
  const std::vector<TensorView> tensors = {{"a.weight", DType::kF8E4M3, {2, 128}, codes},
                                           {"a.weight_scale", DType::kF32, {1}, scale_bytes}};
  ASSERT_TRUE(WriteSafetensors(path, tensors).ok());
  const auto reader = SafetensorsReader::OpenFile(path);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  ASSERT_TRUE(QuantisedMatrix::IsIn(*reader, "a.weight"));
  const auto matrix =
      QuantisedMatrix::Open(*reader, {.method = QuantMethod::kCompressed}, "a.weight", 2, 128);
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  std::vector<float> values(256);
  ThreadPool pool(2);
  matrix->Expand(&pool, values.data());
  for (int code = 0; code < 128; ++code) {
    if (code == 127) {
      EXPECT_TRUE(std::isnan(values[code]) && std::isnan(values[code + 128]));
      continue;
    }
    const int exponent = code / 8;
    const float expected = exponent == 0 ? static_cast<float>(code) / 512.0f
                                         : (1.0f + static_cast<float>(code % 8) / 8.0f) *
                                               std::pow(2.0f, static_cast<float>(exponent - 7));
    EXPECT_EQ(values[code], scale * expected) << code;
    EXPECT_EQ(values[code + 128], -scale * expected) << code;
  }
  EXPECT_EQ(values[0x7e], scale * 448);
}

class SafetensorsShards : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<TensorView> first = {{"a", DType::kU8, {2}, bytes_}};
    const std::vector<TensorView> second = {{"b", DType::kU8, {2}, bytes_}};
    ASSERT_TRUE(WriteSafetensors(dir_.path() + "/one.safetensors", first).ok());
    ASSERT_TRUE(WriteSafetensors(dir_.path() + "/two.safetensors", second).ok());
  }
  Result<SafetensorsReader> Open(const Json& index) {
    EXPECT_TRUE(WriteFile(dir_.path() + "/model.safetensors.index.json", index.dump()).ok());
    return SafetensorsReader::OpenDirectory(dir_.path());
  }
  TempDirectory dir_;
  std::vector<uint8_t> bytes_ = {7, 8};
};

TEST_F(SafetensorsShards, TensorsComeFromTheirFiles) {
  const auto reader = Open({{"weight_map", {{"a", "one.safetensors"}, {"b", "two.safetensors"}}}});
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  ASSERT_NE(reader->Find("b"), nullptr);
  EXPECT_EQ(reader->Find("b")->bytes[1], 8);
  EXPECT_TRUE(reader->FileOf("b").ends_with("/two.safetensors"));
  EXPECT_TRUE(reader->FileOf("missing").ends_with(".index.json"));
  reader->Release(*reader->Find("b"));
  EXPECT_EQ(reader->Find("b")->bytes[0], 7);
}

TEST_F(SafetensorsShards, BadIndexesAreRefusedByName) {
  const std::vector<std::pair<Json, std::string>> cases = {
      {Json::array(), "no weight_map"},
      {{{"weight_map", 3}}, "no weight_map"},
      {{{"weight_map", {{"a", 5}}}}, "tensor a is in 5"},
      {{{"weight_map", {{"a", "../one.safetensors"}}}}, "expected a file name"},
      {{{"weight_map", {{"a", "three.safetensors"}}}}, "three.safetensors: cannot open"},
      {{{"weight_map", {{"a", "two.safetensors"}}}}, "tensor a is not in two.safetensors"},
  };
  for (const auto& [index, expected] : cases) {
    const auto reader = Open(index);
    ASSERT_FALSE(reader.ok()) << index;
    EXPECT_NE(reader.status().message().find(expected), std::string::npos)
        << reader.status().message();
  }
}

TEST(Safetensors, DirectoryWithoutWeightsIsRefused) {
  const TempDirectory dir;
  const auto reader = SafetensorsReader::OpenDirectory(dir.path());
  ASSERT_FALSE(reader.ok());
  EXPECT_EQ(reader.status().code(), StatusCode::kNotFound);
  EXPECT_NE(reader.status().message().find("neither model.safetensors nor"), std::string::npos);
}

}  // namespace
}  // namespace talon

#include "model/files/golden.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "model/files/golden_file.h"
#include "model/single_sequence.h"

namespace talon {
namespace {

constexpr const char* kIdsSuffix = ".input_ids";

std::vector<std::string> PromptsOf(const GoldenFile& file) {
  std::vector<std::string> prompts;
  for (const std::string& name : file.Names()) {
    if (name.ends_with(kIdsSuffix)) {
      prompts.push_back(name.substr(0, name.size() - std::strlen(kIdsSuffix)));
    }
  }
  return prompts;
}

class GoldenChecker {
 public:
  GoldenChecker(const GoldenFile* file, Decoder* decoder, SingleSequence* sequence,
                double tolerance)
      : file_(file), decoder_(decoder), sequence_(sequence), tolerance_(tolerance) {}

  Status CheckPrompt(const std::string& prompt) {
    TALON_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, file_->Ints(prompt + kIdsSuffix));
    std::vector<int> layers;
    for (int layer = 0; layer < decoder_->config().num_layers; ++layer) {
      if (file_->Has(HiddenName(prompt, layer))) layers.push_back(layer);
    }
    TALON_RETURN_IF_ERROR(decoder_->SetCaptureLayers(layers));
    sequence_->Clear();
    TALON_ASSIGN_OR_RETURN(const SingleSequence::Rows rows, sequence_->Append(ids));
    if (file_->Has(prompt + ".logits")) {
      TALON_ASSIGN_OR_RETURN(
          const auto expected,
          file_->Floats(prompt + ".logits", Shape(ids.size(), decoder_->config().vocab_size)));
      Add(CompareFloats(prompt + " logits", rows.logits, expected, tolerance_));
    }
    TALON_RETURN_IF_ERROR(CheckHidden(prompt, ids.size(), layers, rows));
    TALON_RETURN_IF_ERROR(decoder_->SetCaptureLayers({}));
    return CheckGreedy(prompt, ids);
  }

  Status CheckTree(const std::vector<std::string>& prompts) {
    TALON_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, file_->Ints("tree.tokens"));
    TALON_ASSIGN_OR_RETURN(const std::vector<int32_t> parents, file_->Ints("tree.parents"));
    if (parents.size() != tokens.size()) {
      return InvalidArgument("{}: {} tree.tokens but {} tree.parents", file_->path(), tokens.size(),
                             parents.size());
    }
    TALON_ASSIGN_OR_RETURN(
        const auto expected,
        file_->Floats("tree.logits", Shape(tokens.size(), decoder_->config().vocab_size)));
    std::vector<float> best;
    for (const std::string& prompt : prompts) {
      TALON_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, file_->Ints(prompt + kIdsSuffix));
      sequence_->Clear();
      TALON_RETURN_IF_ERROR(sequence_->AppendGreedy(ids).status());
      TALON_ASSIGN_OR_RETURN(SingleSequence::Rows rows, sequence_->Tree(tokens, parents));
      const bool better =
          best.empty() || MaxAbsError(rows.logits, expected) < MaxAbsError(best, expected);
      if (better) best = std::move(rows.logits);
    }
    Add(CompareFloats("tree logits", best, expected, tolerance_));
    return OkStatus();
  }

  std::vector<GoldenCase> TakeCases() { return std::move(cases_); }

 private:
  static std::string HiddenName(const std::string& prompt, int layer) {
    return fmt::format("{}.hidden.{}", prompt, layer);
  }
  static std::vector<int64_t> Shape(size_t rows, int cols) {
    return {static_cast<int64_t>(rows), cols};
  }
  void Add(GoldenCase result) { cases_.push_back(std::move(result)); }

  // All the hidden states of a prompt are one case: the worst of them counts.
  Status CheckHidden(const std::string& prompt, size_t rows, const std::vector<int>& layers,
                     const SingleSequence::Rows& got) {
    const int hidden = decoder_->config().hidden_size;
    const std::string final_name = HiddenName(prompt, decoder_->config().num_layers);
    std::vector<float> all_got;
    std::vector<float> all_expected;
    for (size_t i = 0; i < layers.size(); ++i) {
      TALON_ASSIGN_OR_RETURN(const auto expected,
                             file_->Floats(HiddenName(prompt, layers[i]), Shape(rows, hidden)));
      all_expected.insert(all_expected.end(), expected.begin(), expected.end());
      for (size_t row = 0; row < rows; ++row) {
        const auto start =
            got.features.begin() + static_cast<int64_t>((row * layers.size() + i) * hidden);
        all_got.insert(all_got.end(), start, start + hidden);
      }
    }
    if (file_->Has(final_name)) {
      TALON_ASSIGN_OR_RETURN(const auto expected, file_->Floats(final_name, Shape(rows, hidden)));
      all_expected.insert(all_expected.end(), expected.begin(), expected.end());
      all_got.insert(all_got.end(), got.hidden.begin(), got.hidden.end());
    }
    if (!all_expected.empty()) {
      Add(CompareFloats(prompt + " hidden", all_got, all_expected, tolerance_));
    }
    return OkStatus();
  }

  Status CheckGreedy(const std::string& prompt, const std::vector<int32_t>& ids) {
    if (!file_->Has(prompt + ".greedy")) return OkStatus();
    TALON_ASSIGN_OR_RETURN(const std::vector<int32_t> expected, file_->Ints(prompt + ".greedy"));
    sequence_->Clear();
    TALON_ASSIGN_OR_RETURN(int32_t next, sequence_->AppendGreedy(ids));
    std::vector<int32_t> got = {next};
    while (got.size() < expected.size()) {
      TALON_ASSIGN_OR_RETURN(next, sequence_->AppendGreedy({&got.back(), 1}));
      got.push_back(next);
    }
    Add(CompareInts(prompt + " greedy", got, expected, "tokens"));
    return OkStatus();
  }

  const GoldenFile* file_;
  Decoder* decoder_;
  SingleSequence* sequence_;
  double tolerance_;
  std::vector<GoldenCase> cases_;
};

// Room for the longest prompt with its continuation, and for the tree.
Result<SingleSequence::Limits> LimitsFor(const GoldenFile& file, DType kv_dtype) {
  SingleSequence::Limits limits{.max_tokens = 0, .max_tree = 1, .kv_dtype = kv_dtype};
  for (const std::string& prompt : PromptsOf(file)) {
    TALON_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, file.Ints(prompt + kIdsSuffix));
    auto tokens = static_cast<int>(ids.size());
    if (file.Has(prompt + ".greedy")) {
      TALON_ASSIGN_OR_RETURN(const std::vector<int32_t> greedy, file.Ints(prompt + ".greedy"));
      tokens += static_cast<int>(greedy.size());
    }
    limits.max_tokens = std::max(limits.max_tokens, tokens);
  }
  if (file.Has("tree.tokens")) {
    TALON_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, file.Ints("tree.tokens"));
    limits.max_tree = static_cast<int>(tokens.size());
  }
  return limits;
}

}  // namespace

Result<std::vector<GoldenCase>> CheckGolden(Decoder* decoder, Backend* backend,
                                            const std::string& path, const GoldenOptions& options) {
  TALON_ASSIGN_OR_RETURN(const GoldenFile file, GoldenFile::Open(path));
  const std::vector<std::string> prompts = PromptsOf(file);
  if (prompts.empty()) return InvalidArgument("{}: has no tensor NAME{}", path, kIdsSuffix);
  TALON_ASSIGN_OR_RETURN(const auto limits, LimitsFor(file, options.kv_dtype));
  TALON_ASSIGN_OR_RETURN(SingleSequence sequence, SingleSequence::Create(decoder, backend, limits));
  GoldenChecker checker(&file, decoder, &sequence, options.tolerance);
  for (const std::string& prompt : prompts) TALON_RETURN_IF_ERROR(checker.CheckPrompt(prompt));
  if (file.Has("tree.tokens")) TALON_RETURN_IF_ERROR(checker.CheckTree(prompts));
  return checker.TakeCases();
}

}  // namespace talon

// Random cases for engines whose model is spread over ranks: requests, trees, batches, sampling,
// partial verification and drafters. Every number of ranks must give the same bits.
#ifndef TALON_ENGINE_RANKS_RANDOM_CASES_H_
#define TALON_ENGINE_RANKS_RANDOM_CASES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/decoder.h"
#include "model/test_model.h"

namespace talon {

struct RanksVariant {
  const char* family;
  WeightFormat weights = WeightFormat::kAsStored;
  ActivationFormat activations = ActivationFormat::kAuto;
  DType kv_dtype = DType::kBF16;

  std::string Name() const;
};
std::vector<RanksVariant> RanksVariants();

// Cases of a variant: `usual`, unless TALON_CASES says otherwise.
int NumRanksCases(int usual);

// A small model that four ranks can share.
Json RanksModelConfig(const std::string& family);

// A model whole or spread, where engines run: on the leader.
struct RanksTarget {
  Backend* backend = nullptr;
  Decoder* decoder = nullptr;
};

class RandomCases {
 public:
  // Writes a model and heads for it, the same in every process.
  explicit RandomCases(const RanksVariant& variant);

  const std::string& model_dir() const { return model_.path(); }
  LoadOptions load_options() const;

  // Expects of case `index` that the engines of `several` give the bits of those of `one`: in full
  // and in exact partial verification those of decoding without drafts.
  void Check(int index, const RanksTarget& one, std::span<const RanksTarget> several);

  int64_t accepted() const { return accepted_; }  // drafts
  int64_t partial_passes() const { return partial_passes_; }
  std::string Summary() const;  // what was compared, a line

 private:
  struct Case {
    std::vector<GenerateRequest> requests;
    EngineOptions options;
    std::string drafter;
    int seed = 0;
  };
  Case Draw(int index) const;
  std::unique_ptr<Drafter> MakeDrafterFor(const Case& drawn, const RanksTarget& target,
                                          const std::vector<GenerateResult>& plain,
                                          Metrics* metrics) const;
  std::vector<GenerateResult> Run(const Case& drawn, const RanksTarget& target,
                                  const std::vector<GenerateResult>& plain);

  RanksVariant variant_;
  TempDirectory model_;
  std::map<std::string, TempDirectory> heads_;  // by drafter
  int cases_ = 0;
  int64_t tokens_ = 0;  // compared
  int64_t accepted_ = 0;
  int64_t partial_passes_ = 0;
  int64_t preemptions_ = 0;
};

}  // namespace talon

#endif  // TALON_ENGINE_RANKS_RANDOM_CASES_H_

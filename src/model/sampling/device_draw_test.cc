// Tokens that a device draws against those of the host's arithmetic (sampling_math.h).
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/random.h"
#include "compute/test_device.h"
#include "model/sampling/sampling_math.h"
#include "model/sampling/test_logits.h"
#include "model/scratch.h"

namespace talon {
namespace {

constexpr int kRows = 6;

// Rows at positions 10, 20, ..; all but row 1 are outputs.
std::unique_ptr<Pass> LoadRows(Backend* backend, PassPlan* plan) {
  for (int r = 0; r < kRows + 1; ++r) {
    plan->tokens.push_back(0);
    plan->positions.push_back(10 * (r + 1));
    plan->slots.push_back(-1);
    plan->prefix_len.push_back(0);
    plan->ancestors.push_back(uint64_t{1} << r);
    if (r != 1) plan->output_rows.push_back(r);
  }
  plan->sequence_rows = {0, kRows + 1};
  plan->block_offsets = {0, 0};
  auto pass = backend->NewPass(/*query_heads=*/1);
  backend->LoadPass(*plan, {.num_layers = 1, .kv_heads = 1, .head_dim = 8}, pass.get());
  return pass;
}

// Every second row has few values, so that cuts go through ties.
std::vector<float> RandomRows(int vocabulary, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 2.5f);
  std::vector<float> logits(static_cast<size_t>(kRows) * vocabulary);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = normal(random);
    if (i / vocabulary % 2 == 1) logits[i] = std::round(logits[i]);
    if (random() % 50 == 0) logits[i] = -kInfinity;
    if (random() % 100 == 0) logits[i] = std::nanf("");
  }
  logits[0] = 1;  // something can be drawn
  return logits;
}

int32_t HostDraw(std::span<const float> logits, const RowDraw& draw, int position) {
  const int32_t best = ArgMax(logits);
  if (best < 0 || draw.temperature == 0 || logits[best] == kInfinity) return best;
  const double u = UniformDraw(
      {.seed = draw.seed, .position = static_cast<uint64_t>(position) + 1, .choice = draw.choice});
  return DrawToken(logits,
                   {.temperature = draw.temperature,
                    .top_k = draw.top_k,
                    .top_p = draw.top_p,
                    .min_p = draw.min_p},
                   u);
}

const RowDraw kDraws[] = {
    {.temperature = 0},
    {.temperature = 1},
    {.temperature = 0.7f, .top_k = 5},
    {.temperature = 1.3f, .top_p = 0.9f},
    {.temperature = 2, .top_p = 0.999f},
    {.temperature = 1, .top_p = 1e-6f},
    {.temperature = 1, .min_p = 0.1f},
    {.temperature = 1.5f, .top_k = 40, .top_p = 0.8f},
    {.temperature = 1.5f, .top_k = 3, .top_p = 0.99f, .min_p = 0.3f},
    {.temperature = 1, .top_k = 1 << 20, .top_p = 0.5f, .min_p = 0.02f},
};

TEST(DeviceDraw, MatchesTheHostOnDevicesThatDraw) {
  const auto backend = NewTestBackend(1);
  if (!backend->token_ops()->DrawsTokens())
    GTEST_SKIP() << backend->info().name << " leaves draws to the host";
  PassPlan plan;
  const auto pass = LoadRows(backend.get(), &plan);
  std::mt19937 random(11);
  for (const int vocabulary : {1, 33, 1000, 8192, 32769, 128256, 600000}) {
    Scratch device = std::move(NewScratch(backend.get(), kRows, vocabulary)).value();
    for (int round = 0; round < 12; ++round) {
      std::vector<float> logits = RandomRows(vocabulary, random);
      if (round == 5) std::fill_n(logits.begin() + 2 * vocabulary, vocabulary, -kInfinity);
      if (round == 6) logits.back() = kInfinity;
      std::vector<RowDraw> draws;
      for (int r = 0; r < kRows; ++r) {
        backend->CopyIn(device.all.Rows(r, 1).data, logits.data() + int64_t{r} * vocabulary,
                        sizeof(float) * vocabulary);
        draws.push_back(kDraws[(round + r) % std::size(kDraws)]);
        draws.back().seed = random() * 0x9E3779B97F4A7C15u;
        draws.back().choice = random() % 3;
      }
      std::vector<int32_t> got(kRows);
      backend->token_ops()->DrawTokens(*pass, device.all, draws, got);
      for (int r = 0; r < kRows; ++r) {
        const auto row =
            std::span<const float>(logits).subspan(static_cast<size_t>(r) * vocabulary, vocabulary);
        EXPECT_EQ(got[r], HostDraw(row, draws[r], plan.positions[plan.output_rows[r]]))
            << "vocabulary " << vocabulary << " round " << round << " row " << r;
      }
    }
  }
}

}  // namespace
}  // namespace talon

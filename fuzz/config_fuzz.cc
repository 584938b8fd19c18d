// config.json and generation_config.json from hostile text: a configuration that is accepted must
// give sizes and frequencies that are safe to use.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/log.h"
#include "model/config.h"
#include "model/rope.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  talon::SetLogLevel(talon::LogLevel::kOff);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = talon::ParseJson(text, "fuzz");
  if (!json.ok()) return 0;
  auto config = talon::ParseModelConfig(*json, "fuzz");
  if (!config.ok()) return 0;
  TALON_CHECK(config->num_heads % config->num_kv_heads == 0);
  TALON_CHECK(config->q_size() > 0 && config->kv_size() > 0 && config->max_context > 0);
  const talon::RopeTable rope = talon::ComputeRope(
      config->rope, config->head_dim, config->max_position_embeddings, config->max_context);
  TALON_CHECK(!rope.inv_freq.empty());
  for (const float frequency : rope.inv_freq) TALON_CHECK(std::isfinite(frequency));
  (void)talon::ApplyGenerationConfig(*json, "fuzz", &*config);
  for (const int id : config->eos_token_ids) TALON_CHECK(id >= 0 && id < config->vocab_size);
  return 0;
}

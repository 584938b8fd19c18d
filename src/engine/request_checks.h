// What an engine asks of a request before it takes it.
#ifndef TALON_ENGINE_REQUEST_CHECKS_H_
#define TALON_ENGINE_REQUEST_CHECKS_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine_options.h"
#include "engine/request.h"

namespace talon {

struct RequestLimits {
  EngineOptions options;  // as the engine has chosen them
  int vocabulary = 0;
  int kv_blocks = 0;
  bool has_tokenizer = false;
  std::vector<std::string_view> drafters;  // Drafter::source_names, owned by the drafter
};

// Everything wrong with a request.
Status CheckRequest(const GenerateRequest& request, const RequestLimits& limits);

// The drafters that the request names, as bits of DraftRequest::sources; 0: none.
Result<uint32_t> SourcesOf(const GenerateRequest& request,
                           std::span<const std::string_view> drafters);

}  // namespace talon

#endif  // TALON_ENGINE_REQUEST_CHECKS_H_

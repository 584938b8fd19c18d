#include "engine/request.h"

namespace talon {

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadEnd:
      return "all_tokens_banned";
    case FinishReason::kError:
      return "error";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kTimeout:
      return "timeout";
  }
  return "unknown";
}

std::vector<int32_t> GenerateResult::TokenIds() const {
  std::vector<int32_t> ids;
  ids.reserve(tokens.size());
  for (const EmittedToken& token : tokens) ids.push_back(token.token);
  return ids;
}

}  // namespace talon

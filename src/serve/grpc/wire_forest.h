// Drafts in their two forms on the wire. Used by wire.cc only.
#ifndef TALON_SERVE_GRPC_WIRE_FOREST_H_
#define TALON_SERVE_GRPC_WIRE_FOREST_H_

#include <serve/grpc/spec_decoding.pb.h>

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/remote_calls.h"
#include "serve/grpc/wire.h"

namespace talon {

using TokenNodes = google::protobuf::RepeatedPtrField<specsplit::TokenNode>;

// TOKEN_OUT_OF_RANGE, naming what and which.
Status CheckToken(const char* what, int64_t index, int32_t token, const WireLimits& limits);
Status CheckTokens(const char* what, const std::vector<int32_t>& tokens, const WireLimits& limits);

// The one that is given; both are an error. REQUIRES: the message was scanned.
Result<DraftForest> ReadForest(const TokenNodes& nested, const specsplit::FlatTree& flat,
                               const WireLimits& limits);

void WriteNested(const DraftForest& forest, TokenNodes* roots);
// Without draws, for which there is no place.
void WriteFlat(const DraftForest& forest, specsplit::FlatTree* flat);

}  // namespace talon

#endif  // TALON_SERVE_GRPC_WIRE_FOREST_H_

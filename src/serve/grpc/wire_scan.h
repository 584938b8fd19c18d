// Checks an encoded message before it is parsed: number of tokens and nodes, depth.
//
// Takes time linear in the bytes, constant memory and no recursion, so that a message made to
// exhaust a parser (10^6 nodes, 10^5 levels, endless unknown fields) is refused early.
#ifndef TALON_SERVE_GRPC_WIRE_SCAN_H_
#define TALON_SERVE_GRPC_WIRE_SCAN_H_

#include <string_view>

#include "base/status.h"
#include "serve/grpc/wire.h"

namespace talon {

// The numbers of the fields that can be large; 0: the message has none.
struct MessageShape {
  const char* name = "";
  int prompt = 0;  // repeated int32, at most max_prompt_tokens, like the next two
  int delta = 0;
  int stops = 0;
  int forest = 0;    // repeated TokenNode
  int flat = 0;      // FlatTree
  int accepted = 0;  // repeated int32, at most max_tree_nodes
  int grammar = 0;   // Grammar
};

// OK: the message may be parsed.
Status ScanMessage(std::string_view bytes, const MessageShape& shape, const WireLimits& limits);

}  // namespace talon

#endif  // TALON_SERVE_GRPC_WIRE_SCAN_H_

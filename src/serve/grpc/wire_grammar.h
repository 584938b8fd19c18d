// Grammars on the wire.
#ifndef TALON_SERVE_GRPC_WIRE_GRAMMAR_H_
#define TALON_SERVE_GRPC_WIRE_GRAMMAR_H_

#include <serve/grpc/spec_decoding.pb.h>

#include "base/status.h"
#include "grammar/grammar_spec.h"

namespace talon {

void WriteGrammar(const GrammarSpec& grammar, specsplit::Grammar* message);
// Refuses kinds that are not known. The grammar itself is not looked at.
Result<GrammarSpec> ReadGrammar(const specsplit::Grammar& message);

}  // namespace talon

#endif  // TALON_SERVE_GRPC_WIRE_GRAMMAR_H_

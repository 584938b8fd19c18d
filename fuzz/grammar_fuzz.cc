// Grammars of every kind from hostile text: the first byte says which. What compiles is followed
// for a while, and from every state some text must lead on or the text may end.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "grammar/automaton.h"
#include "grammar/gbnf.h"
#include "grammar/schema/json_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using talon::Automaton;
  if (size == 0) return 0;
  const std::string_view source(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto grammar = data[0] % 3 == 0   ? talon::CompileJsonSchema(source)
                 : data[0] % 3 == 1 ? talon::CompileGbnf(source)
                                    : talon::RegexGrammar(source);
  if (!grammar.ok()) return 0;
  Automaton automaton(grammar->get());
  Automaton::StateId state = automaton.start();
  for (int step = 0; step < 40 && !automaton.exhausted(); ++step) {
    Automaton::StateId next = Automaton::kDead;
    const int first = data[step % size];
    for (int i = 0; i < 256 && next == Automaton::kDead; ++i) {
      next = automaton.Next(state, static_cast<uint8_t>(first + i));
    }
    if (next == Automaton::kDead) {
      if (!automaton.Accepts(state) && !automaton.exhausted()) std::abort();  // a dead end
      break;
    }
    state = next;
  }
  return 0;
}

#include "model/ranks/messages.h"

namespace talon {
namespace {

// The arrays of a plan, in the order they are sent.
template <typename Plan, typename Visit>
void ForArrays(Plan& plan, const Visit& visit) {
  visit(plan.tokens);
  visit(plan.positions);
  visit(plan.slots);
  visit(plan.prefix_len);
  visit(plan.sequence_rows);
  visit(plan.block_offsets);
  visit(plan.block_ids);
  visit(plan.sequence_lists);
  visit(plan.ancestors);
  visit(plan.nodes_before);
  visit(plan.staging_first);
  visit(plan.fresh_keys);
  visit(plan.output_rows);
  visit(plan.feature_rows);
  visit(plan.scores);
}

}  // namespace

void PutPlan(const PassPlan& plan, MessageWriter* writer) {
  writer->Put(plan.mask_words);
  ForArrays(plan, [&](const auto& array) { writer->PutAll(std::span(array)); });
}

PassPlan GetPlan(MessageReader* reader) {
  PassPlan plan;
  plan.mask_words = reader->Get<int>();
  ForArrays(plan, [&](auto& array) {
    using Element = typename std::remove_reference_t<decltype(array)>::value_type;
    array = reader->GetAll<Element>();
  });
  return plan;
}

void RankHash::Add(std::span<const uint8_t> bytes) {
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof(word));
    Add(word);
    bytes = bytes.subspan(sizeof(word));
  }
  uint64_t rest = bytes.size();
  for (const uint8_t byte : bytes) rest = rest << 8 | byte;
  Add(rest);
}

}  // namespace talon

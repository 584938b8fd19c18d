#include "random_batch.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace talon {
namespace {

constexpr int kPromptRows = 512;
constexpr int kSpareBlocks = 64;

}  // namespace

RandomBatch::RandomBatch(const FuzzShape& shape, KvCache* kv) : shape_(shape), kv_(kv) {
  ScatterBlocks();
}

void RandomBatch::ScatterBlocks() {
  std::vector<Sequence> all(kv_->pool().free_blocks());
  for (Sequence& sequence : all) Extend(&sequence, shape_.block_size);
  std::shuffle(all.begin(), all.end(), random_);
  for (Sequence& sequence : all) kv_->Free(&sequence);
}

void RandomBatch::Extend(Sequence* sequence, int tokens) {
  sequence->tokens.assign(sequence->committed_len + tokens + 1, 0);
  Reservation reservation = kv_->Reserve(*sequence, tokens).value();
  kv_->Advance(sequence, std::move(reservation), tokens, "prefill");
}

int RandomBatch::LogUniform(int low, int high) {
  const double share = static_cast<double>(random_()) / static_cast<double>(random_.max());
  return static_cast<int>(low * std::pow(static_cast<double>(high) / low, share) + 0.5);
}

void RandomBatch::Add(std::function<void(PassBuilder*)> add) {
  add(&builder_);
  adders_.push_back(std::move(add));
}

void RandomBatch::Compose(uint64_t seed) {
  random_.seed(seed);
  builder_.Reset();
  sequences_.clear();
  adders_.clear();
  const int count = LogUniform(1, 128);
  sequences_.reserve(count);
  const int longest = random_() % 64 == 0 ? 131072 : LogUniform(16, 8192);
  const int most_nodes = LogUniform(1, 64);
  const bool in_slots = random_() % 8 == 0;
  const bool partial = random_() % 3 == 0;
  const int prompts = random_() % 2 == 0 ? 0 : Uniform(0, std::min(count, 48));
  for (int i = 0; i < count - prompts; ++i) AddTree(longest, most_nodes, in_slots, partial);
  AddPrompts(prompts, longest);
  text_ = fmt::format("{}, {} sequences ({} prompts) to {} tokens, {} rows, nodes to {}{}{}",
                      shape_.Name(), sequences_.size(), prompts, longest, builder_.num_rows(),
                      most_nodes, in_slots ? ", in slots" : "", partial ? ", partial" : "");
}

Sequence* RandomBatch::NewSequence(int longest) {
  const int length = LogUniform(1, longest);
  const SequenceId id = sequences_.size() + 1;
  if (!sequences_.empty() && random_() % 4 == 0) {
    const Sequence& other = sequences_[random_() % sequences_.size()];
    if (kv_->pool().free_blocks() < length / shape_.block_size + kSpareBlocks) return nullptr;
    sequences_.push_back(kv_->Fork(other, id));
  } else {
    if (kv_->pool().free_blocks() < length / shape_.block_size + kSpareBlocks) return nullptr;
    sequences_.push_back({.id = id});
  }
  Sequence* sequence = &sequences_.back();
  const int more = std::max(1, length - sequence->committed_len);
  Extend(sequence, more);
  return sequence;
}

TokenTree RandomBatch::RandomTree(int nodes) {
  TokenTree tree(0);
  std::vector<int> parents;
  for (int i = 1; i < nodes; ++i) parents.push_back(Uniform(std::max(0, i - 8), i - 1));
  std::ranges::sort(parents);  // then depths do not decrease
  for (const int parent : parents) tree.Add(parent, tree.size(), 1);
  return tree;
}

void RandomBatch::AddTree(int longest, int most_nodes, bool in_slots, bool partial) {
  const int nodes = random_() % 3 == 0 ? 1 : LogUniform(1, most_nodes);
  if (builder_.num_rows() + nodes > kMaxRows - kPromptRows) return;
  Sequence* sequence = NewSequence(longest);
  if (sequence == nullptr) return;
  const TokenTree tree = RandomTree(nodes);
  if (partial && random_() % 2 == 0 && kv_->staging().OpenTail(sequence).ok()) {
    AddPartialTree(sequence, tree);
  } else if (in_slots) {
    reservations_.push_back(kv_->Reserve(*sequence, nodes).value());
    Add([=, slots = reservations_.back().slots](PassBuilder* pass) {
      pass->AddTree(*sequence, tree, slots);
    });
  } else {
    Add([=](PassBuilder* pass) { pass->AddTree(*sequence, tree); });
  }
}

void RandomBatch::AddPartialTree(Sequence* sequence, const TokenTree& tree) {
  sequence->tail_len = Uniform(0, kTailRows - tree.size());
  sequence->tokens.resize(sequence->tokens.size() + sequence->tail_len);
  const int blocks = static_cast<int>(sequence->blocks.size());
  const int kept = LogUniform(1, blocks);
  std::vector<int32_t> ids;
  for (int list = 0; list < kLayers * shape_.kv_heads; ++list) {
    std::vector<int32_t> chosen(sequence->blocks.begin(), sequence->blocks.end() - 1);
    std::shuffle(chosen.begin(), chosen.end(), random_);
    chosen.resize(kept - 1);
    chosen.push_back(sequence->blocks.back());
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  const int left_out = (blocks - kept) * shape_.block_size;
  Add([=, this](PassBuilder* pass) {
    pass->AddPartialTree(*sequence, tree,
                         {.block_ids = ids,
                          .num_lists = kLayers * shape_.kv_heads,
                          .tokens = sequence->committed_len - left_out});
  });
}

void RandomBatch::AddPrompts(int count, int longest) {
  int budget = kPromptRows;
  for (int left = count; left > 0; --left) {
    const int rows = std::min(budget, random_() % 2 == 0 ? budget / left + 1 : LogUniform(1, 256));
    if (rows == 0) return;
    Sequence* sequence = NewSequence(longest);
    if (sequence == nullptr) return;
    sequence->tokens.resize(sequence->tokens.size() + rows);
    auto reservation = kv_->Reserve(*sequence, rows);
    if (!reservation.ok()) return;
    reservations_.push_back(std::move(*reservation));
    Add([this, sequence, index = reservations_.size() - 1](PassBuilder* pass) {
      pass->AddPrompt(*sequence, reservations_[index]);
    });
    budget -= rows;
  }
}

void RandomBatch::FreeAll() {
  for (Reservation& reservation : reservations_) kv_->Cancel(std::move(reservation));
  reservations_.clear();
  for (Sequence& sequence : sequences_) kv_->Free(&sequence);
}

}  // namespace talon

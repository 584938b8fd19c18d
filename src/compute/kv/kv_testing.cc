#include "compute/kv/kv_testing.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/math.h"
#include "compute/host/host_memory.h"
#include "compute/kv/kv_units.h"
#include "compute/reference/reference_kv.h"

namespace talon::testing {
namespace {

// 0xFF bytes are NaN in every type, as elements or as scales.
std::vector<uint8_t> PoisonedArray(const KvShape& shape, int64_t vectors) {
  return std::vector<uint8_t>(vectors * (shape.VectorBytes() + shape.ScaleBytes()), 0xFF);
}

// Hands out each block once, in random order.
class BlockPicker {
 public:
  BlockPicker(int num_blocks, std::mt19937& random) : free_(num_blocks) {
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), random);
  }
  int Take() {
    TALON_CHECK(!free_.empty());
    const int block = free_.back();
    free_.pop_back();
    return block;
  }

 private:
  std::vector<int> free_;
};

// Fills a list with the committed tokens of one kv head, or of all (head < 0).
void AddList(const SequenceSpec& spec, int head, BlockPicker& picker, PassPlan* plan,
             KvImage* image) {
  const KvShape& shape = image->shape();
  const size_t first = plan->block_ids.size();
  for (int t = 0; t < spec.committed; ++t) {
    if (t % shape.block_size == 0) plan->block_ids.push_back(picker.Take());
    const int block = plan->block_ids[first + t / shape.block_size];
    const int64_t slot = int64_t{block} * shape.block_size + t % shape.block_size;
    for (int h = 0; h < shape.kv_heads; ++h) {
      if (head < 0 || head == h) image->WriteSlot(slot, h, spec.base + t);
    }
  }
  plan->block_offsets.push_back(static_cast<int>(plan->block_ids.size()));
}

void AddCommitted(const SequenceSpec& spec, BlockPicker& picker, PassPlan* plan, KvImage* image) {
  const KvShape& shape = image->shape();
  if (!spec.partial) {
    AddList(spec, -1, picker, plan, image);
  } else {
    const int blocks = CeilDiv(spec.committed, shape.block_size);
    const int poison = picker.Take();  // a read of another layer's list gives NaN
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        if (layer == image->layer()) {
          AddList(spec, head, picker, plan, image);
          continue;
        }
        plan->block_ids.insert(plan->block_ids.end(), blocks, poison);
        plan->block_offsets.push_back(static_cast<int>(plan->block_ids.size()));
      }
    }
  }
  plan->sequence_lists.push_back(static_cast<int>(plan->block_offsets.size()) - 1);
}

void AddPromptRows(const SequenceSpec& spec, int block_size, PassPlan* plan) {
  const size_t list = plan->block_offsets.size() - 2;
  for (int i = 0; i < spec.prompt_rows; ++i) {
    const int t = spec.committed - spec.prompt_rows + i;
    const int block = plan->block_ids[plan->block_offsets[list] + t / block_size];
    plan->tokens.push_back(static_cast<int>(spec.base + t));
    plan->positions.push_back(t);
    plan->slots.push_back(block * block_size + t % block_size);
    plan->prefix_len.push_back(t + 1);
    plan->ancestors.insert(plan->ancestors.end(), plan->mask_words, 0);
  }
}

// The row's bit and its parent's mask.
std::vector<uint64_t> MaskOf(const std::vector<std::vector<uint64_t>>& masks, int words, int parent,
                             size_t node) {
  std::vector<uint64_t> mask(words);
  if (parent >= 0) mask = masks[parent];
  mask[node / 64] |= uint64_t{1} << (node % 64);
  return mask;
}

void AddTreeRows(const SequenceSpec& spec, int staging_first, BlockPicker& picker, PassPlan* plan,
                 KvImage* image) {
  const KvShape& shape = image->shape();
  std::vector<int> depth;
  std::vector<std::vector<uint64_t>> masks;
  int slot = -1;
  for (size_t node = 0; node < spec.parents.size(); ++node) {
    const int parent = spec.parents[node];
    const int64_t content = spec.contents.empty()
                                ? spec.base + spec.committed + static_cast<int64_t>(node)
                                : spec.contents[node];
    depth.push_back(parent < 0 ? 0 : depth[parent] + 1);
    masks.push_back(MaskOf(masks, plan->mask_words, parent, node));
    // Slots of the tree lie in blocks of their own, outside of every list.
    if (spec.in_slots) slot = node % 3 == 0 ? picker.Take() * shape.block_size : slot + 1;
    for (int head = 0; head < shape.kv_heads; ++head) {
      if (spec.in_slots) {
        image->WriteSlot(slot, head, content);
      } else {
        image->WriteStaged(staging_first + static_cast<int>(node), head, content);
      }
    }
    if (static_cast<int>(node) < spec.tail) continue;
    plan->tokens.push_back(static_cast<int>(content));
    plan->positions.push_back(spec.committed + depth.back());
    plan->slots.push_back(slot);
    plan->prefix_len.push_back(spec.committed);
    plan->ancestors.insert(plan->ancestors.end(), masks.back().begin(), masks.back().end());
  }
}

}  // namespace

KvImage::KvImage(const KvShape& shape, int layer, DType numbers, float value_magnitude)
    : shape_(shape),
      layer_(layer),
      numbers_(numbers),
      value_magnitude_(value_magnitude),
      k_blocks_(PoisonedArray(shape, shape.BlockVectors())),
      v_blocks_(k_blocks_),
      k_staged_(PoisonedArray(shape, shape.StagedVectors())),
      v_staged_(k_staged_) {}

std::vector<float> Rounded(const KvShape& shape, std::span<const float> vector) {
  std::vector<uint8_t> elements(shape.VectorBytes());
  uint8_t scale = 0;
  const HostVector stored({elements.data(), &scale}, 0, elements.size());
  ReferenceStore(shape, vector.data(), stored);
  std::vector<float> rounded;
  for (int d = 0; d < shape.head_dim; ++d) rounded.push_back(ReferenceLoad(shape, stored, d));
  return rounded;
}

std::vector<float> KvImage::Values(int64_t content, int head, bool value) const {
  const uint64_t seed = static_cast<uint64_t>(content) * 1000 + head * 2 + (value ? 1 : 0);
  KvShape shape = shape_;
  shape.dtype = numbers_;
  return Rounded(shape_,
                 Rounded(shape, RandomValues(shape_.head_dim, seed, value ? value_magnitude_ : 1)));
}

void KvImage::Write(int64_t place, int head, int64_t content) {
  ReferenceStore(shape_, Values(content, head, false).data(),
                 VectorAt(shape_, k_blocks_.data(), k_staged_.data(), place, head));
  ReferenceStore(shape_, Values(content, head, true).data(),
                 VectorAt(shape_, v_blocks_.data(), v_staged_.data(), place, head));
}

namespace {

// Blocks of one side from vectors to units, or back. Scales stay where they are.
std::vector<uint8_t> Reordered(const KvShape& shape, KvSide side, const std::vector<uint8_t>& from,
                               bool to_units) {
  std::vector<uint8_t> to = from;
  for (int64_t i = 0; i < shape.BlockVectors(); ++i) {
    const auto token = static_cast<int>(i % kUnitTokens);
    const size_t vector = i * shape.VectorBytes();
    const size_t unit = (i - token) * shape.VectorBytes();
    if (to_units) {
      WriteToUnit(shape, side, from.data() + vector, token, to.data() + unit);
    } else {
      ReadFromUnit(shape, side, from.data() + unit, token, to.data() + vector);
    }
  }
  return to;
}

}  // namespace

DeviceKv::DeviceKv(Backend& backend, const KvImage& image) : shape_(image.shape_) {
  shape_.layout = backend.BlockLayout(shape_);
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    KvLayer arrays;
    const std::pair<void**, const std::vector<uint8_t>*> contents[] = {
        {&arrays.k_blocks, &image.k_blocks_},
        {&arrays.v_blocks, &image.v_blocks_},
        {&arrays.k_staged, &image.k_staged_},
        {&arrays.v_staged, &image.v_staged_}};
    for (const auto& [pointer, bytes] : contents) {
      // Other layers are all poison.
      const std::vector<uint8_t> poison(bytes->size(), 0xFF);
      std::vector<uint8_t> content = layer == image.layer_ ? *bytes : poison;
      const bool keys = pointer == &arrays.k_blocks;
      if (shape_.in_units() && (keys || pointer == &arrays.v_blocks)) {
        content = Reordered(shape_, keys ? KvSide::kKeys : KvSide::kValues, content, true);
      }
      arrays_.emplace_back(backend, content);
      *pointer = arrays_.back().data();
    }
    if (shape_.key_summaries) AddSummaries(backend, &arrays);
    layers_.push_back(arrays);
  }
}

void DeviceKv::AddSummaries(Backend& backend, KvLayer* arrays) {
  const int64_t vectors = int64_t{shape_.num_blocks} * shape_.kv_heads;
  const size_t bytes = shape_.SummaryBytes() * shape_.num_blocks;
  for (void** pointer : {&arrays->key_max, &arrays->key_min}) {
    arrays_.emplace_back(backend, std::vector<uint8_t>(bytes, 0xFF));
    *pointer = arrays_.back().data();
  }
  arrays_.emplace_back(backend, std::vector<uint8_t>(vectors * sizeof(float), 0xFF));
  arrays->key_norm = static_cast<float*>(arrays_.back().data());
}

std::vector<float> DeviceKv::ReadSummary(Backend& backend, const void* array) const {
  const int64_t elements = int64_t{shape_.num_blocks} * shape_.kv_heads * shape_.head_dim;
  std::vector<uint8_t> bytes(shape_.SummaryBytes() * shape_.num_blocks);
  backend.CopyOut(bytes.data(), array, bytes.size());
  std::vector<float> values(elements);
  for (int64_t i = 0; i < elements; ++i) {
    values[i] = LoadElement(bytes.data(), shape_.value_type(), i);
  }
  return values;
}

std::vector<float> DeviceKv::Read(Backend& backend, const void* array, int64_t vectors) const {
  std::vector<uint8_t> bytes(PoisonedArray(shape_, vectors));
  backend.CopyOut(bytes.data(), array, bytes.size());
  for (const KvLayer& layer : layers_) {
    if (!shape_.in_units()) break;
    if (array == layer.k_blocks) bytes = Reordered(shape_, KvSide::kKeys, bytes, false);
    if (array == layer.v_blocks) bytes = Reordered(shape_, KvSide::kValues, bytes, false);
  }
  const KvVectors stored = KvVectors::Of(shape_, bytes.data(), vectors);
  std::vector<float> values;
  for (int64_t i = 0; i < vectors; ++i) {
    for (int d = 0; d < shape_.head_dim; ++d) {
      values.push_back(ReferenceLoad(shape_, {stored, i, shape_.VectorBytes()}, d));
    }
  }
  return values;
}
std::vector<float> DeviceKv::ReadBlocks(Backend& backend, const void* array) const {
  return Read(backend, array, shape_.BlockVectors());
}
std::vector<float> DeviceKv::ReadStaged(Backend& backend, const void* array) const {
  return Read(backend, array, shape_.StagedVectors());
}

PassPlan BuildPass(const std::vector<SequenceSpec>& sequences, std::mt19937& random,
                   KvImage* image) {
  const KvShape& shape = image->shape();
  BlockPicker picker(shape.num_blocks, random);
  PassPlan plan;
  bool plain = true;  // neither partial lists nor tails: what describes them may be left out
  for (const SequenceSpec& spec : sequences) {
    plan.mask_words = std::max(plan.mask_words, static_cast<int>(CeilDiv(spec.parents.size(), 64)));
    plain &= !spec.partial && spec.tail == 0;
  }
  plan.sequence_rows = {0};
  plan.block_offsets = {0};
  plan.sequence_lists = {0};
  int staging = 0;
  for (const SequenceSpec& spec : sequences) {
    AddCommitted(spec, picker, &plan, image);
    AddPromptRows(spec, shape.block_size, &plan);
    AddTreeRows(spec, staging, picker, &plan, image);
    plan.sequence_rows.push_back(plan.num_rows());
    plan.nodes_before.push_back(spec.tail);
    plan.staging_first.push_back(staging);
    staging += spec.prompt_rows + static_cast<int>(spec.parents.size());
  }
  for (auto* array : {&plan.sequence_lists, &plan.nodes_before, &plan.staging_first}) {
    if (plain) array->clear();
  }
  return plan;
}

std::vector<int> RandomTree(int nodes, std::mt19937& random) {
  std::vector<int> parents = {-1};
  std::vector<int> depth = {0};
  while (static_cast<int>(parents.size()) < nodes) {
    // A parent no shallower than the last one's, so that depths never decrease.
    const int last = std::max(parents.back(), 0);
    const int parent =
        std::uniform_int_distribution<int>(last, static_cast<int>(parents.size()) - 1)(random);
    if (depth[parent] + 1 < depth.back()) continue;
    parents.push_back(parent);
    depth.push_back(depth[parent] + 1);
  }
  return parents;
}

std::vector<int> Chain(int nodes) {
  std::vector<int> parents(nodes);
  std::iota(parents.begin(), parents.end(), -1);
  return parents;
}

}  // namespace talon::testing

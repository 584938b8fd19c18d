#include "compute/kv_testing.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "compute/host_memory.h"

namespace talon::testing {
namespace {

std::vector<uint8_t> PoisonedArray(const KvShape& shape, int64_t elements) {
  std::vector<uint8_t> array(elements * DTypeSize(shape.dtype));
  for (int64_t i = 0; i < elements; ++i) {
    StoreElement(array.data(), shape.dtype, i, std::numeric_limits<float>::quiet_NaN());
  }
  return array;
}

int64_t BlockElements(const KvShape& shape) {
  return static_cast<int64_t>(shape.TileElements()) * shape.kv_heads * shape.num_blocks;
}
int64_t StagedElements(const KvShape& shape) {
  return int64_t{shape.staging_rows} * shape.kv_heads * shape.head_dim;
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

void AddCommitted(const SequenceSpec& spec, int list_count, BlockPicker& picker, PassPlan* plan,
                  KvImage* image) {
  const KvShape& shape = image->shape();
  const int blocks = (spec.committed + shape.block_size - 1) / shape.block_size;
  for (int list = 0; list < list_count; ++list) {
    const size_t first = plan->block_ids.size();
    for (int b = 0; b < blocks; ++b) plan->block_ids.push_back(picker.Take());
    plan->block_offsets.push_back(static_cast<int>(plan->block_ids.size()));
    for (int t = 0; t < spec.committed; ++t) {
      const int block = plan->block_ids[first + t / shape.block_size];
      const int64_t slot = int64_t{block} * shape.block_size + t % shape.block_size;
      for (int head = 0; head < shape.kv_heads; ++head) {
        if (list_count > 1 && head != list) continue;
        image->WriteSlot(slot, head, spec.base + t);
      }
    }
  }
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

void AddTreeRows(const SequenceSpec& spec, BlockPicker& picker, PassPlan* plan, KvImage* image) {
  const KvShape& shape = image->shape();
  std::vector<int> depth;
  const size_t first_mask = plan->ancestors.size();
  int slot = -1;
  for (size_t node = 0; node < spec.parents.size(); ++node) {
    const int parent = spec.parents[node];
    const int64_t content = spec.contents.empty()
                                ? spec.base + spec.committed + static_cast<int64_t>(node)
                                : spec.contents[node];
    depth.push_back(parent < 0 ? 0 : depth[parent] + 1);
    const int row = plan->num_rows();
    // Slots of the tree lie in blocks of their own, outside of every list.
    if (spec.in_slots) slot = node % 3 == 0 ? picker.Take() * shape.block_size : slot + 1;
    for (int head = 0; head < shape.kv_heads; ++head) {
      if (spec.in_slots) {
        image->WriteSlot(slot, head, content);
      } else {
        image->WriteStaged(row, head, content);
      }
    }
    plan->tokens.push_back(static_cast<int>(content));
    plan->positions.push_back(spec.committed + depth.back());
    plan->slots.push_back(slot);
    plan->prefix_len.push_back(spec.committed);
    std::vector<uint64_t> mask(plan->mask_words);
    if (parent >= 0) {
      const auto from = plan->ancestors.begin() + static_cast<ptrdiff_t>(first_mask) +
                        ptrdiff_t{parent} * plan->mask_words;
      std::copy_n(from, plan->mask_words, mask.begin());
    }
    mask[node / 64] |= uint64_t{1} << (node % 64);
    plan->ancestors.insert(plan->ancestors.end(), mask.begin(), mask.end());
  }
}

}  // namespace

KvImage::KvImage(const KvShape& shape, int layer)
    : shape_(shape),
      layer_(layer),
      k_blocks_(PoisonedArray(shape, BlockElements(shape))),
      v_blocks_(k_blocks_),
      k_staged_(PoisonedArray(shape, StagedElements(shape))),
      v_staged_(k_staged_) {}

std::vector<float> KvImage::Values(int64_t content, int head, bool value) const {
  const uint64_t seed = static_cast<uint64_t>(content) * 1000 + head * 2 + (value ? 1 : 0);
  std::vector<float> values = RandomValues(shape_.head_dim, seed);
  for (float& element : values) {
    uint32_t storage = 0;
    StoreElement(&storage, shape_.dtype, 0, element);
    element = LoadElement(&storage, shape_.dtype, 0);
  }
  return values;
}

void KvImage::Write(std::vector<uint8_t>& array, int64_t offset, int64_t content, int head,
                    bool value) {
  const std::vector<float> values = Values(content, head, value);
  for (int d = 0; d < shape_.head_dim; ++d) {
    StoreElement(array.data(), shape_.dtype, offset + d, values[d]);
  }
}

void KvImage::WriteSlot(int64_t slot, int head, int64_t content) {
  Write(k_blocks_, SlotOffset(shape_, slot, head), content, head, false);
  Write(v_blocks_, SlotOffset(shape_, slot, head), content, head, true);
}

void KvImage::WriteStaged(int64_t row, int head, int64_t content) {
  Write(k_staged_, StagedOffset(shape_, row, head), content, head, false);
  Write(v_staged_, StagedOffset(shape_, row, head), content, head, true);
}

DeviceKv::DeviceKv(Backend& backend, const KvImage& image) : shape_(image.shape_) {
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    KvLayer arrays;
    const std::pair<void**, const std::vector<uint8_t>*> contents[] = {
        {&arrays.k_blocks, &image.k_blocks_},
        {&arrays.v_blocks, &image.v_blocks_},
        {&arrays.k_staged, &image.k_staged_},
        {&arrays.v_staged, &image.v_staged_}};
    for (const auto& [pointer, bytes] : contents) {
      // Other layers are all poison: 0xFF bytes are NaN in every type.
      const std::vector<uint8_t> poison(bytes->size(), 0xFF);
      arrays_.emplace_back(backend, layer == image.layer_ ? *bytes : poison);
      *pointer = arrays_.back().data();
    }
    layers_.push_back(arrays);
  }
}

std::vector<float> DeviceKv::Read(Backend& backend, const void* array, int64_t elements) const {
  std::vector<uint8_t> bytes(elements * DTypeSize(shape_.dtype));
  backend.CopyOut(bytes.data(), array, bytes.size());
  std::vector<float> values(elements);
  for (int64_t i = 0; i < elements; ++i) values[i] = LoadElement(bytes.data(), shape_.dtype, i);
  return values;
}

PassPlan BuildPass(const std::vector<SequenceSpec>& sequences, bool list_per_head,
                   std::mt19937& random, KvImage* image) {
  const KvShape& shape = image->shape();
  BlockPicker picker(shape.num_blocks, random);
  PassPlan plan;
  plan.lists_per_sequence = list_per_head ? shape.kv_heads : 1;
  for (const SequenceSpec& spec : sequences) {
    plan.mask_words = std::max(plan.mask_words, static_cast<int>(spec.parents.size() + 63) / 64);
  }
  plan.sequence_rows = {0};
  plan.block_offsets = {0};
  for (const SequenceSpec& spec : sequences) {
    AddCommitted(spec, plan.lists_per_sequence, picker, &plan, image);
    AddPromptRows(spec, shape.block_size, &plan);
    AddTreeRows(spec, picker, &plan, image);
    plan.sequence_rows.push_back(plan.num_rows());
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

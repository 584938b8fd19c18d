#include "compute/cpu/matmul/product/run_block.h"

#include <algorithm>

#include "compute/cpu/matmul/product/block_sums.h"

namespace talon {
namespace {

constexpr int64_t kFetchAheadBytes = 4 << 10;  // in panels read once, further than memory is away
// Sums that are added to those of other segments at a time, while they are in the first-level
// cache: of a few tiles, or the calls would cost more than the additions.
constexpr int64_t kAddedSums = 2 * kMostTileSums;

alignas(64) constexpr uint32_t kZeroSums[kAddedSums] = {};

// A run of groups of one panel, of one segment.
struct Slice {
  const uint8_t* panel = nullptr;  // at first_group
  int64_t first_group = 0, groups = 0;
  const uint8_t* next = nullptr;  // what to fetch meanwhile, as long as the slice; `panel`: nothing
  bool first = false, last = false;  // in its segment
};

class BlockProduct {
 public:
  BlockProduct(const Product& product, const Block& block, void* memory)
      : product_(product), kernel_(product.kernel()), block_(block), sums_(product, block, memory) {
    expanded_ = static_cast<uint8_t*>(sums_.End());
    held_ = reinterpret_cast<uint32_t*>(expanded_ + ExpandedBytes(product));
  }

  // Memory for an expanded slice.
  static int64_t ExpandedBytes(const Product& product) {
    return product.SliceGroups() * product.kernel().expanded_group_bytes;
  }

  void Run() {
    const int64_t step = IsFew() ? 1 : block_.panels;
    for (int64_t first = 0; first < block_.panels; first += step) {
      for (int s = 0; s < product_.num_segments(); ++s) MultiplySegment(s, first, first + step);
    }
  }

 private:
  // Few rows are bound by memory alone: they read the panels from end to end, as they lie, each a
  // single stream. More rows stay at a slice and fetch the next meanwhile.
  bool IsFew() const {
    const int few = kernel_.limits.few_rows;
    return block_.rows <= (few > 0 ? few : kernel_.max_rows / 2);
  }
  bool Expands() const {
    return kernel_.expand != nullptr && block_.rows > kernel_.limits.packed_rows;
  }

  // The weights of the block's p-th panel from `group` on.
  const uint8_t* PanelAt(int64_t p, int64_t group) const {
    return product_.w.panel(block_.PanelOf(p)) + group * kernel_.panel_group_bytes;
  }

  // The part of one segment that some panels have in all sums.
  void MultiplySegment(int s, int64_t first_panel, int64_t last_panel) {
    const WeightSegment& segment = product_.w.segments()[s];
    const int64_t end = segment.first_group + segment.groups;
    const int64_t step =
        IsFew() ? segment.groups : std::min(product_.SliceGroups(), segment.groups);
    for (int64_t group = segment.first_group; group < end; group += step) {
      for (int64_t p = first_panel; p < last_panel; ++p) {
        const Slice slice = {.panel = PanelAt(p, group),
                             .first_group = group,
                             .groups = std::min(step, end - group),
                             .next = NextSlice(p, group, std::min(group + step, end), segment),
                             .first = group == segment.first_group,
                             .last = group + step >= end};
        if (Expands()) kernel_.expand(slice.panel, slice.groups, expanded_);
        MultiplySlice(s, p, slice);
      }
    }
  }

  const uint8_t* NextSlice(int64_t p, int64_t group, int64_t next_group,
                           const WeightSegment& segment) const {
    if (IsFew()) return PanelAt(p, group) + kStreamAheadBytes;
    if (segment.groups <= product_.SliceGroups()) {
      const auto panel_bytes = static_cast<int64_t>(product_.w.panel_bytes());
      return PanelAt(p, group) + std::max(kFetchAheadBytes, panel_bytes);
    }
    return p + 1 < block_.panels ? PanelAt(p + 1, group) : PanelAt(0, next_group);
  }

  // All tiles of the block by one slice of its p-th panel.
  void MultiplySlice(int s, int64_t p, const Slice& slice) {
    const int64_t step = kAddedSums / product_.TileSums();
    for (int64_t first = 0; first < block_.tiles; first += step) {
      const TileRun tiles = {first, std::min(step, block_.tiles - first)};
      uint32_t* held = held_ + (p * block_.tiles + first) * product_.TileSums();
      uint32_t* to = slice.last ? buffer_ : held;
      MultiplyTiles(slice, tiles, slice.first ? nullptr : held, to);
      if (slice.last) sums_.Add(s, p, tiles, to);
    }
  }

  // `from`: the tiles' accumulators until now, or null.
  void MultiplyTiles(const Slice& slice, const TileRun& tiles, const uint32_t* from, uint32_t* to) {
    const int64_t step = slice.next == slice.panel ? 0 : kernel_.panel_group_bytes / block_.tiles;
    for (int64_t t = 0; t < tiles.count; ++t) {
      const int64_t tile = tiles.first + t;
      const int row = static_cast<int>(tile) * kernel_.max_rows;
      const int rows = product_.PaddedRows(std::min(kernel_.max_rows, block_.rows - row));
      kernel_.tile(
          {.x = product_.Tile(block_.first_row + row) + slice.first_group * rows * row_group_bytes_,
           .panel = Expands() ? expanded_ : slice.panel,
           .groups = slice.groups,
           .rows = rows,
           .single = block_.rows - row == 1,
           .next = slice.next + tile * slice.groups * step,
           .next_step = step,
           .from = from == nullptr ? kZeroSums : from + t * product_.TileSums(),
           .to = to + t * product_.TileSums(),
           .fresh = from == nullptr,
           .expanded = Expands()});
    }
  }

  const Product& product_;
  const MatrixKernel& kernel_;
  const Block& block_;
  const int64_t row_group_bytes_ =
      kernel_.group * static_cast<int64_t>(DTypeSize(kernel_.activation_type));
  BlockSums sums_;
  uint8_t* expanded_;  // the slice's weights, if tiles want them so
  uint32_t* held_;     // [panels][tiles][max_rows * width], from one slice of a segment to the next
  alignas(64) uint32_t buffer_[kAddedSums];  // what is added next
};

bool HoldsSums(const Product& product) {
  const auto is_long = [&](const WeightSegment& s) { return s.groups > product.SliceGroups(); };
  return std::ranges::any_of(product.w.segments(), is_long);
}

}  // namespace

Block BlockOf(const Product& product, int64_t row_block, int64_t output_block) {
  const MatrixKernel& kernel = product.kernel();
  Block block;
  block.first_row = static_cast<int>(row_block) * kernel.limits.rows;
  block.rows = std::min(kernel.limits.rows, product.call.x.rows - block.first_row);
  block.first_output = static_cast<int>(output_block) * product.outputs_per_task;
  block.outputs = std::min(product.outputs_per_task, product.half_outputs() - block.first_output);
  block.tiles = CeilDiv(block.rows, kernel.max_rows);
  block.gate_panels = CeilDiv(block.outputs, kernel.width);
  block.panels = product.halves() * block.gate_panels;
  block.first_panel = block.first_output / kernel.width;
  block.first_up_panel = (block.first_output + product.half_outputs()) / kernel.width;
  return block;
}

int64_t BlockSumsBytes(const Product& product) {
  const Block largest = BlockOf(product, 0, 0);
  const int64_t held = HoldsSums(product) ? largest.panels * largest.tiles * product.TileSums() : 0;
  return BlockSums::Bytes(product, largest) + BlockProduct::ExpandedBytes(product) +
         held * static_cast<int64_t>(sizeof(uint32_t));
}

void RunBlock(const Product& product, const Block& block, void* memory) {
  BlockProduct(product, block, memory).Run();
}

}  // namespace talon

#include "compute/cpu/attention_block.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "compute/host_memory.h"

namespace talon {
namespace {

constexpr int kTilesAhead = 1;  // how far ahead of their use keys and values are fetched

}  // namespace

void MergeRunning(const Running& part, int dim, const Running& total) {
  const float max = std::max(*total.max, *part.max);
  const float keep = std::exp2(*total.max - max);
  const float add = std::exp2(*part.max - max);
  *total.sum = *total.sum * keep + *part.sum * add;
  for (int d = 0; d < dim; ++d) total.values[d] = total.values[d] * keep + part.values[d] * add;
  *total.max = max;
}

void CopyRunning(const Running& from, int dim, const Running& to) {
  *to.max = *from.max;
  *to.sum = *from.sum;
  std::copy_n(from.values, dim, to.values);
}

// Adding zero turns -0 into +0, which keys of weight zero may or may not have done already.
void WriteOutput(const Running& total, int head_dim, float* out) {
  const float factor = 1.0f / *total.sum;
  for (int d = 0; d < head_dim; ++d) out[d] = total.values[d] * factor + 0.0f;
}

void AttentionPartials::Reserve(int64_t count, int dim) {
  const auto size = static_cast<size_t>(count);
  max.resize(std::max(max.size(), size));
  sum.resize(std::max(sum.size(), size));
  values.resize(std::max(values.size(), size * dim));
}

Running AttentionPartials::At(const AttentionCall& call, const AttentionRow& row, int split,
                              int head) {
  const int64_t index = int64_t{row.partial_begin + split} * call.heads() + head;
  return {&max[index], &sum[index], values.data() + index * PaddedDim(call.shape.head_dim)};
}

void FloatArena::Reserve(size_t floats) {
  if (memory_.bytes() >= floats * sizeof(float)) return;
  auto buffer = AllocateHostMemory(floats * sizeof(float));
  TALON_CHECK(buffer.ok(), "{}", buffer.status().message());
  memory_ = std::move(buffer).value();
}

float* FloatArena::Take(size_t floats) {
  float* data = static_cast<float*>(memory_.data()) + used_;
  used_ += Rounded(floats);
  TALON_DCHECK(used_ * sizeof(float) <= memory_.bytes());
  return data;
}

void AttentionTiles::Place(int num_queries, int dim, FloatArena* arena) {
  scores = arena->Take(num_queries * kTileKeys);
  probs = arena->Take(num_queries * kTileKeys);
  packed = arena->Take(kTileKeys * dim);
  own_packed = arena->Take(kTileKeys * dim);
  gathered = arena->Take(kTileKeys * dim);
}

size_t AttentionTiles::Floats(int dim) {
  return 2 * FloatArena::Rounded(kMaxTileRows * kTileKeys) +
         3 * FloatArena::Rounded(static_cast<size_t>(kTileKeys) * dim);
}

void AttentionState::Place(int num_queries, int dim, FloatArena* arena) {
  queries = arena->Take(num_queries * dim);
  values = arena->Take(num_queries * dim);
  total_values = arena->Take(num_queries * dim);
}

size_t AttentionState::Floats(int dim) {
  return 3 * FloatArena::Rounded(static_cast<size_t>(kMaxTileRows) * dim);
}

QueryBlock::QueryBlock(const AttentionCall& call, const AttentionItem& item, const Range& range,
                       AttentionTiles* tiles, AttentionState* state)
    : call_(call),
      kernels_(*call.kernels),
      tiles_(tiles),
      state_(state),
      kv_head_(range.kv_head),
      num_queries_(range.num_queries),
      dim_(PaddedDim(call.shape.head_dim)),
      block_shift_(std::countr_zero(static_cast<unsigned>(call.shape.block_size))),
      vector_bytes_(call.shape.head_dim * static_cast<int64_t>(DTypeSize(call.shape.dtype))) {
  blocks_ =
      call.pass->BlocksOf(item.sequence, call.layer_index, kv_head_, call.shape.kv_heads).data();
  FindRows(item, range.first_query);
  LoadQueries();
}

void QueryBlock::FindRows(const AttentionItem& item, int first_query) {
  const int group = call_.group();
  for (int query = 0; query < num_queries_;) {
    const int row = (first_query + query) / group;
    const int head = (first_query + query) % group;
    const int end = std::min(num_queries_, query + group - head);
    state_->rows[num_rows_++] = {&call_.plan->rows[item.row_begin + row], query, end,
                                 kv_head_ * group + head};
    query = end;
  }
}

void QueryBlock::LoadQueries() {
  constexpr float kLog2E = 1.44269504f;
  const int head_dim = call_.shape.head_dim;
  for (const RowQueries& queries : Rows()) {
    const float* q = call_.q.data + queries.row->row * call_.q.stride + queries.head * head_dim;
    for (int i = queries.begin; i < queries.end; ++i, q += head_dim) {
      kernels_.pack_query(q, head_dim, call_.scale * kLog2E, Operand(state_->queries, i * dim_));
    }
  }
}

const uint8_t* QueryBlock::SlotData(Side side, int64_t block, int within) const {
  const void* base = side == Side::kKeys ? call_.layer.k_blocks : call_.layer.v_blocks;
  const int64_t vector = ((block * call_.shape.kv_heads + kv_head_) << block_shift_) + within;
  return static_cast<const uint8_t*>(base) + vector * vector_bytes_;
}

const uint8_t* QueryBlock::PrefixData(Side side, int key) const {
  return SlotData(side, blocks_[key >> block_shift_], key & ((1 << block_shift_) - 1));
}

const uint8_t* QueryBlock::KeyData(Side side, const AttentionRow& row, int key) const {
  if (key < row.prefix_len) return PrefixData(side, key);
  const int32_t place = call_.plan->tree_places[row.tree_begin + key - row.prefix_len];
  if (place >= 0) {
    return SlotData(side, place >> block_shift_, place & ((1 << block_shift_) - 1));
  }
  const void* base = side == Side::kKeys ? call_.layer.k_staged : call_.layer.v_staged;
  const int64_t vector = int64_t{~place} * call_.shape.kv_heads + kv_head_;
  return static_cast<const uint8_t*>(base) + vector * vector_bytes_;
}

// Appends the row's keys of `tile` from `first_unit` up to `end_key`, padded with zeros to whole
// units.
void QueryBlock::Gather(Side side, const AttentionRow& row, int tile, int first_unit, int end_key,
                        KvTile* view) const {
  const int first = first_unit * kUnitKeys;
  const int num_units = (end_key - first + kUnitKeys - 1) / kUnitKeys;
  const size_t bytes = vector_bytes_;
  auto* out = reinterpret_cast<uint8_t*>(tiles_->gathered);
  for (int u = 0; u < num_units; ++u) view->units[view->num_units++] = out + u * kUnitKeys * bytes;
  for (int key = first; key < end_key; ++key, out += bytes) {
    std::memcpy(out, KeyData(side, row, tile * kTileKeys + key), bytes);
  }
  std::memset(out, 0, (num_units * kUnitKeys - (end_key - first)) * bytes);
}

// Whole units of prefix and trunk. Those of the next tile will be needed soon.
KvTile QueryBlock::SharedTile(Side side, int tile, int num_units) const {
  const AttentionRow& row = LastRow();
  const int in_place = std::min(num_units, row.PrefixUnits(tile));
  const int ahead = row.PrefixUnits(tile + kTilesAhead);
  KvTile view{.num_units = in_place, .head_dim = call_.shape.head_dim};
  for (int u = 0; u < in_place; ++u) {
    const int key = tile * kTileKeys + u * kUnitKeys;
    view.units[u] = PrefixData(side, key);
    if (u < ahead) view.ahead[u] = PrefixData(side, key + kTilesAhead * kTileKeys);
  }
  if (in_place < num_units) Gather(side, row, tile, in_place, num_units * kUnitKeys, &view);
  return view;
}

// The keys of `tile` that are the row's own.
KvTile QueryBlock::OwnTile(Side side, const AttentionRow& row, int tile) const {
  KvTile view{.head_dim = call_.shape.head_dim};
  Gather(side, row, tile, row.SharedUnits(tile), row.TileKeys(tile), &view);
  return view;
}

void QueryBlock::Pack(Side side, const KvTile& tile, float* packed) const {
  (side == Side::kKeys ? kernels_.pack_keys : kernels_.pack_values)(tile, packed);
}

// Keys: scores of queries [query, end) with `num_units` packed units that start at `unit` of the
// tile. Values: adds those units, weighted; the first call for a query in a tile rescales.
void QueryBlock::Multiply(Side side, int query, int end, int unit, int num_units,
                          const float* packed) {
  TileProduct product{.b = packed, .rows = end - query};
  if (side == Side::kKeys) {
    product.a = Operand(state_->queries, query * dim_);
    product.a_stride = dim_;
    product.b_cols = kTileKeys;
    product.depth = dim_;
    product.cols = num_units * kUnitKeys;
    product.out = tiles_->scores + query * kTileKeys + unit * kUnitKeys;
    product.out_stride = kTileKeys;
  } else {
    product.a = Operand(tiles_->probs, query * kTileKeys + unit * kUnitKeys);
    product.a_stride = kTileKeys;
    product.b_cols = dim_;
    product.depth = num_units * kUnitKeys;
    product.cols = dim_;
    product.out = state_->values + query * dim_;
    product.out_stride = dim_;
    product.rescale = tiles_->rescale + query;
  }
  kernels_.multiply(product);
  if (side == Side::kValues) std::fill(tiles_->rescale + query, tiles_->rescale + end, 1.0f);
}

// Rows are in ascending order of shared_len, so those that share the same units are neighbours and
// the last one sees them all.
void QueryBlock::SharedProducts(Side side, int tile) {
  const int most = LastRow().SharedUnits(tile);
  if (most == 0) return;
  Pack(side, SharedTile(side, tile, most), tiles_->packed);
  const std::span<const RowQueries> rows = Rows();
  for (size_t first = 0, last = 0; first < rows.size(); first = last) {
    const int units = rows[first].row->SharedUnits(tile);
    if (units == most) last = rows.size();
    while (last < rows.size() && rows[last].row->SharedUnits(tile) == units) ++last;
    if (units == 0) continue;
    Multiply(side, rows[first].begin, rows[last - 1].end, 0, units, tiles_->packed);
  }
}

void QueryBlock::OwnProducts(Side side, int tile) {
  for (const RowQueries& queries : Rows()) {
    const int shared = queries.row->SharedUnits(tile);
    if (queries.row->TileKeys(tile) <= shared * kUnitKeys) continue;
    const KvTile own = OwnTile(side, *queries.row, tile);
    Pack(side, own, tiles_->own_packed);
    Multiply(side, queries.begin, queries.end, shared, own.num_units, tiles_->own_packed);
  }
}

void QueryBlock::RunTile(int tile) {
  for (const RowQueries& queries : Rows()) {
    std::fill(tiles_->counts + queries.begin, tiles_->counts + queries.end,
              queries.row->TileKeys(tile));
  }
  SharedProducts(Side::kKeys, tile);
  OwnProducts(Side::kKeys, tile);
  kernels_.softmax({.scores = tiles_->scores,
                    .probs = tiles_->probs,
                    .counts = tiles_->counts,
                    .rows = num_queries_,
                    .max = state_->max,
                    .sum = state_->sum,
                    .rescale = tiles_->rescale});
  SharedProducts(Side::kValues, tile);
  OwnProducts(Side::kValues, tile);
}

void QueryBlock::BeginSplit() {
  std::fill_n(state_->max, num_queries_, -std::numeric_limits<float>::infinity());
  std::fill_n(state_->sum, num_queries_, 0.0f);
  std::fill_n(state_->values, num_queries_ * dim_, 0.0f);
}

void QueryBlock::MergeSplit(int split) {
  for (const RowQueries& queries : Rows()) {
    if (split >= queries.row->NumSplits()) continue;
    for (int i = queries.begin; i < queries.end; ++i) {
      if (split == 0) {
        CopyRunning(RunningOf(i), dim_, TotalOf(i));
      } else {
        MergeRunning(RunningOf(i), dim_, TotalOf(i));
      }
    }
  }
}

void QueryBlock::StoreOutputs() const {
  const int head_dim = call_.shape.head_dim;
  for (const RowQueries& queries : Rows()) {
    float* out = call_.out.data + queries.row->row * call_.out.stride + queries.head * head_dim;
    for (int i = queries.begin; i < queries.end; ++i, out += head_dim) {
      WriteOutput(TotalOf(i), head_dim, out);
    }
  }
}

void QueryBlock::StorePartials(int split, AttentionPartials* partials) const {
  for (const RowQueries& queries : Rows()) {
    if (split >= queries.row->NumSplits()) continue;
    for (int i = queries.begin; i < queries.end; ++i) {
      const int head = queries.head + i - queries.begin;
      CopyRunning(RunningOf(i), dim_, partials->At(call_, *queries.row, split, head));
    }
  }
}

}  // namespace talon

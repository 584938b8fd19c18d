#include "compute/cpu/attention/block.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/contain.h"
#include "base/math.h"
#include "compute/cpu/attention/attention_mass.h"
#include "compute/cpu/attention/kv_kernels.h"

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

void AddSink(const AttentionCall& call, int head, int dim, const Running& total) {
  if (call.sinks == nullptr) return;
  const float sink = call.sinks[head] * kLog2E;
  const float max = std::max(*total.max, sink);
  const float keep = std::exp2(*total.max - max);
  *total.sum = *total.sum * keep + std::exp2(sink - max);
  for (int d = 0; d < dim; ++d) total.values[d] *= keep;
  *total.max = max;
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
  const int64_t index = int64_t{row.partial_begin + split - row.FirstSplit()} * call.heads() + head;
  return {&max[index], &sum[index], values.data() + index * PaddedDim(call.shape.head_dim)};
}

void FloatArena::Reserve(size_t floats) {
  if (memory_.bytes() >= floats * sizeof(float)) return;
  memory_ = MemoryOrThrow(AllocateHostMemory(floats * sizeof(float)));
}

float* FloatArena::Take(size_t floats) {
  float* data = static_cast<float*>(memory_.data()) + used_;
  used_ += Rounded(floats);
  TALON_DCHECK(used_ * sizeof(float) <= memory_.bytes());
  return data;
}

void AttentionTiles::Place(int dim, FloatArena* arena) {
  scores = arena->Take(kChunkQueries * kTileKeys);
  probs = arena->Take(kChunkQueries * kTileKeys);
  for (float** tile : {&packed_keys, &packed_values, &own_packed, &gathered}) {
    *tile = arena->Take(static_cast<size_t>(kTileKeys) * dim);
  }
  row_values = arena->Take(dim);
}

size_t AttentionTiles::Floats(int dim) {
  return 2 * FloatArena::Rounded(kChunkQueries * kTileKeys) +
         4 * FloatArena::Rounded(static_cast<size_t>(kTileKeys) * dim) + FloatArena::Rounded(dim);
}

void AttentionState::Place(int num_queries, int dim, FloatArena* arena) {
  const size_t padded = RoundUp(num_queries, 2);  // whole pairs
  queries = arena->Take(padded * dim);
  values = arena->Take(padded * dim);
  total_values = arena->Take(padded * dim);
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
      first_head_(range.first_query % call.group()),
      num_queries_(range.num_queries),
      dim_(PaddedDim(call.shape.head_dim)),
      direct_(num_queries_ <= kernels_.direct_rows),
      block_shift_(std::countr_zero(static_cast<unsigned>(call.shape.block_size))),
      keys_(BlockVectorsOf(call.shape, call.layer.k_blocks)),
      values_(BlockVectorsOf(call.shape, call.layer.v_blocks)),
      vector_bytes_(call.shape.VectorBytes()),
      value_bytes_(call.shape.head_dim * DTypeSize(call.shape.value_type())) {
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
    const AttentionRow& found = call_.plan->rows[item.row_begin + row];
    state_->rows[num_rows_++] = {&found, query, end, kv_head_ * group + head};
    last_first_key_ = std::max(last_first_key_, found.first_key);
    query = end;
  }
}

void QueryBlock::LoadQueries() {
  const int head_dim = call_.shape.head_dim;
  for (const RowQueries& queries : Rows()) {
    const float* q = call_.q.data + queries.row->row * call_.q.stride + queries.head * head_dim;
    for (int i = queries.begin; i < queries.end; ++i, q += head_dim) {
      kernels_.pack_query(q, head_dim, call_.scale * kLog2E,
                          kernels_.OperandRow(state_->queries, i, dim_));
    }
  }
}

// Copies K or V of one key, as a vector of value_type().
void QueryBlock::ReadKey(Side side, const AttentionRow& row, int key, uint8_t* out) const {
  const KvShape& shape = call_.shape;
  const bool keys = side == Side::kKeys;
  const bool in_prefix = key < row.prefix_len;
  const int64_t place =
      in_prefix ? (int64_t{blocks_[key >> block_shift_]} << block_shift_) + key % shape.block_size
                : call_.plan->tree_places[row.tree_begin + key - row.prefix_len];
  const bool in_unit = shape.in_units() && place >= 0;
  const int token = in_unit ? static_cast<int>(place % kUnitTokens) : 0;
  const HostVector from =
      VectorAt(shape, keys ? call_.layer.k_blocks : call_.layer.v_blocks,
               keys ? call_.layer.k_staged : call_.layer.v_staged, place - token, kv_head_);
  KvElements gathered;
  const uint8_t* elements = from.elements;
  if (in_unit) {
    ReadFromUnit(shape, side, from.elements, token, gathered.bytes);
    elements = gathered.bytes;
  }
  if (shape.quantised()) {
    ExpandVectors(shape.dtype, elements, from.scale + token, 1, shape.head_dim,
                  reinterpret_cast<uint16_t*>(out));
  } else {
    std::memcpy(out, elements, value_bytes_);
  }
}

// Appends the row's keys of `tile` from `first_unit` up to `end_key`, padded with zeros to whole
// units.
void QueryBlock::Gather(Side side, const AttentionRow& row, int tile, int first_unit, int end_key,
                        KvTile* view) const {
  const int first = first_unit * kUnitKeys;
  const int num_units = CeilDiv(end_key - first, kUnitKeys);
  uint8_t* out = GatheredUnit(view->num_units);
  for (int u = 0; u < num_units; ++u) {
    view->units[view->num_units] = GatheredUnit(view->num_units);
    ++view->num_units;
  }
  for (int key = first; key < end_key; ++key, out += value_bytes_) {
    ReadKey(side, row, tile * kTileKeys + key, out);
  }
  std::memset(out, 0, (num_units * kUnitKeys - (end_key - first)) * value_bytes_);
}

// Expands the unit of the prefix that starts at `key`, and fetches the one at `ahead` if it is not
// negative. In units it keeps its order.
const void* QueryBlock::ExpandPrefix(Side side, int key, int ahead) const {
  const KvShape& shape = call_.shape;
  if (ahead >= 0) {
    const HostVector later = PrefixVector(side, ahead);
    FetchAhead(later.elements, kUnitKeys * shape.head_dim);
    FetchAhead(later.scale, kUnitKeys);
  }
  const HostVector from = PrefixVector(side, key);
  const int unit = key % kTileKeys / kUnitKeys;
  if (shape.in_units()) {
    kernels_.expand(shape.dtype, side, from.elements, from.scale, shape.head_dim,
                    OrderedUnit(unit));
    return OrderedUnit(unit);
  }
  ExpandVectors(shape.dtype, from.elements, from.scale, kUnitKeys, shape.head_dim,
                reinterpret_cast<uint16_t*>(GatheredUnit(unit)));
  return GatheredUnit(unit);
}

// Whole units of prefix and trunk. Those of the next tile will be needed soon.
KvTile QueryBlock::SharedTile(Side side, int tile, int num_units) const {
  const AttentionRow& row = LastRow();
  const int in_place = std::min(num_units, row.PrefixUnits(tile));  // or expanded
  const int ahead = row.PrefixUnits(tile + kTilesAhead);
  KvTile view{.num_units = in_place, .head_dim = call_.shape.head_dim};
  for (int u = 0; u < in_place; ++u) {
    const int key = tile * kTileKeys + u * kUnitKeys;
    const int later = u < ahead ? key + kTilesAhead * kTileKeys : -1;
    if (call_.shape.quantised()) {
      view.units[u] = ExpandPrefix(side, key, later);
    } else {
      view.units[u] = PrefixVector(side, key).elements;
      if (later >= 0) view.ahead[u] = PrefixVector(side, later).elements;
    }
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

// As the products want it. `ordered`: so many units lie in the order of the kernels already.
void QueryBlock::Prepare(Side side, int ordered, float* packed, KvTile* tile) const {
  const bool keys = side == Side::kKeys;
  if (kernels_.reads_units()) {
    for (int u = ordered; u < tile->num_units; ++u) {
      uint16_t* unit = OrderedUnit(u);
      (keys ? kernels_.order_keys : kernels_.order_values)(tile->units[u], tile->head_dim, unit);
      tile->units[u] = unit;
    }
  }
  if (!direct_) (keys ? kernels_.pack_keys : kernels_.pack_values)(*tile, packed);
}

// Keys: scores of a chunk's `queries` with the units. Values: adds the units, weighted; the first
// call for a query in a tile rescales.
void QueryBlock::Products(Side side, const Chunk& chunk, const Chunk& queries,
                          const UnitRun& units) {
  const int first_row = queries.begin - chunk.begin;
  const int end_row = PaddedEnd(queries.end) - chunk.begin;
  TileProduct product{.b = units.packed, .first_row = first_row, .rows = end_row - first_row};
  if (side == Side::kKeys) {
    product.a = kernels_.OperandRow(state_->queries, chunk.begin, dim_);
    product.a_stride = dim_;
    product.b_depth = dim_;
    product.b_cols = kTileKeys;
    product.depth = dim_;
    product.cols = units.count * kUnitKeys;
    product.out = tiles_->scores;
    product.out_stride = kTileKeys;
    product.first_col = units.first * kUnitKeys;
  } else {
    product.a = tiles_->probs;
    product.a_stride = kTileKeys;
    product.first_depth = units.first * kUnitKeys;
    product.b_depth = kTileKeys;
    product.b_cols = dim_;
    product.depth = units.count * kUnitKeys;
    product.cols = dim_;
    product.out = state_->values + chunk.begin * dim_;
    product.out_stride = dim_;
    product.rescale = tiles_->rescale;
  }
  Multiply(side, units, product);
  if (side == Side::kKeys) return;
  std::fill(tiles_->rescale + first_row, tiles_->rescale + end_row, 1.0f);
}

void QueryBlock::Multiply(Side side, const UnitRun& units, const TileProduct& product) const {
  if (!direct_) {
    kernels_.multiply(product);
  } else if (side == Side::kKeys) {
    kernels_.multiply_keys(*units.in_place, product);
  } else {
    kernels_.multiply_values(*units.in_place, product);
  }
}

// What is packed is packed once, for the first chunk and just before its product, so that it is
// still in the first-level cache. Rows are in ascending order of shared_len, so those that share
// the same units are neighbours.
void QueryBlock::SharedProducts(Side side, int tile, const Chunk& chunk) {
  float* packed = side == Side::kKeys ? tiles_->packed_keys : tiles_->packed_values;
  const int shared = LastRow().SharedUnits(tile);  // the last row sees all that is shared
  const bool first = chunk.begin == 0;
  KvTile in_place = direct_ || first ? SharedTile(side, tile, shared) : KvTile{};
  if (in_place.num_units > 0) Prepare(side, OrderedUnits(tile, shared), packed, &in_place);
  if (AllShareTile(tile)) {
    Products(side, chunk, chunk, {0, kTileUnits, &in_place, packed});
    return;
  }
  const auto units_of = [&](int query) {
    const AttentionRow& row = *RowOf(query).row;
    return row.TileKeys(tile) == 0 ? 0 : row.SharedUnits(tile);
  };
  for (int first = chunk.begin, last = first; first < chunk.end; first = last) {
    const int units = units_of(first);
    while (last < chunk.end && units_of(last) == units) ++last;
    if (units > 0) Products(side, chunk, {first, last}, {0, units, &in_place, packed});
  }
}

void QueryBlock::OwnProducts(Side side, int tile, const Chunk& chunk) {
  for (int first = chunk.begin, last = first; first < chunk.end; first = last) {
    const RowQueries& queries = RowOf(first);
    last = std::min(queries.end, chunk.end);
    const int shared = queries.row->SharedUnits(tile);
    if (queries.row->TileKeys(tile) <= shared * kUnitKeys) continue;
    KvTile own = OwnTile(side, *queries.row, tile);
    Prepare(side, 0, tiles_->own_packed, &own);
    Products(side, chunk, {first, last}, {shared, own.num_units, &own, tiles_->own_packed});
  }
}

void QueryBlock::RunChunk(int tile, const Chunk& chunk) {
  const int rows = PaddedEnd(chunk.end) - chunk.begin;
  const bool whole = AllShareTile(tile);
  std::fill_n(tiles_->firsts, rows, 0);
  std::fill_n(tiles_->counts, rows, 0);
  if (whole) std::fill_n(tiles_->counts, chunk.end - chunk.begin, kTileKeys);
  for (int i = chunk.begin; !whole && i < chunk.end; ++i) {
    tiles_->firsts[i - chunk.begin] = RowOf(i).row->TileFirst(tile);
    tiles_->counts[i - chunk.begin] = RowOf(i).row->TileKeys(tile);
  }
  SharedProducts(Side::kKeys, tile, chunk);
  if (!whole) OwnProducts(Side::kKeys, tile, chunk);
  if (call_.masses != nullptr) CollectMasses(tile, chunk);
  kernels_.softmax({.scores = tiles_->scores,
                    .probs = tiles_->probs,
                    .firsts = tiles_->firsts,
                    .counts = tiles_->counts,
                    .rows = rows,
                    .max = state_->max + chunk.begin,
                    .sum = state_->sum + chunk.begin,
                    .rescale = tiles_->rescale});
  SharedProducts(Side::kValues, tile, chunk);
  if (!whole) OwnProducts(Side::kValues, tile, chunk);
}

void QueryBlock::CollectMasses(int tile, const Chunk& chunk) {
  alignas(64) float scores[kTileKeys];
  for (const RowQueries& queries : Rows()) {
    if (!call_.masses->Wants(queries.row->row)) continue;
    const int end = std::min(queries.end, chunk.end);
    for (int i = std::max(queries.begin, chunk.begin); i < end; ++i) {
      kernels_.ReadSums(tiles_->scores, i - chunk.begin, kTileKeys, scores);
      call_.masses->AddTile(*queries.row, queries.head + i - queries.begin, tile, scores);
    }
  }
}

void QueryBlock::RunTile(int tile) {
  for (int begin = 0; begin < num_queries_; begin += kChunkQueries) {
    RunChunk(tile, {begin, std::min(begin + kChunkQueries, num_queries_)});
  }
}

void QueryBlock::BeginSplit() {
  std::fill_n(state_->max, num_queries_, -std::numeric_limits<float>::infinity());
  std::fill_n(state_->sum, num_queries_, 0.0f);
  std::fill_n(state_->values, num_queries_ * dim_, 0.0f);
}

void QueryBlock::MergeSplit(int split) {
  for (const RowQueries& queries : Rows()) {
    if (!queries.row->SeesSplit(split)) continue;
    for (int i = queries.begin; i < queries.end; ++i) {
      if (split == queries.row->FirstSplit()) {
        CopyRunning(RunningOf(i), dim_, TotalOf(i));
      } else {
        MergeRunning(RunningOf(i), dim_, TotalOf(i));
      }
    }
  }
}

void QueryBlock::StoreOutputs() {
  const int head_dim = call_.shape.head_dim;
  for (const RowQueries& queries : Rows()) {
    float* out = call_.out.data + queries.row->row * call_.out.stride + queries.head * head_dim;
    for (int i = queries.begin; i < queries.end; ++i, out += head_dim) {
      AddSink(call_, queries.head + i - queries.begin, dim_, TotalOf(i));
      WriteOutput(TotalOf(i), head_dim, out);
    }
  }
}

void QueryBlock::StorePartials(int split, AttentionPartials* partials) const {
  for (const RowQueries& queries : Rows()) {
    if (!queries.row->SeesSplit(split)) continue;
    for (int i = queries.begin; i < queries.end; ++i) {
      const int head = queries.head + i - queries.begin;
      CopyRunning(RunningOf(i), dim_, partials->At(call_, *queries.row, split, head));
    }
  }
}

}  // namespace talon

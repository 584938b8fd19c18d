#include "spec/policy/verify_curve.h"

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "spec/plan.h"

namespace talon {
namespace {

constexpr int kMostChainRows = 128;
// Twice the rows of a pass that cost this much more are nearly in proportion.
constexpr double kProportional = 1.8;

// Tokens that differ from row to row: equal ones would all choose the same experts.
int32_t TokenOfRow(int row, int vocab_size) {
  constexpr uint32_t kSpread = 2654435761;  // 2^32 divided by the golden ratio
  return static_cast<int32_t>(static_cast<uint32_t>(row) * kSpread %
                              static_cast<uint32_t>(vocab_size));
}

}  // namespace

VerifyCurve::Point VerifyCurve::At(double rows) const {
  const auto above = std::find_if(points_.begin(), points_.end(),
                                  [rows](const Point& point) { return point.rows >= rows; });
  if (above == points_.begin()) return points_.front();
  if (above == points_.end()) {
    const double factor = rows / points_.back().rows;
    return {0, points_.back().base * factor, points_.back().per_token * factor};
  }
  const Point& low = *(above - 1);
  const double share = (rows - low.rows) / (above->rows - low.rows);
  return {0, low.base + share * (above->base - low.base),
          low.per_token + share * (above->per_token - low.per_token)};
}

double VerifyCurve::Seconds(const StepShape& shape, double nodes) const {
  return At(nodes * shape.sequences).base + shape.sequences * At(nodes).per_token * shape.context;
}

Result<VerifyCurve> VerifyCurve::Load(const std::string& path) {
  TALON_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  return Parse(json, path);
}

Result<VerifyCurve> VerifyCurve::Parse(const Json& json, const std::string& what) {
  std::vector<Point> points;
  try {
    for (const Json& entry : json.at("points")) {
      points.push_back({entry.at("rows").get<int>(), entry.at("base").get<double>(),
                        entry.at("per_token").get<double>(), entry.value("experts", 0.0)});
    }
  } catch (const Json::exception& error) {
    return InvalidArgument("{}: not a verify curve: {}", what, error.what());
  }
  const bool ascending = std::is_sorted(
      points.begin(), points.end(), [](const Point& a, const Point& b) { return a.rows < b.rows; });
  if (points.empty() || points[0].rows != 1 || !ascending || !(points[0].base > 0)) {
    return InvalidArgument("{}: a verify curve needs ascending rows from 1 and positive times",
                           what);
  }
  return VerifyCurve(std::move(points));
}

Status VerifyCurve::Save(const std::string& path) const {
  Json json = {{"points", Json::array()}};
  for (const Point& point : points_) {
    json["points"].push_back({{"rows", point.rows},
                              {"base", point.base},
                              {"per_token", point.per_token},
                              {"experts", point.experts}});
  }
  return WriteFile(path, json.dump(2) + "\n");
}

Result<double> TimeVerifyPass(Backend* backend, Decoder* target, KvCache* kv, int rows, int context,
                              int repeats) {
  // Reserved and advanced without being computed: what the prefix holds costs the same to read. But
  // it is written once, because memory that was never written may be one page of zeros, which is
  // fast.
  Sequence sequence{.id = -1, .tokens = std::vector<int32_t>(context + 1, 0)};
  TALON_ASSIGN_OR_RETURN(Reservation reservation, kv->Reserve(sequence, context));
  sequence.blocks = reservation.new_blocks;
  sequence.committed_len = context;
  for (size_t i = 1; i < sequence.blocks.size(); ++i) {
    kv->ops()->CopyBlock(kv->view(), sequence.blocks[0], sequence.blocks[i],
                         kv->shape().block_size);
  }
  PassBuilder builder;
  const int vocab = target->config().vocab_size;
  for (int first = 0; first < rows; first += kMostChainRows) {
    TokenTree chain(TokenOfRow(first, vocab));
    for (int i = 1; i < std::min(rows - first, kMostChainRows); ++i) {
      chain.Add(i - 1, TokenOfRow(first + i, vocab), 1);
    }
    builder.AddTree(sequence, chain);
  }
  ForwardOutput output;
  std::vector<int32_t> argmax(rows);
  double best = 1e9;
  Status status;
  for (int i = 0; i <= repeats && status.ok(); ++i) {
    const Stopwatch watch(backend->time());
    status = target->Forward(builder.plan(), kv->view(), &output);
    if (status.ok()) backend->token_ops()->Argmax(output.logits, argmax);
    if (i > 0 || repeats == 0) best = std::min(best, watch.Seconds());  // else a warm-up
  }
  kv->Cancel(std::move(reservation));
  if (!status.ok()) return status;
  return best;
}

int NextCurveRows(std::span<const PassTimes> times, int most) {
  if (times.size() < 2 || times.back().rows >= most) return 0;
  const PassTimes& last = times.back();
  const PassTimes& before = times[times.size() - 2];
  const double doublings = static_cast<double>(last.rows) / before.rows / 2;
  if (last.shorter >= kProportional * doublings * before.shorter) return 0;
  return std::min(2 * last.rows, most);
}

VerifyCurve FitVerifyCurve(std::vector<PassTimes> times, int shorter, int longer) {
  for (size_t i = times.size() - 1; i-- > 0;) {
    times[i].shorter = std::min(times[i].shorter, times[i + 1].shorter);
    times[i].longer = std::min(times[i].longer, times[i + 1].longer);
  }
  for (size_t i = 1; i < times.size(); ++i) {
    const double rows = static_cast<double>(times[i].rows) / times[i - 1].rows;
    times[i].shorter = std::min(times[i].shorter, rows * times[i - 1].shorter);
    times[i].longer = std::min(times[i].longer, rows * times[i - 1].longer);
  }
  std::vector<VerifyCurve::Point> points;
  for (const PassTimes& pass : times) {
    const double grown = std::max(0.0, pass.longer - pass.shorter);
    const double slope = longer > shorter ? grown / (longer - shorter) : 0.0;
    double base = std::max(pass.shorter - slope * shorter, 1e-9);
    if (!points.empty()) base = std::max(base, points.back().base);
    points.push_back({pass.rows, base, slope, pass.experts});
  }
  return VerifyCurve(std::move(points));
}

Result<VerifyCurve> MeasureVerifyCurve(Backend* backend, Decoder* target, KvCache* kv, int max_rows,
                                       int batch_rows) {
  constexpr int kRounds = 12;
  constexpr int kRepeats = 3;
  constexpr double kEnough = 0.6;    // seconds; long passes are measured well by few,
  constexpr double kLongPass = 0.1;  // and without a warm-up each
  // A round that found no pass faster than this share of its time before is the last.
  constexpr double kSettled = 0.95;
  const int room = std::min(target->config().max_context - max_rows,
                            kv->pool().free_blocks() * kv->shape().block_size) -
                   1;
  const int longer = std::min(2048, room);
  const int shorter = std::min(64, longer / 2);
  // Seconds of a pass, and the experts that it reads in a sparse layer.
  const auto time = [&](int rows, int context, int repeats, double* experts) -> Result<double> {
    const int64_t before = backend->expert_ops()->experts_read();
    auto seconds = TimeVerifyPass(backend, target, kv, rows, context, repeats);
    const auto read = static_cast<double>(backend->expert_ops()->experts_read() - before);
    *experts = target->config().PerSparseLayer(read / (1 + repeats));
    return seconds;
  };
  std::vector<PassTimes> times;
  for (int rows = 1; rows < max_rows; rows *= 2) times.push_back({.rows = rows});
  times.push_back({.rows = max_rows});
  TALON_ASSIGN_OR_RETURN(const double first, TimeVerifyPass(backend, target, kv, 1, shorter, 1));
  const int least = first < kLongPass ? 1 : 0;
  const Stopwatch watch(backend->time());
  const int rounds_at_least = first < kLongPass ? 2 : 1;  // one may be disturbed
  bool settled = false;
  for (int round = 0;
       round < rounds_at_least || (!settled && round < kRounds && watch.Seconds() < kEnough);
       ++round) {
    settled = true;
    for (PassTimes& pass : times) {
      const int repeats = round > 0 && pass.rows <= 8 ? 4 : least;
      TALON_ASSIGN_OR_RETURN(const double low, time(pass.rows, shorter, repeats, &pass.experts));
      TALON_ASSIGN_OR_RETURN(const double high, time(pass.rows, longer, repeats, &pass.experts));
      settled &= low > kSettled * pass.shorter && high > kSettled * pass.longer;
      pass.shorter = std::min(pass.shorter, low);
      pass.longer = std::min(pass.longer, high);
    }
  }
  while (const int rows = NextCurveRows(times, batch_rows)) {
    double experts = 0;
    TALON_ASSIGN_OR_RETURN(const double seconds, time(rows, shorter, kRepeats, &experts));
    // Prefixes are read by one sequence of these; what a longer one adds is known from the last.
    const double added = times.back().longer - times.back().shorter;
    times.push_back(
        {.rows = rows, .shorter = seconds, .longer = seconds + added, .experts = experts});
  }
  return FitVerifyCurve(std::move(times), shorter, longer);
}

}  // namespace talon

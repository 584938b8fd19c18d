// Candidates of a draft tree by number: level 1 has 0 .. width - 1,
// level j >= 2 has width + (j - 2) * width^2 + the parent's place in its beam * width + rank.
#ifndef TALON_COMPUTE_CUDA_TOKENS_BEAM_LAYOUT_H_
#define TALON_COMPUTE_CUDA_TOKENS_BEAM_LAYOUT_H_

#include <cstddef>
#include <cstdint>

namespace talon::cuda {

inline constexpr int kMostCandidates = 1 << 14;  // per tree

// The rankings of `trees` trees: [trees][width] of the roots, then [levels][trees][width][width].
struct BeamLayout {
  int width = 0;
  int trees = 0;

  constexpr int NumCandidates(int levels) const { return width + (levels - 1) * width * width; }
  // Number of rankings after `levels` levels.
  constexpr size_t NumEntries(int levels) const {
    return static_cast<size_t>(trees) * NumCandidates(levels);
  }
  constexpr size_t EntryOf(int tree, int candidate) const {
    if (candidate < width) return static_cast<size_t>(tree) * width + candidate;
    const int level = (candidate - width) / (width * width);
    const int within = (candidate - width) % (width * width);
    return static_cast<size_t>(trees) * width +
           (static_cast<size_t>(level) * trees + tree) * width * width + within;
  }
  constexpr int DepthOf(int candidate) const {
    return candidate < width ? 1 : 2 + (candidate - width) / (width * width);
  }
  // Index of the parent of a candidate of level 2 or more among the beams of all levels:
  // [levels][trees][width].
  constexpr size_t ParentBeam(int tree, int candidate) const {
    const int slot = (candidate - width) / width;
    return BeamOf(1 + slot / width, tree, slot % width);
  }
  // Index of a slot of the level's beam, levels counted from 1.
  constexpr size_t BeamOf(int level, int tree, int slot) const {
    return (static_cast<size_t>(level - 1) * trees + tree) * width + slot;
  }
  constexpr int FirstOfLevel(int level) const {
    return level == 1 ? 0 : width + (level - 2) * width * width;
  }
};

// Orders candidates: the higher score first, then the lower number. Not 0.
constexpr int kCandidateBits = 48;
constexpr uint64_t CandidateKey(uint32_t ordered_score, int candidate) {
  return static_cast<uint64_t>(ordered_score) << 16 | static_cast<uint64_t>(0xffff - candidate);
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_BEAM_LAYOUT_H_

// Records passed as a kernel parameter, which saves their upload; more take several launches.
#ifndef TALON_COMPUTE_CUDA_TOKENS_FEW_CUH_
#define TALON_COMPUTE_CUDA_TOKENS_FEW_CUH_

#include <algorithm>
#include <span>

namespace talon::cuda {

inline constexpr int kFew = 64;
template <typename T>
struct Few {
  T at[kFew];
};

// Calls launch(the next few, how many before them, how many they are).
template <typename T, typename F>
void ForFew(std::span<const T> values, const F& launch) {
  for (size_t first = 0; first < values.size(); first += kFew) {
    const auto some = values.subspan(first, std::min<size_t>(kFew, values.size() - first));
    Few<T> few;
    std::ranges::copy(some, few.at);
    launch(few, static_cast<int>(first), static_cast<int>(some.size()));
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_FEW_CUH_

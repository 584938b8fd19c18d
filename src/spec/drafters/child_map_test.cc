#include "spec/drafters/child_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace talon {
namespace {

TEST(ChildMap, RandomOperationsMatchStdMap) {
  ChildMap map;
  std::map<std::pair<uint32_t, int32_t>, uint32_t> expected;
  std::mt19937 generator(1);
  for (uint32_t i = 0; i < 200000; ++i) {
    const std::pair<uint32_t, int32_t> key(generator() % 300,
                                           static_cast<int32_t>(generator() % 20) - 1);
    const auto at = expected.find(key);
    ASSERT_EQ(map.Find(key.first, key.second), at == expected.end() ? ChildMap::kNone : at->second);
    if (at == expected.end()) {
      map.Insert(key.first, key.second, i);
      expected[key] = i;
    } else if (generator() % 3 != 0) {
      map.Erase(key.first, key.second);
      expected.erase(at);
    }
    ASSERT_EQ(map.size(), expected.size());
  }
}

}  // namespace
}  // namespace talon

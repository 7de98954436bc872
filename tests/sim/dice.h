// Draws of a workload, the same for the same seed on every machine.
#pragma once

#include <cstdint>
#include <random>

namespace minisgl::sim {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
  }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  template <typename... Values>
  int64_t Pick(Values... values) {
    const int64_t list[] = {static_cast<int64_t>(values)...};
    return list[Below(static_cast<int64_t>(sizeof...(values)))];
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace minisgl::sim

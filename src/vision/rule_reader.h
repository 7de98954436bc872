// Reads keys of a processor's JSON with checks; keeps the first error. Used by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/vision/picture.h"

namespace minisgl::vision {

// The longest side that a rule may name, in pixels.
inline constexpr int32_t kSideMax = 1 << 16;

class RuleReader {
 public:
  // `file`: the file's name in errors. `json` outlives the reader; null: every key is missing.
  RuleReader(const Json& json, std::string file) : json_(json), file_(std::move(file)) {}

  // The first error of any call; OK if there is none.
  const Status& status() const { return status_; }
  // The value of `key`; null if it is missing or null.
  const Json* Find(const std::string& key) const;

  // The value of `key`, or `absent` if it is missing or null. An error sets status() and returns
  // `absent`. Dots in keys separate nested objects.
  int64_t Int(const std::string& key, int64_t absent, int64_t min, int64_t max);
  int32_t Side(const std::string& key, int32_t absent) {
    return static_cast<int32_t>(Int(key, absent, 1, kSideMax));
  }
  double Positive(const std::string& key, double absent);
  bool Bool(const std::string& key, bool absent);
  std::string Text(const std::string& key, const std::string& absent);
  // Three numbers, or one for all.
  std::array<double, 3> Channels(const std::string& key, const std::array<double, 3>& absent);
  // {"height", "width"}, [height, width], an integer for both, or {"shortest_edge"} for both.
  PictureSize Size(const std::string& key, PictureSize absent);
  // The error that `key` has a value other than `expected`.
  void Fail(const std::string& key, const std::string& expected);

 private:
  const Json& json_;
  const std::string file_;
  Status status_;
};

}  // namespace minisgl::vision

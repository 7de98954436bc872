// See rule_reader.h.
#include "vision/rule_reader.h"

#include <cmath>

#include "minisgl/base/utf8.h"

namespace minisgl::vision {

const Json* RuleReader::Find(const std::string& key) const {
  const Json* value = &json_;
  for (size_t at = 0; value != nullptr && at <= key.size();) {
    const size_t dot = std::min(key.find('.', at), key.size());
    value = value->Find(key.substr(at, dot - at));
    at = dot + 1;
  }
  return value == nullptr || value->is_null() ? nullptr : value;
}

void RuleReader::Fail(const std::string& key, const std::string& expected) {
  if (!status_.ok()) return;
  const Json* const found = Find(key);
  status_ = BadInput("{}: \"{}\" must be {} (found {})", file_, key, expected,
                     found == nullptr ? "nothing" : Visible(found->Dump(), 60));
}

int64_t RuleReader::Int(const std::string& key, int64_t absent, int64_t min, int64_t max) {
  const Json* const value = Find(key);
  if (value == nullptr) return absent;
  if (value->is_int() && value->as_int() >= min && value->as_int() <= max) return value->as_int();
  Fail(key, fmt::format("an integer from {} to {}", min, max));
  return absent;
}

double RuleReader::Positive(const std::string& key, double absent) {
  const Json* const value = Find(key);
  if (value == nullptr) return absent;
  if (value->is_number() && value->as_double() > 0 && value->as_double() < 1e30) {
    return value->as_double();
  }
  Fail(key, "a number above 0");
  return absent;
}

bool RuleReader::Bool(const std::string& key, bool absent) {
  const Json* const value = Find(key);
  if (value == nullptr) return absent;
  if (value->is_bool()) return value->as_bool();
  Fail(key, "true or false");
  return absent;
}

std::string RuleReader::Text(const std::string& key, const std::string& absent) {
  const Json* const value = Find(key);
  if (value == nullptr) return absent;
  if (value->is_string()) return value->as_string();
  Fail(key, "a string");
  return absent;
}

std::array<double, 3> RuleReader::Channels(const std::string& key,
                                           const std::array<double, 3>& absent) {
  const Json* const value = Find(key);
  if (value == nullptr) return absent;
  const auto is_good = [](const Json& number) {
    return number.is_number() && std::abs(number.as_double()) < 1e30;
  };
  if (is_good(*value)) return {value->as_double(), value->as_double(), value->as_double()};
  std::array<double, 3> channels = absent;
  bool good = value->is_array() && value->as_array().size() == channels.size();
  for (size_t i = 0; good && i < channels.size(); ++i) {
    good = is_good(value->as_array()[i]);
    if (good) channels[i] = value->as_array()[i].as_double();
  }
  if (!good) Fail(key, "three numbers");
  return channels;
}

PictureSize RuleReader::Size(const std::string& key, PictureSize absent) {
  const Json* const value = Find(key);
  if (value == nullptr) return absent;
  if (value->is_array() && value->as_array().size() == 2) {
    const Json::Array& sides = value->as_array();
    const auto is_side = [](const Json& side) {
      return side.is_int() && side.as_int() >= 1 && side.as_int() <= kSideMax;
    };
    if (is_side(sides[0]) && is_side(sides[1])) {
      return {static_cast<int32_t>(sides[1].as_int()), static_cast<int32_t>(sides[0].as_int())};
    }
    Fail(key, fmt::format("integers from 1 to {}", kSideMax));
    return absent;
  }
  if (!value->is_object()) {
    const int32_t side = Side(key, 1);
    return {side, side};
  }
  if (Find(key + ".shortest_edge") != nullptr) {
    const int32_t side = Side(key + ".shortest_edge", 1);
    return {side, side};
  }
  if (Find(key + ".height") == nullptr || Find(key + ".width") == nullptr) {
    Fail(key, "an object with height and width");
    return absent;
  }
  return {Side(key + ".width", 1), Side(key + ".height", 1)};
}

}  // namespace minisgl::vision

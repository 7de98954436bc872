// The arguments of a call, as they are read one by one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/json.h"

namespace minisgl::text {

class ArgumentList {
 public:
  // `value` is JSON text. Of two arguments with one name the last counts, in the place of the
  // first, as in Python.
  void Add(std::string_view name, std::string value) {
    const auto [place, is_new] = places_.emplace(name, values_.size());
    if (is_new) {
      values_.emplace_back(name, std::move(value));
    } else {
      values_[place->second].second = std::move(value);
    }
  }

  std::string ToJson() const {
    std::string json = "{";
    for (const auto& [name, value] : values_) {
      if (json.size() > 1) json += ", ";
      AppendJsonString(name, &json);
      json += ": ";
      json += value;
    }
    return json + "}";
  }

 private:
  std::map<std::string, size_t, std::less<>> places_;
  std::vector<std::pair<std::string, std::string>> values_;
};

}  // namespace minisgl::text

// A value in a JSON file together with the path to it, so that every error can say where it stands:
// `pre_tokenizer.pretokenizers[1].pattern is an integer; it must be an object`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"

namespace minisgl::text {

// Far above any real file, and small enough that recursion and a chain of steps stay harmless.
inline constexpr int kSequenceDepthMax = 8;
inline constexpr size_t kStepsMax = 256;

class JsonPlace {
 public:
  // `value` outlives this.
  explicit JsonPlace(const Json* value, std::string path = "")
      : value_(value), path_(std::move(path)) {}

  const Json& json() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }

  // The member `key`; a null where there is none.
  JsonPlace operator[](std::string_view key) const;
  // The elements of an array; an error where this is none.
  Result<std::vector<JsonPlace>> Elements() const;
  // The steps of a Sequence, its member `key`, which stands within `depth` others; an error past
  // kStepsMax of them, or kSequenceDepthMax Sequences.
  Result<std::vector<JsonPlace>> Steps(std::string_view key, int depth) const;

  // Reads the same steps, each with `read`(place of the step, depth + 1), in order.
  template <typename Step, typename Read>
  Result<std::vector<Step>> ReadSteps(std::string_view key, int depth, Read read) const {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<JsonPlace> places, Steps(key, depth));
    std::vector<Step> steps;
    for (const JsonPlace& place : places) {
      MINISGL_ASSIGN_OR_RETURN(Step step, read(place, depth + 1));
      steps.push_back(std::move(step));
    }
    return steps;
  }

  // The value, or an error where it has another type. With a default: that where it is null.
  Result<std::string> String() const;
  Result<std::string> String(std::string_view otherwise) const;
  Result<bool> Bool(bool otherwise) const;
  Result<int64_t> Int(int64_t least, int64_t most) const;
  Result<int64_t> Int(int64_t least, int64_t most, int64_t otherwise) const;
  Status MustBe(const char* wanted) const;  // "... is an integer; it must be WANTED"

  // An error that begins with this place.
  template <typename... Args>
  Status Error(fmt::format_string<Args...> format, Args&&... args) const {
    return BadInput("{} {}", shown_path(), fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string shown_path() const;
  const Json* value_;
  std::string path_;
};

}  // namespace minisgl::text

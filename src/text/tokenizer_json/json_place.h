// A value in a JSON file with its path, so that error messages can name it:
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

// Limits on nested Sequences and their steps: far above real files, and small enough to bound the
// recursion and the length of a chain.
inline constexpr int kSequenceDepthMax = 8;
inline constexpr size_t kStepsMax = 256;

class JsonPlace {
 public:
  // `value` must outlive this object.
  explicit JsonPlace(const Json* value, std::string path = "")
      : value_(value), path_(std::move(path)) {}

  const Json& json() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }

  // Returns the member `key`, or null if it is absent.
  JsonPlace operator[](std::string_view key) const;
  // Returns the elements of an array; an error if this is not an array.
  Result<std::vector<JsonPlace>> Elements() const;
  // Returns the steps of a Sequence, its member `key`. `depth` is the number of enclosing
  // Sequences. An error if there are more than kStepsMax steps or kSequenceDepthMax Sequences.
  Result<std::vector<JsonPlace>> Steps(std::string_view key, int depth) const;

  // Reads these steps in order, each with `read`(place of the step, depth + 1).
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

  // Return the value, or an error if it has another type or is out of range. With `otherwise`, null
  // gives that default.
  Result<std::string> String() const;
  Result<std::string> String(std::string_view otherwise) const;
  Result<bool> Bool(bool otherwise) const;
  Result<int64_t> Int(int64_t least, int64_t most) const;
  Result<int64_t> Int(int64_t least, int64_t most, int64_t otherwise) const;
  Status MustBe(const char* wanted) const;  // "... is an integer; it must be WANTED"

  // Returns an error that begins with the path of this place.
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

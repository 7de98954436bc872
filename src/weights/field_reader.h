// Reads members of a JSON object by key, with checks of type and range. Errors have the form
//   FILE: key "KEY": found WHAT; WHAT IS SUPPORTED
//
// The first error is kept and later reads return their fallback, so a caller reads all fields and
// checks status() once. A null member counts as absent, as in the hub's configurations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/json.h"
#include "minisgl/base/number_range.h"
#include "minisgl/base/status.h"

namespace minisgl::weights {

inline constexpr size_t kQuotedBytesMax = 60;  // of a value that a message quotes

inline constexpr IntRange kLayerRange = {0, 1 << 30};  // of a layer's number

class FieldReader {
 public:
  // REQUIRES object.is_object(); it must outlive this. `path` stands before each key in errors
  // ("rope_scaling.").
  FieldReader(const Json& object, std::string file, std::string path = "")
      : object_(object), file_(std::move(file)), path_(std::move(path)) {}

  // Makes Find and all readers below look in `outer`, too, for the keys of `shared` that this
  // object lacks. REQUIRES that `outer` outlives this; its keys have no path in errors.
  void SetOuter(const Json* outer, std::vector<std::string_view> shared);
  // The object around this one, or null.
  const Json* outer() const { return outer_; }

  // The member, or null if it is absent or null.
  const Json* Find(std::string_view key) const;

  // True if the member exists, even if it is null: for keys whose null differs from absence.
  bool Has(std::string_view key) const { return object_.Find(key) != nullptr; }

  // Without `fallback` the key is required.
  int64_t Int(std::string_view key, IntRange range, std::optional<int64_t> fallback = {});
  double Number(std::string_view key, NumberRange range, std::optional<double> fallback = {});
  bool Bool(std::string_view key, bool fallback);

  std::optional<int64_t> OptionalInt(std::string_view key, IntRange range);
  std::optional<double> OptionalNumber(std::string_view key, NumberRange range);
  std::optional<bool> OptionalBool(std::string_view key);
  std::optional<std::string> OptionalString(std::string_view key, std::string_view supported);

  // A token id or a list of them; empty if the key is absent.
  std::vector<TokenId> TokenIds(std::string_view key, int64_t vocab_size);

  // A reader of a member that is an object; nullopt if the key is absent.
  std::optional<FieldReader> Object(std::string_view key);

  // Records the error that `key` has an unsupported value or is missing. The first error stays.
  void Fail(std::string_view key, std::string_view supported);
  void FailWith(std::string_view key, std::string_view found, std::string_view supported);
  // Takes over the error of a reader made by Object().
  void Absorb(const FieldReader& inner);

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

 private:
  const Json* FindOwn(std::string_view key) const;

  const Json& object_;
  const Json* outer_ = nullptr;
  std::vector<std::string_view> shared_;
  std::string file_;
  std::string path_;
  Status status_;
};

// Parses `text` as a JSON object. `file` is its name in errors. Bare Infinity and NaN, which Python
// reads and writes, are read: as the largest number, and as a string.
Result<Json> ParseJsonObject(std::string_view text, const std::string& file, int depth_max);

}  // namespace minisgl::weights

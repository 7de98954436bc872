#include "batch/failures.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "term/progress.h"

namespace minisgl::batch {
namespace {

constexpr const char* kCancelled = "cancelled";
constexpr size_t kMessageBytesMax = 300;

}  // namespace

void Failures::AddCancelled(int64_t count) {
  if (count <= 0) return;
  total_ += count;
  cancelled_ += count;
  counts_[kCancelled] += count;
}

void Failures::Add(int64_t line, const RowError& error) {
  ++total_;
  ++counts_[error.code];
  last_code_ = error.code;
  if (error.code == kCancelled) {
    ++cancelled_;
    return;
  }
  // Rows may fail in another order than that of the input.
  if (failed() > 1 && line >= first_line_) return;
  first_line_ = line;
  first_message_ = error.message;
}

std::string Failures::CountsText(bool with_cancelled) const {
  std::vector<std::pair<int64_t, std::string>> counts;
  for (const auto& [code, count] : counts_) {
    if (with_cancelled || code != kCancelled) counts.emplace_back(count, code);
  }
  std::stable_sort(counts.begin(), counts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [count, code] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", term::FormatCount(count), code);
  }
  return text;
}

std::string Failures::Counts() const { return CountsText(/*with_cancelled=*/true); }

std::string Failures::Text() const {
  if (failed() == 0) return "";
  return fmt::format("{} failed: {}; first: line {}: {}", term::FormatCount(failed()),
                     CountsText(/*with_cancelled=*/false), first_line_,
                     Visible(first_message_, kMessageBytesMax));
}

Json Failures::ToJson() const {
  Json json = Json(Json::Object());
  for (const auto& [code, count] : counts_) json.Set(code, count);
  return json;
}

}  // namespace minisgl::batch

#include "cli/bad_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "term/messages.h"
#include "term/progress.h"

namespace minisgl::cli {
namespace {

constexpr int64_t kPrintedRows = 10;
constexpr size_t kPrintedMessages = 10;
// Each row may have a message of its own.
constexpr size_t kMessagesMax = 1000;

std::string Rows(int64_t count) {
  return term::FormatCount(count) + (count == 1 ? " row" : " rows");
}

}  // namespace

void BadRows::Add(int64_t line, const batch::RowError& error) {
  std::string message = fmt::format("{}: {}", error.code, Visible(error.message, 4000));
  const bool is_printed = ++count_ <= kPrintedRows || all_;
  if (is_printed) {
    term::PrintStderr(fmt::format("minisgl: {}:{}: {}", name_, line, message));
  }
  // Messages with one cause differ only after "(found".
  message.resize(std::min(message.rfind(" (found "), message.size()));
  if (is_printed) return;
  if (not_printed_.size() < kMessagesMax || not_printed_.contains(message)) {
    ++not_printed_[message];
  } else {
    ++uncounted_;
  }
}

void BadRows::End() const {
  std::vector<std::pair<int64_t, std::string>> messages;
  for (const auto& [message, count] : not_printed_) messages.emplace_back(count, message);
  std::stable_sort(messages.begin(), messages.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  int64_t others = uncounted_;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (i >= kPrintedMessages) {
      others += messages[i].first;
      continue;
    }
    term::PrintStderr(fmt::format("minisgl: {}: {} more with {}", name_, Rows(messages[i].first),
                                  messages[i].second));
  }
  if (others > 0) {
    term::PrintStderr(fmt::format("minisgl: {}: {} more with other messages", name_, Rows(others)));
  }
  if (!messages.empty()) term::PrintStderr("minisgl: --verbose lists each bad row");
}

}  // namespace minisgl::cli

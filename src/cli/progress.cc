#include "cli/progress.h"

#include <fmt/format.h>

#include "cli/messages.h"

namespace minisgl {
namespace {

// Fast enough to look alive, slow enough not to be seen flickering.
constexpr std::chrono::milliseconds kTerminalInterval(200);
constexpr std::chrono::seconds kPlainInterval(10);

std::string FormatNumbers(const Progress::Numbers& numbers, double seconds) {
  std::string line = fmt::format("{}", numbers.done + numbers.failed);
  if (numbers.total) line += fmt::format("/{}", *numbers.total);
  line += " rows";
  if (numbers.failed > 0) line += fmt::format(", {} failed", numbers.failed);
  line += fmt::format(", {} tokens, {:.0f} tokens/s, {:.0f} s", numbers.tokens,
                      static_cast<double>(numbers.tokens) / seconds, seconds);
  return line;
}

// What is over sooner needs no bar.
constexpr std::chrono::milliseconds kBarDelay(300);
constexpr int kBarColumns = 32;

}  // namespace

std::string ProgressBar(std::string_view what, int64_t done, int64_t total, int columns) {
  const auto filled =
      total > 0 ? static_cast<int>(static_cast<double>(done) / static_cast<double>(total) * columns)
                : columns;
  return fmt::format("{} [{:<{}}] {}/{}", what, std::string(static_cast<size_t>(filled), '='),
                     columns, done, total);
}

void InstallProgressBar() {
  SetProgressSink([begin = std::optional<Progress::Clock::time_point>()](
                      std::string_view what, int64_t done, int64_t total) mutable {
    if (done >= total) {
      begin.reset();
      ShowProgressLine("");
      return;
    }
    const Progress::Clock::time_point now = Progress::Clock::now();
    if (!begin) begin = now;
    if (now - *begin >= kBarDelay) ShowProgressLine(ProgressBar(what, done, total, kBarColumns));
  });
}

Progress::Progress(bool enabled, bool terminal)
    : enabled_(enabled),
      terminal_(terminal),
      begin_(Clock::now()),
      next_(begin_ + (terminal ? Clock::duration(kTerminalInterval) : kPlainInterval)) {}

Progress::~Progress() { Finish(); }

void Progress::Update(const Numbers& numbers) {
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? Clock::duration(kTerminalInterval) : kPlainInterval);
  const std::string line =
      FormatNumbers(numbers, std::chrono::duration<double>(now - begin_).count());
  if (terminal_) {
    ShowProgressLine(line);
  } else {
    PrintStderr("minisgl: " + line);
  }
}

void Progress::Finish() {
  if (enabled_ && terminal_) ShowProgressLine("");
}

}  // namespace minisgl

#include "term/byte_source.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace minisgl::term {

char InterruptByte() {
  termios settings{};
  if (tcgetattr(STDIN_FILENO, &settings) != 0 || (settings.c_lflag & ISIG) == 0) return '\0';
  const cc_t byte = settings.c_cc[VINTR];
  return byte == _POSIX_VDISABLE ? '\0' : static_cast<char>(byte);
}

ByteOutcome ByteSource::Next(char* byte, int timeout_ms) {
  if (held_ != ByteOutcome::kByte) return std::exchange(held_, ByteOutcome::kByte);
  while (at_ == buffer_.size()) {
    const ByteOutcome outcome = Fill(timeout_ms);
    if (outcome != ByteOutcome::kByte) return outcome;
  }
  *byte = buffer_[at_++];
  const bool interrupts = interrupt_ != '\0' && *byte == interrupt_;
  return interrupts ? ByteOutcome::kInterrupted : ByteOutcome::kByte;
}

void ByteSource::Hold(ByteOutcome outcome) {
  if (outcome != ByteOutcome::kTimeout) held_ = outcome;
}

void ByteSource::PutBack(std::string_view bytes) {
  buffer_.erase(0, at_);
  buffer_.insert(0, bytes);
  at_ = 0;
}

bool ByteSource::TakeInterruptAhead() {
  const size_t at = interrupt_ == '\0' ? std::string::npos : buffer_.find(interrupt_, at_);
  if (at != std::string::npos) at_ = at + 1;
  return at != std::string::npos;
}

size_t ByteSource::DropAhead() {
  const auto is_line_end = [](char byte) { return byte == '\n' || byte == '\r'; };
  const auto begin = buffer_.begin() + static_cast<std::ptrdiff_t>(at_);
  const auto num_lines = static_cast<size_t>(std::count_if(begin, buffer_.end(), is_line_end));
  at_ = buffer_.size();
  return num_lines;
}

ByteOutcome ByteSource::Fill(int timeout_ms) {
  while (true) {
    pollfd waits[2] = {{STDIN_FILENO, POLLIN, 0}, {signals_->fd(), POLLIN, 0}};
    const int ready = poll(waits, 2, timeout_ms);
    signals_->Drain();
    if (signals_->Terminated() != 0) return ByteOutcome::kTerminated;
    if (signals_->TakeInterrupt()) return ByteOutcome::kInterrupted;
    if (signals_->TakeStop()) return ByteOutcome::kStopped;
    if (signals_->TakeContinue()) return ByteOutcome::kContinued;
    if (signals_->TakeResize()) return ByteOutcome::kResized;
    if (ready == 0) return ByteOutcome::kTimeout;
    if (ready < 0 || waits[0].revents == 0) continue;
    buffer_.resize(size_t{1} << 16);
    const ssize_t got = read(STDIN_FILENO, buffer_.data(), buffer_.size());
    const bool again = got < 0 && (errno == EINTR || errno == EAGAIN);
    buffer_.resize(got > 0 ? static_cast<size_t>(got) : 0);
    at_ = 0;
    if (!again) return got > 0 ? ByteOutcome::kByte : ByteOutcome::kEnd;
  }
}

}  // namespace minisgl::term

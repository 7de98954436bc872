#include "batch/run_input.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "batch/image_reader.h"
#include "batch/row.h"
#include "batch/row_text.h"
#include "minisgl/base/byte_order_mark.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "term/messages.h"
#include "term/read_input.h"

namespace minisgl::batch {
namespace {

constexpr size_t kInputBytes = size_t{1} << 16;

// Detects changes of a file block. Each step is invertible, so that a change of a single word
// always changes the hash.
uint64_t HashBlock(std::string_view bytes) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t hash = bytes.size();
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t size = std::min(sizeof(word), bytes.size());
    std::memcpy(&word, bytes.data(), size);
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 32;
    bytes.remove_prefix(size);
  }
  return hash;
}

// Bytes of data decompressed at once.
constexpr size_t kExpandedBytes = size_t{1} << 18;

}  // namespace

Result<LineReader> LineReader::Open(const std::string& path) {
  LineReader reader;
  reader.name_ = path == "-" ? "standard input" : Visible(path, 400);
  reader.owned_ = path != "-";
  reader.fd_ = path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  if (reader.fd_ < 0 || fstat(reader.fd_, &info) != 0) {
    return MakeStatus(StatusCode::kNoInput, "{}: cannot be opened ({})", reader.name_,
                      std::strerror(errno));
  }
  if (S_ISDIR(info.st_mode)) {
    return MakeStatus(StatusCode::kNoInput, "{}: is a directory; give a file of JSON Lines",
                      reader.name_);
  }
  if (S_ISREG(info.st_mode)) {
    const off_t offset = lseek(reader.fd_, 0, SEEK_CUR);
    reader.regular_ = offset >= 0;
    reader.start_offset_ = offset;
  }
  return reader;
}

LineReader::LineReader(LineReader&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      owned_(other.owned_),
      regular_(other.regular_),
      start_offset_(other.start_offset_),
      name_(std::move(other.name_)),
      buffer_(std::move(other.buffer_)),
      buffer_begin_(other.buffer_begin_),
      scanned_(other.scanned_),
      skipping_(other.skipping_),
      at_end_(other.at_end_),
      line_number_(other.line_number_),
      num_lines_(other.num_lines_),
      lines_taken_(other.lines_taken_),
      is_first_(other.is_first_),
      status_(std::move(other.status_)),
      separator_(other.separator_),
      scanner_(other.scanner_),
      has_header_(other.has_header_),
      header_(std::move(other.header_)),
      compression_(other.compression_),
      decompressor_(std::move(other.decompressor_)),
      raw_(std::move(other.raw_)),
      raw_begin_(other.raw_begin_),
      raw_at_end_(other.raw_at_end_),
      may_expand_(other.may_expand_),
      block_hashes_(std::move(other.block_hashes_)),
      num_bytes_(other.num_bytes_),
      reads_again_(other.reads_again_),
      bytes_read_(other.bytes_read_),
      changed_(other.changed_) {}

LineReader::~LineReader() {
  if (owned_ && fd_ >= 0) close(fd_);
}

Status LineReader::Rewind() {
  MINISGL_CHECK(regular_, "only a regular file is read twice");
  if (lseek(fd_, start_offset_, SEEK_SET) < 0) {
    return MakeStatus(StatusCode::kIoError, "{}: cannot be read again ({})", name_,
                      std::strerror(errno));
  }
  // If the first reading was not finished, the next one counts as the first.
  reads_again_ = reads_again_ || at_end_;
  if (!reads_again_) {
    block_hashes_.clear();
    num_bytes_ = 0;
  }
  bytes_read_ = 0;
  buffer_.clear();
  buffer_begin_ = scanned_ = 0;
  skipping_ = at_end_ = changed_ = false;
  line_number_ = num_lines_ = lines_taken_ = 0;
  is_first_ = true;
  if (scanner_) ReadTable(separator_);
  compression_.reset();
  decompressor_.reset();
  raw_.clear();
  raw_begin_ = 0;
  raw_at_end_ = may_expand_ = false;
  status_ = Status();
  return Status();
}

void LineReader::ReadTable(char separator) {
  separator_ = separator;
  scanner_.emplace(separator);
  has_header_ = false;
}

bool LineReader::IsBlank(std::string_view line) const {
  // Tabs that separate fields are a record of empty ones.
  return line.find_first_not_of(scanner_ && separator_ == '\t' ? " \r" : " \t\r") ==
         std::string::npos;
}

Status LineReader::TakeHeader(const std::string& record) {
  if (!IsValidUtf8(record)) {
    return BadInput("{}:{}: the header is not UTF-8; convert the file, as iconv does", name_,
                    line_number_);
  }
  Result<std::vector<std::string>> fields = ParseRecord(record, separator_);
  if (!fields.ok()) {
    return BadInput("{}:{}: in the header, {}", name_, line_number_, fields.status().message());
  }
  header_ = std::move(fields).value();
  has_header_ = true;
  return Status();
}

Status LineReader::ReadHeader() {
  std::string record;
  if (Next(0, &record) == Outcome::kFailed) return status_;
  const bool found = has_header_;
  MINISGL_RETURN_IF_ERROR(Rewind());
  if (found) return Status();
  return BadInput("{}: has no header, the line with the names of its columns", name_);
}

LineReader::Outcome LineReader::Next(int timeout_ms, std::string* line) {
  while (true) {
    Outcome outcome = Outcome::kLine;
    if (TakeLine(line, &outcome)) {
      if (outcome == Outcome::kLine && IsBlank(*line)) continue;
      if (scanner_ && !has_header_) {
        if (outcome == Outcome::kTooLong) {
          return Fail(BadInput("{}: its header is too long", name_));
        }
        if (const Status status = TakeHeader(*line); !status.ok()) return Fail(status);
        continue;
      }
      return outcome;
    }
    if (at_end_) return Outcome::kEnd;
    outcome = Fill(timeout_ms);
    if (outcome != Outcome::kLine) return outcome;
  }
}

LineReader::Outcome LineReader::Peek(int timeout_ms, std::string_view* bytes, bool* is_all) {
  while (!at_end_ && (!compression_ || buffer_.size() < (regular_ ? kInputBytes : 1))) {
    const Outcome outcome = Fill(timeout_ms);
    if (outcome != Outcome::kLine) return outcome;
  }
  *bytes = std::string_view(buffer_).substr(buffer_begin_);
  *is_all = at_end_;
  return Outcome::kLine;
}

// Reads once. kLine: a line may be available.
LineReader::Outcome LineReader::Fill(int timeout_ms) {
  if (buffer_begin_ > 0) {
    buffer_.erase(0, buffer_begin_);
    scanned_ -= buffer_begin_;
    buffer_begin_ = 0;
  }
  if (decompressor_ != nullptr && (may_expand_ || raw_begin_ < raw_.size())) return Expand();
  if (decompressor_ != nullptr && raw_at_end_) {
    if (!decompressor_->IsComplete()) {
      return Fail(BadInput("{}: its compressed data are cut off", name_));
    }
    at_end_ = true;
    return Outcome::kLine;
  }
  std::string* to = decompressor_ == nullptr ? &buffer_ : &raw_;
  const Outcome outcome = regular_ ? FillFromFile(to) : FillFromPipe(timeout_ms, to);
  if (outcome != Outcome::kLine) return outcome;
  if (const Status status = CheckCompression(); !status.ok()) return Fail(status);
  if (decompressor_ == nullptr) at_end_ = raw_at_end_;
  return Outcome::kLine;
}

Status LineReader::CheckCompression() {
  if (compression_) return Status();
  compression_ = CompressionOf(buffer_, raw_at_end_);
  if (compression_.value_or(Compression::kNone) == Compression::kNone) return Status();
  Result<std::unique_ptr<Decompressor>> made = Decompressor::Make(*compression_);
  if (!made.ok()) return made.status().WithPrefix(name_);
  decompressor_ = std::move(made).value();
  raw_ = std::exchange(buffer_, std::string());
  return Status();
}

LineReader::Outcome LineReader::Expand() {
  std::string_view input = std::string_view(raw_).substr(raw_begin_);
  const size_t size = buffer_.size();
  const Status status = decompressor_->Next(&input, kExpandedBytes, &buffer_);
  if (!status.ok()) return Fail(status.WithPrefix(name_));
  may_expand_ = buffer_.size() - size == kExpandedBytes;
  raw_begin_ = raw_.size() - input.size();
  if (input.empty()) {
    raw_.clear();
    raw_begin_ = 0;
  }
  return Outcome::kLine;
}

LineReader::Outcome LineReader::FillFromPipe(int timeout_ms, std::string* to) {
  pollfd waiting{fd_, POLLIN, 0};
  const int ready = poll(&waiting, 1, timeout_ms);
  if (ready == 0 || (ready < 0 && errno == EINTR)) return Outcome::kNotYet;
  const size_t size = to->size();
  to->resize(size + kInputBytes);
  const ssize_t got = read(fd_, to->data() + size, kInputBytes);
  const int error = errno;
  to->resize(size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0) {
    return error == EINTR || error == EAGAIN ? Outcome::kNotYet : FailToRead(error);
  }
  raw_at_end_ = got == 0;
  return Outcome::kLine;
}

// Reads a whole block, or the rest of the file.
LineReader::Outcome LineReader::FillFromFile(std::string* to) {
  size_t wanted = kInputBytes;
  if (reads_again_) {
    wanted = static_cast<size_t>(
        std::min<int64_t>(num_bytes_ - bytes_read_, static_cast<int64_t>(kInputBytes)));
  }
  const size_t begin = to->size();
  to->resize(begin + wanted);
  size_t got = 0;
  while (got < wanted) {
    const ssize_t part = read(fd_, to->data() + begin + got, wanted - got);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return FailToRead(errno);
    if (part == 0) break;
    got += static_cast<size_t>(part);
  }
  to->resize(begin + got);
  const std::string_view block = std::string_view(*to).substr(begin);
  const size_t number = static_cast<size_t>(bytes_read_) / kInputBytes;
  raw_at_end_ = got < kInputBytes;
  if (!reads_again_) {
    if (got > 0) block_hashes_.push_back(HashBlock(block));
    num_bytes_ += static_cast<int64_t>(got);
  } else if (got < wanted || (got > 0 && HashBlock(block) != block_hashes_[number])) {
    changed_ = true;
    status_ = BadInput("{}: changed while it was read, at byte {} of {} or after it", name_,
                       bytes_read_, num_bytes_);
    return Outcome::kFailed;
  }
  bytes_read_ += static_cast<int64_t>(got);
  return Outcome::kLine;
}

LineReader::Outcome LineReader::FailToRead(int error) {
  return Fail(
      MakeStatus(StatusCode::kIoError, "{}: cannot be read ({})", name_, std::strerror(error)));
}

LineReader::Outcome LineReader::Fail(const Status& status) {
  status_ = status;
  return Outcome::kFailed;
}

std::optional<RecordScanner::End> LineReader::FindEnd() {
  if (!compression_) return std::nullopt;  // its first bytes are not there yet
  if (is_first_ && scanned_ == 0) {
    const bool is_mark = buffer_.starts_with(kByteOrderMark);
    if (!at_end_ && !is_mark && kByteOrderMark.starts_with(buffer_)) return std::nullopt;
    if (is_mark) buffer_begin_ = scanned_ = kByteOrderMark.size();
  }
  if (scanner_) return scanner_->Find(buffer_, &scanned_, at_end_);
  const size_t line_break = buffer_.find('\n', scanned_);
  scanned_ = line_break == std::string::npos ? buffer_.size() : line_break;
  if (line_break == std::string::npos) return std::nullopt;
  ++num_lines_;
  return RecordScanner::End{line_break, line_break + 1};
}

// Moves one line out of the buffer; returns false if the buffer holds no complete line.
bool LineReader::TakeLine(std::string* line, Outcome* outcome) {
  const std::optional<RecordScanner::End> found = FindEnd();
  const size_t end = found ? found->end : buffer_.size();
  if (!skipping_ && end - buffer_begin_ > kRowBytesMax) skipping_ = true;
  if (!found && (!at_end_ || (end == buffer_begin_ && !skipping_))) {
    if (skipping_) {  // skipped bytes need not be kept
      buffer_.erase(0, scanned_);
      buffer_begin_ = scanned_ = 0;
    }
    return false;
  }
  line_number_ = lines_taken_ + 1;
  lines_taken_ = scanner_ ? scanner_->num_lines() : num_lines_;
  *outcome = std::exchange(skipping_, false) ? Outcome::kTooLong : Outcome::kLine;
  if (*outcome == Outcome::kLine) {
    std::string_view text(buffer_.data() + buffer_begin_, end - buffer_begin_);
    if (!scanner_ && text.ends_with('\r')) text.remove_suffix(1);
    line->assign(text);
  }
  buffer_begin_ = scanned_ = found ? found->next : buffer_.size();
  is_first_ = false;
  return true;
}

Result<std::string> SystemText(const std::string& option, bool strip_line_breaks) {
  if (!option.starts_with('@')) return term::Utf8OrWarn(option, "--system");
  MINISGL_ASSIGN_OR_RETURN(std::string text, ReadFile(option.substr(1), kRowBytesMax));
  DropByteOrderMark(&text);
  while (strip_line_breaks && (text.ends_with('\n') || text.ends_with('\r'))) text.pop_back();
  return term::Utf8OrWarn(std::move(text), option.substr(1));
}

Result<std::string> PromptOptionText(const std::string& option, bool is_raw) {
  if (!option.starts_with('@')) return term::Utf8OrWarn(option, "--prompt");
  if (option.starts_with("@@")) return term::Utf8OrWarn(option.substr(1), "--prompt");
  auto text = ReadFile(option.substr(1), kRowBytesMax);
  if (!text.ok()) {
    return MakeStatus(text.status().code(), "--prompt: {}; @@ begins a text with @",
                      text.status().message());
  }
  if (IsPicture(*text)) {
    const std::string name = Visible(option.substr(1), 400);
    return UsageError("--prompt: {} is a picture and no text; --image {} shows it to the model",
                      name, name);
  }
  DropByteOrderMark(&*text);
  if (!is_raw && text->ends_with('\n')) text->pop_back();
  return term::Utf8OrWarn(std::move(text).value(), option.substr(1));
}

std::string NoRows(const LineReader& reader) {
  return fmt::format("{}: has no rows; there is nothing to answer", reader.name());
}

Result<std::string> ReadStandardInput(
    bool may_be_left, const std::function<Status(std::string_view)>& check_first_line) {
  MINISGL_ASSIGN_OR_RETURN(
      std::string text,
      term::ReadAll(STDIN_FILENO, "standard input", kRowBytesMax,
                    may_be_left ? " (--no-stdin skips it)" : "", check_first_line));
  DropByteOrderMark(&text);
  return term::Utf8OrWarn(std::move(text), "standard input");
}

}  // namespace minisgl::batch

#include "runtime/cache_event_writer.h"

#include <fmt/core.h>

#include <bit>
#include <iterator>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::runtime {
namespace {

std::string_view BytesOf(const Sha256::Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string_view BytesOf(std::span<const TokenId> tokens) {
  static_assert(std::endian::native == std::endian::little && sizeof(TokenId) == 4,
                "hashes are of little-endian token ids");
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()};
}

void AppendHex(const Sha256::Digest& digest, std::string* text) {
  constexpr char kDigits[] = "0123456789abcdef";
  *text += '"';
  for (const uint8_t byte : digest) {
    *text += kDigits[byte >> 4];
    *text += kDigits[byte & 15];
  }
  *text += '"';
}

}  // namespace

CacheEventWriter::CacheEventWriter(Sink sink, std::function<Time()> now, int32_t page_size,
                                   int32_t num_pages)
    : sink_(std::move(sink)),
      now_(std::move(now)),
      page_size_(page_size),
      start_(now_()),
      epoch_(std::chrono::duration_cast<std::chrono::microseconds>(
          std::chrono::system_clock::now().time_since_epoch())),
      blocks_(static_cast<size_t>(num_pages)) {
  BeginLine("started");
  fmt::format_to(std::back_inserter(buffer_), ",\"block_tokens\":{},\"blocks_max\":{}}}\n",
                 page_size_, num_pages);
}

void CacheEventWriter::BeginLine(std::string_view event) {
  const auto since_start = std::chrono::duration_cast<std::chrono::microseconds>(now_() - start_);
  const int64_t time_us = (epoch_ + since_start).count();
  fmt::format_to(std::back_inserter(buffer_), "{{\"event\":\"{}\",\"time\":{}.{:06}", event,
                 time_us / 1000000, time_us % 1000000);
}

void CacheEventWriter::AppendBlock(std::string_view event, const Block& block) {
  BeginLine(event);
  buffer_ += ",\"hash\":";
  AppendHex(block.hash, &buffer_);
  buffer_ += ",\"parent\":";
  if (block.prefix_tokens == page_size_) {
    buffer_ += "null";
  } else {
    AppendHex(block.parent, &buffer_);
  }
  fmt::format_to(std::back_inserter(buffer_), ",\"tokens\":{},\"prefix_tokens\":{}}}\n", page_size_,
                 block.prefix_tokens);
}

void CacheEventWriter::Stored(std::optional<PageId> parent, const PrefixKey& key,
                              std::span<const PageId> pages) {
  const auto block_tokens = static_cast<size_t>(page_size_);
  PrefixKey rest = key;
  const Block* before = parent ? &blocks_[static_cast<size_t>(*parent)] : nullptr;
  for (const PageId page : pages) {
    Block& block = blocks_[static_cast<size_t>(page)];
    MINISGL_DCHECK(block.prefix_tokens == 0, "page {} is stored twice", page);
    Sha256 hash;
    if (before != nullptr) {
      block.parent = before->hash;
      hash.Add(BytesOf(before->hash));
    }
    const PrefixKey held = rest.first(block_tokens);
    hash.Add(BytesOf(held.tokens()));
    AddMarks(held, &hash);
    rest = rest.subspan(block_tokens);
    block.hash = hash.Finish();
    block.prefix_tokens = (before == nullptr ? 0 : before->prefix_tokens) + page_size_;
    AppendBlock("stored", block);
    before = &block;
  }
}

void CacheEventWriter::Evicted(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    Block& block = blocks_[static_cast<size_t>(page)];
    MINISGL_DCHECK(block.prefix_tokens > 0, "page {} is evicted, and was not stored", page);
    AppendBlock("evicted", block);
    block.prefix_tokens = 0;
  }
}

void CacheEventWriter::Reset(int64_t pages_left) {
  BeginLine("reset");
  fmt::format_to(std::back_inserter(buffer_), ",\"blocks_left\":{}}}\n", pages_left);
}

void CacheEventWriter::Flush() {
  // A line is not whole if memory ran out in the middle of it.
  const size_t whole = buffer_.rfind('\n') + 1;
  if (whole > 0) sink_(std::string_view(buffer_).substr(0, whole));
  buffer_.clear();
}

}  // namespace minisgl::runtime

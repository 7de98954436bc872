// Pieces of global memory, the pages of their history, and the kernels that may be unfinished.
#include "emulator/global_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace minisgl::cuda::emulator {

GlobalMemory& GlobalMemory::Get() {
  static GlobalMemory memory;
  return memory;
}

// Allocations wait for the device, and what they return has no history.
void GlobalMemory::Register(uintptr_t begin, size_t num_bytes) {
  pieces_[begin] = num_bytes;
  cache_.fill({});
  Finish();
}

void GlobalMemory::Unregister(uintptr_t begin) {
  const auto piece = pieces_.find(begin);
  if (piece == pieces_.end()) return;
  const uintptr_t first = begin / kPageBytes;
  const uintptr_t end = (begin + piece->second + kPageBytes - 1) / kPageBytes;
  const auto release = [&](auto found) {
    free_words_.push_back(std::move(found->second));
    return words_.erase(found);
  };
  if (end - first < words_.size()) {
    for (uintptr_t page = first; page < end; ++page) {
      if (const auto found = words_.find(page); found != words_.end()) release(found);
    }
  } else {
    for (auto it = words_.begin(); it != words_.end();) {
      it = it->first >= first && it->first < end ? release(it) : std::next(it);
    }
  }
  pieces_.erase(piece);
  last_begin_ = last_end_ = 0;
  cache_.fill({});
  Finish();
}

// The last piece that begins at or before the address.
const std::pair<const uintptr_t, size_t>* GlobalMemory::PieceOf(uintptr_t address) const {
  const auto after = pieces_.upper_bound(address);
  return after == pieces_.begin() ? nullptr : &*std::prev(after);
}

bool GlobalMemory::Contains(uintptr_t begin, size_t num_bytes) {
  const uintptr_t end = begin + num_bytes;
  if (begin >= last_begin_ && end <= last_end_) return true;
  const auto* const piece = PieceOf(begin);
  if (piece == nullptr || end > piece->first + piece->second) return false;
  last_begin_ = piece->first;
  last_end_ = piece->first + piece->second;
  return true;
}

std::string GlobalMemory::Text(uintptr_t address) {
  const auto* const piece = PieceOf(address);
  if (piece == nullptr) return fmt::format("{:#x}", address);
  return fmt::format("byte {} of the {} at {:#x}", address - piece->first, piece->second,
                     piece->first);
}

const GlobalPage& GlobalMemory::Fill(uintptr_t page) {
  GlobalPage& entry = cache_[page % kCachedPages];
  entry = {page, nullptr, 0};
  const uintptr_t begin = page * kPageBytes;
  const auto* const piece = PieceOf(begin);
  if (piece == nullptr || begin >= piece->first + piece->second) return entry;
  std::unique_ptr<Words>& words = words_[page];
  if (words == nullptr) {
    if (free_words_.empty()) {
      words = std::make_unique<Words>();
    } else {
      words = std::move(free_words_.back());
      free_words_.pop_back();
    }
  }
  entry.words = words->data();
  entry.num_bytes = std::min<size_t>(kPageBytes, piece->first + piece->second - begin);
  return entry;
}

uint32_t GlobalMemory::BeginKernel(const std::string& name, uint64_t num_blocks, bool programmatic,
                                   CudaStream stream) {
  if (!programmatic) Finish();
  stream_ = stream;
  const uint32_t first = next_number_;
  kernels_[first] = {name, programmatic};
  next_number_ += static_cast<uint32_t>(num_blocks);
  return first;
}

void GlobalMemory::EndKernel(bool released_early) {
  const auto last = std::prev(kernels_.end());
  if (!last->second.programmatic || !released_early) FinishUntil(last->first);
}

void GlobalMemory::FinishUntil(uint32_t number) {
  if (number <= unfinished_) return;
  unfinished_ = number;
  kernels_.erase(kernels_.begin(), kernels_.lower_bound(number));
}

const std::string& GlobalMemory::KernelOf(uint32_t number) const {
  static const std::string unknown = "(none)";
  const auto after = kernels_.upper_bound(number);
  return after == kernels_.begin() ? unknown : std::prev(after)->second.name;
}

template <typename Fn>
void GlobalMemory::ForWords(uintptr_t begin, size_t num_bytes, const Fn& fn) {
  for (uintptr_t address = begin / 4 * 4; address < begin + num_bytes; address += 4) {
    const GlobalPage& page = PageOf(address);
    if (page.words != nullptr) fn(&page.words[address % kPageBytes / 4]);
  }
}

void GlobalMemory::MarkRead(uintptr_t begin, size_t num_bytes, uint32_t number) {
  ForWords(begin, num_bytes, [&](ShadowWord* word) {
    word->reader = number;
    word->read = 0xf;
  });
}

void GlobalMemory::MarkWritten(uintptr_t begin, size_t num_bytes, uint32_t number) {
  ForWords(begin, num_bytes, [&](ShadowWord* word) {
    word->writer = number;
    word->written = 0xf;
  });
}

}  // namespace minisgl::cuda::emulator

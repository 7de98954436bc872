// Global memory: every access is checked against the last ones to the same words.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/code_place.h"
#include "emulator/machine.h"

namespace minisgl::cuda::emulator {
namespace {

constexpr const char* kDoes[] = {"reads", "writes", "atomically changes"};
constexpr uint32_t kTouchesUntilVisit = 1 << 16;

}  // namespace

Complaint Machine::CheckEarlier(Access access, uintptr_t address, const Earlier& earlier) {
  const GlobalMemory& memory = GlobalMemory::Get();
  const auto complaint = [&](const std::string& who, const char* missing) {
    return fmt::format("{} {} of global memory, which {} {}, {}", kDoes[static_cast<int>(access)],
                       GlobalMemory::Get().Text(address), who, earlier.did, missing);
  };
  if (earlier.block < first_number_) {
    return complaint(fmt::format("kernel {}", memory.KernelOf(earlier.block)),
                     "before GridWait: that kernel may still run");
  }
  const Thread& self = running();
  if (earlier.block == block_->number) {
    if (block_->order.InBlock(self.index, earlier.thread, earlier.clock)) return {};
    return complaint(fmt::format("thread {}", earlier.thread), "with no barrier in between");
  }
  if (block_->order.Knows(self.index, earlier.block, earlier.thread, earlier.clock, releases_)) {
    return {};
  }
  const uint3 place = BlockPlace(earlier.block - first_number_);
  return complaint(
      fmt::format("thread {} of block ({}, {}, {})", earlier.thread, place.x, place.y, place.z),
      "with no fence and atomic by that block, then atomic and fence by this");
}

Complaint Machine::CheckWord(Access access, uintptr_t address, const ShadowWord& word,
                             uint32_t bytes) {
  const Thread& self = running();
  const uint32_t since = self.waited ? first_number_ : GlobalMemory::Get().unfinished();
  const bool both_atomic = access == Access::kAtomic && word.atomic != 0;
  Complaint complaint;
  // Two threads may write the same value.
  const bool both_write =
      access == Access::kWrite && (word.writer == block_->number ||
                                   (word.writer >= first_number_ && WritesTheSame(address, bytes)));
  if (word.writer >= since && (word.written & bytes) != 0 && !both_write &&
      !(both_atomic && word.writer >= first_number_) &&
      !(word.mixed != 0 && word.writer >= first_number_)) {
    complaint = CheckEarlier(access, address,
                             {word.writer, word.writer_thread, word.writer_clock, "wrote"});
  }
  if (access == Access::kRead) return complaint;
  if (complaint.empty() && word.reader >= since && (word.read & bytes) != 0) {
    complaint =
        CheckEarlier(access, address, {word.reader, word.reader_thread, word.reader_clock, "read"});
  }
  if (complaint.empty() && word.other >= since && (word.other_read & bytes) != 0) {
    complaint =
        CheckEarlier(access, address, {word.other, word.other_thread, word.other_clock, "read"});
  }
  return complaint;
}

// True if bytes to be written are there already: rows of padding share a page, for example.
bool Machine::WritesTheSame(uintptr_t address, uint32_t bytes) const {
  return written_bytes_ != nullptr && std::memcmp(reinterpret_cast<const void*>(address),
                                                  written_bytes_ + (address - written_begin_),
                                                  static_cast<size_t>(std::popcount(bytes))) == 0;
}

void Machine::RecordTouch(Access access, uintptr_t address, ShadowWord* word, uint32_t bytes) {
  const uint32_t number = block_->number;
  const uint16_t thread = static_cast<uint16_t>(block_->running);
  if (access == Access::kRead) {
    if (word->reader != number) {
      word->other = word->reader;
      word->other_clock = word->reader_clock;
      word->other_thread = word->reader_thread;
      word->other_read = word->read;
      word->read = 0;
    } else if (word->reader_thread != thread) {
      word->read = 0;
    }
    word->reader = number;
    word->reader_clock = clock_;
    word->reader_thread = thread;
    word->read = (word->read | bytes) & 0xf;
    return;
  }
  if (access == Access::kWrite && word->atomic != 0) releases_.Forget(address / 4 * 4);
  // Bytes of a word that different threads write: remembered as written, by the last of them.
  const bool more = word->writer >= first_number_ && (word->written & ~bytes) != 0;
  const bool same = word->writer == number && word->writer_thread == thread;
  word->mixed = more && (!same || word->mixed != 0);
  word->written = ((more ? word->written : 0u) | bytes) & 0xf;
  word->atomic = access == Access::kAtomic;
  word->writer = number;
  word->writer_clock = clock_;
  word->writer_thread = thread;
  word->reader = word->other = 0;
}

inline bool Machine::TouchWord(Access access, uintptr_t address, ShadowWord* word, uint32_t bytes) {
  const uint32_t since = running().waited ? first_number_ : GlobalMemory::Get().unfinished();
  if (word->writer >= since ||
      (access != Access::kRead && std::max(word->reader, word->other) >= since)) {
    complaint_ = CheckWord(access, address, *word, bytes);
    if (!complaint_.empty()) return false;
  }
  RecordTouch(access, address, word, bytes);
  return true;
}

bool Machine::TouchGlobal(Access access, uintptr_t address, size_t num_bytes) {
  while (num_bytes > 0) {
    const GlobalPage& page = GlobalMemory::Get().PageOf(address);
    const size_t offset = address % kPageBytes;
    const size_t part = std::min(num_bytes, kPageBytes - offset);
    if (page.words != nullptr) {
      if (offset + part > page.num_bytes) {
        complaint_ = fmt::format("{} {} bytes at {} of global memory, out of bounds",
                                 kDoes[static_cast<int>(access)], num_bytes,
                                 GlobalMemory::Get().Text(address));
        return false;
      }
      for (size_t at = offset; at < offset + part; at = at / 4 * 4 + 4) {
        const size_t first = at % 4;
        const size_t end = std::min<size_t>(4, offset + part - at / 4 * 4);
        const uint32_t bytes = (0xfu << first) & (0xfu >> (4 - end));
        if (!TouchWord(access, address - offset + at, &page.words[at / 4], bytes)) return false;
      }
    }
    address += part;
    num_bytes -= part;
  }
  return true;
}

void Machine::CheckGlobal(const void* pointer, size_t num_bytes, size_t alignment,
                          const char* what) {
  if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
    Fail(
        fmt::format("{}: {} bytes of global memory not aligned to {}", what, num_bytes, alignment));
  }
  if (!InGlobal(pointer, num_bytes)) {
    Fail(fmt::format("{}: {} bytes at {} are not within one piece of global memory", what,
                     num_bytes, pointer));
  }
}

void Machine::PrefetchL2(const void* pointer, size_t num_bytes) {
  if (num_bytes % 16 != 0) Fail(fmt::format("PrefetchL2: {} bytes, no multiple of 16", num_bytes));
  CheckGlobal(pointer, num_bytes, 16, "PrefetchL2");
  if (options.records_prefetches) prefetches.push_back({pointer, num_bytes});
}

void Machine::AccessGlobal(Access access, const void* pointer, size_t num_bytes, size_t alignment,
                           const Call& call) {
  CheckGlobal(pointer, num_bytes, alignment, call.name);
  if (!check_order_) return;
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  written_begin_ = address;
  written_bytes_ = static_cast<const unsigned char*>(call.bytes);
  const bool fine = TouchGlobal(access, address, num_bytes);
  written_bytes_ = nullptr;
  if (!fine) Fail(fmt::format("{} at {} {}", call.name, PlaceText(call.place), complaint_));
}

void Machine::Dereference(Access access, uintptr_t address, size_t num_bytes, const void* code) {
  if (GlobalMemory::Get().PageOf(address).words == nullptr) return;
  if (--touches_left_ == 0) {
    // Perhaps the thread waits for another block.
    touches_left_ = kTouchesUntilVisit;
    VisitOtherBlocks();
  }
  std::string fault;
  if (!failed_) {
    if (TouchGlobal(access, address, num_bytes)) return;
    fault = FaultText(fmt::format("{} {}", CodePlace(code), complaint_));
  }
  Thread& self = running();
  self.state = State::kEnded;
  self.abandoned = true;
  if (!failed_) FailAll(fault);
  fault = {};
  Leave();
}

uint64_t Machine::BeginAtomic(const void* pointer, size_t num_bytes, const Call& call,
                              const uint64_t* expected) {
  if (--atomics_left_ == 0) Fail("too many atomics: the thread waits for what does not come");
  if (--atomics_to_block_ == 0) {
    atomics_to_block_ = kAtomicsUntilBlock;
    wants_block_ = num_begun_ < block_order_.size();
  }
  VisitOtherBlocks();
  if (failed_) throw Unwound();
  ++clock_;
  AccessGlobal(Access::kAtomic, pointer, num_bytes, num_bytes, call);
  uint64_t bits = 0;
  std::memcpy(&bits, pointer, num_bytes);
  if (check_order_) {
    const uintptr_t word = reinterpret_cast<uintptr_t>(pointer) / 4 * 4;
    const bool writes = expected == nullptr || bits == *expected;
    block_->order.OnAtomic(block_->running, word, writes, &releases_);
  }
  return bits;
}

void Machine::EndAtomic(void* pointer, size_t num_bytes, uint64_t bits) {
  std::memcpy(pointer, &bits, num_bytes);
}

void Machine::Fence() {
  if (!check_order_) return;
  block_->order.OnFence(block_->running, ++clock_);
  VisitOtherBlocks();
  if (failed_) throw Unwound();
}

void Machine::GridWait() {
  running().waited = true;
  block_->any_waited = true;
}

void Machine::GridRelease() {
  if (!block_->any_waited) block_->released_early = true;
}

}  // namespace minisgl::cuda::emulator

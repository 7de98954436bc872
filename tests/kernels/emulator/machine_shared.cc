// Shared memory, and asynchronous copies into it.
#include <fmt/core.h>

#include <cstring>

#include "emulator/machine.h"

namespace minisgl::cuda::emulator {

SharedArray Machine::Take(int index, int64_t offset, int64_t num_bytes, const Place& place) {
  if (num_bytes < 0 || offset + num_bytes > static_cast<int64_t>(block_->shared.size())) {
    Fail(fmt::format("the array taken at {} ends at byte {} of {} of shared memory",
                     PlaceText(place), offset + num_bytes, block_->shared.size()));
  }
  const SharedArray array{offset, offset + num_bytes, index};
  if (static_cast<size_t>(index) == block_->arrays.size()) block_->arrays.push_back({array, place});
  const SharedArray& other = block_->arrays.at(static_cast<size_t>(index)).array;
  if (other.begin != array.begin || other.end != array.end) {
    Fail(fmt::format("the array taken at {} is bytes {} to {}; another thread's is {} to {}",
                     PlaceText(place), array.begin, array.end, other.begin, other.end));
  }
  return array;
}

std::string Machine::ArrayName(const SharedArray& array) const {
  if (array.index < 0) return "no array";
  return fmt::format("the array of {} bytes taken at {}", array.end - array.begin,
                     PlaceText(block_->arrays[static_cast<size_t>(array.index)].place));
}

unsigned char* Machine::AccessShared(Access access, const SharedArray& array, int64_t offset,
                                     int num_bytes, int alignment) {
  static constexpr const char* kNames[] = {"reads", "writes", "atomically changes"};
  Complaint complaint;
  if (offset < array.begin || offset + num_bytes > array.end) {
    complaint = "out of bounds";
  } else if (offset % alignment != 0) {
    complaint = fmt::format("not aligned to {}", alignment);
  } else {
    complaint = block_->shared.Check(access, running().actor, static_cast<size_t>(offset),
                                     static_cast<size_t>(num_bytes));
  }
  if (!complaint.empty()) [[unlikely]] {
    Fail(fmt::format("{} bytes {} to {} of {}, {}", kNames[static_cast<int>(access)],
                     offset - array.begin, offset - array.begin + num_bytes, ArrayName(array),
                     complaint));
  }
  return block_->shared.data() + offset;
}

void Machine::CopyAsync16(const SharedArray& array, int64_t offset, const void* source, bool valid,
                          const Place& place) {
  Thread& self = running();
  if (reinterpret_cast<uintptr_t>(source) % 16 != 0) Fail("CopyAsync16: source not aligned to 16");
  if (valid) AccessGlobal(Access::kRead, source, 16, 16, {"CopyAsync16", place});
  Complaint complaint;
  if (offset < array.begin || offset + 16 > array.end) {
    complaint = "out of bounds";
  } else if (offset % 16 != 0) {
    complaint = "not aligned to 16";
  } else {
    complaint = block_->shared.BeginCopy(self.actor, static_cast<size_t>(offset));
  }
  if (!complaint.empty()) {
    Fail(fmt::format("CopyAsync16 to bytes {} to {} of {}, {}", offset - array.begin,
                     offset - array.begin + 16, ArrayName(array), complaint));
  }
  self.copies.push_back({static_cast<size_t>(offset), valid ? source : nullptr});
}

void Machine::CopyAsyncCommit() {
  Thread& self = running();
  self.group_ends.push_back(self.copies.size());
}

void Machine::CopyAsyncWait(int num_unfinished) {
  Thread& self = running();
  const size_t keep = static_cast<size_t>(num_unfinished);
  if (self.group_ends.size() <= keep) return;
  const size_t num_groups = self.group_ends.size() - keep;
  const size_t num_copies = self.group_ends[num_groups - 1];
  for (size_t i = 0; i < num_copies; ++i) {
    const AsyncCopy& copy = self.copies[i];
    unsigned char* const target = block_->shared.data() + copy.offset;
    if (copy.source == nullptr) {
      std::memset(target, 0, 16);
    } else {
      std::memcpy(target, copy.source, 16);
    }
    block_->shared.EndCopy(self.actor, copy.offset);
  }
  self.copies.erase(self.copies.begin(),
                    self.copies.begin() + static_cast<std::ptrdiff_t>(num_copies));
  self.group_ends.erase(self.group_ends.begin(),
                        self.group_ends.begin() + static_cast<std::ptrdiff_t>(num_groups));
  for (size_t& end : self.group_ends) end -= num_copies;
}

}  // namespace minisgl::cuda::emulator

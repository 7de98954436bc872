// Checks of accesses to shared memory.
#include "emulator/shared_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <memory>

namespace minisgl::cuda::emulator {

void SharedMemory::Begin(size_t num_bytes) {
  const size_t num_lines = (num_bytes + kLine - 1) / kLine;
  if (num_lines > lines_.size()) {
    bytes_.assign(num_lines * kLine, 0);
    lines_.assign(num_lines, Cell());
    split_.assign(num_lines, 0);
    cells_ = std::make_unique<Cell[]>(num_lines * kLine);
  }
  // The previous block's contents must not look like data.
  std::fill_n(bytes_.begin(), num_lines * kLine, static_cast<unsigned char>(0xCD));
  std::fill_n(lines_.begin(), num_lines, Cell());
  std::fill_n(split_.begin(), num_lines, static_cast<uint8_t>(0));
  size_ = num_bytes;
}

bool SharedMemory::Ordered(const Accesses& earlier, const Actor& actor) {
  if (earlier.epoch != actor.epoch) return true;
  if (earlier.warp != actor.warp()) return false;
  uint32_t others = earlier.lanes & ~(1u << actor.lane());
  if (others == 0 || earlier.time < actor.full_sync) return true;
  if (actor.lane_sync == nullptr) return false;
  for (; others != 0; others &= others - 1) {
    if (earlier.time >= actor.lane_sync[std::countr_zero(others)]) return false;
  }
  return true;
}

SharedMemory::Accesses SharedMemory::Of(const Actor& actor) {
  return {actor.epoch, 1u << actor.lane(), actor.time, actor.warp()};
}

void SharedMemory::Add(Accesses* accesses, const Actor& actor) {
  if (accesses->epoch != actor.epoch) {
    *accesses = Of(actor);
  } else if (accesses->warp != actor.warp()) {
    accesses->warp = kSeveralWarps;
  } else if (accesses->time < actor.full_sync) {
    *accesses = Of(actor);
  } else {
    accesses->lanes |= 1u << actor.lane();
    accesses->time = actor.time;
  }
}

std::string SharedMemory::Text(const Accesses& accesses) {
  if (accesses.warp == kSeveralWarps) return "threads of several warps";
  std::string text;
  for (uint32_t lanes = accesses.lanes; lanes != 0; lanes &= lanes - 1) {
    text += fmt::format("{}{}", text.empty() ? "thread " : ", ",
                        accesses.warp * 32 + static_cast<uint32_t>(std::countr_zero(lanes)));
  }
  return text;
}

Complaint SharedMemory::CheckCell(Access access, const Actor& actor, Cell* cell) const {
  if (cell->state == State::kInFlight) {
    return fmt::format("while an asynchronous copy of {} into it was under way",
                       Text(cell->written));
  }
  const bool both_atomic = access == Access::kAtomic && cell->state == State::kAtomic;
  if (access != Access::kWrite && cell->state == State::kUnwritten) {
    return "which nothing in this block has written";
  }
  if (!both_atomic && !Ordered(cell->written, actor)) {
    return fmt::format("which {} wrote, with no barrier in between", Text(cell->written));
  }
  if (access == Access::kRead) {
    Add(&cell->read, actor);
    return {};
  }
  if (!Ordered(cell->read, actor)) {
    return fmt::format("which {} read, with no barrier in between", Text(cell->read));
  }
  cell->read = Accesses();
  if (both_atomic) {
    Add(&cell->written, actor);
  } else {
    cell->written = Of(actor);
  }
  cell->state = access == Access::kAtomic ? State::kAtomic : State::kWritten;
  return {};
}

Complaint SharedMemory::CheckLine(Access access, const Actor& actor, size_t line, size_t begin,
                                  size_t end) {
  const bool whole = begin == 0 && end == kLine;
  Cell* const cells = &cells_[line * kLine];
  if (!split_[line]) {
    if (whole) return CheckCell(access, actor, &lines_[line]);
    std::fill_n(cells, kLine, lines_[line]);
    split_[line] = 1;
  }
  for (size_t i = begin; i < end; ++i) {
    Complaint complaint = CheckCell(access, actor, &cells[i]);
    if (!complaint.empty()) return complaint;
  }
  if (whole && access == Access::kWrite) {
    lines_[line] = cells[0];
    split_[line] = 0;
  }
  return {};
}

Complaint SharedMemory::Check(Access access, const Actor& actor, size_t offset, size_t num_bytes) {
  const size_t end = offset + num_bytes;
  for (size_t line = offset / kLine; line * kLine < end; ++line) {
    const size_t line_begin = line * kLine;
    Complaint complaint = CheckLine(access, actor, line, std::max(offset, line_begin) - line_begin,
                                    std::min(end, line_begin + kLine) - line_begin);
    if (!complaint.empty()) return complaint;
  }
  return {};
}

Complaint SharedMemory::BeginCopy(const Actor& actor, size_t offset) {
  Complaint complaint = Check(Access::kWrite, actor, offset, kLine);
  if (!complaint.empty()) return complaint;
  lines_[offset / kLine].state = State::kInFlight;
  std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), kLine,
              static_cast<unsigned char>(0xCD));
  return {};
}

void SharedMemory::EndCopy(const Actor& actor, size_t offset) {
  Cell& cell = lines_[offset / kLine];
  cell.written = Of(actor);
  cell.state = State::kWritten;
}

}  // namespace minisgl::cuda::emulator

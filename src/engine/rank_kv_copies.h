// Copies of blocks of keys and values, and of states, of all ranks of a device's engine: a block
// holds the first rank's part, then the second's, and so on. Used by the engine's thread, except as
// KvBlockCopy says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/device_kv_copies.h"
#include "engine/device_rank.h"
#include "minisgl/engine/engine.h"

namespace minisgl::engine {

class RankKvCopies {
 public:
  // `ranks` outlive it. `has_steps`: true if steps are in flight. `settle` is called before memory
  // is taken: waits until no rank waits for another one.
  RankKvCopies(const std::vector<std::unique_ptr<DeviceRank>>& ranks,
               const std::function<bool()>& has_steps, const std::function<void()>& settle);

  // The functions of Engine.
  int64_t BlockBytes(int32_t block_tokens) const;
  std::unique_ptr<KvBlockCopy> Read(std::span<const PageId> pages);
  std::unique_ptr<KvBlockCopy> BeginWrite(std::span<const PageId> pages);
  void Write(std::unique_ptr<KvBlockCopy> copy);  // WritePages and WriteState
  int64_t StateBytes() const;
  std::unique_ptr<KvBlockCopy> ReadState(StateSlot slot);
  std::unique_ptr<KvBlockCopy> BeginStateWrite(StateSlot slot);

 private:
  class Copy;

  // One of all ranks; null if `make` of a rank returns null. `bytes_of`: of a rank's part.
  using Make = std::function<std::unique_ptr<KvBlockCopy>(DeviceKvCopies*)>;
  using BytesOf = std::function<int64_t(const DeviceKvCopies&)>;
  std::unique_ptr<KvBlockCopy> MakeCopy(const Make& make, const BytesOf& bytes_of);
  std::unique_ptr<KvBlockCopy> MakeBlock(std::span<const PageId> pages, const Make& make);
  std::unique_ptr<KvBlockCopy> MakeState(const Make& make);

  const int32_t page_size_;
  std::vector<std::unique_ptr<DeviceKvCopies>> of_ranks_;
};

}  // namespace minisgl::engine

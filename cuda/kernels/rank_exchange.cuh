// A block's exchanges with the blocks of the same number on other ranks, and what kernels do with
// them. The memory is described in rank_exchange.h.
//
// Why flags are never reset and no exchange begins with a barrier: let e be the number of an
// exchange of block b, the same on all ranks, since all launch the same kernels. Block b of rank s
// writes to places of parity e % 2 in the piece of rank r, which r may last have read in exchange
// e - 2. In exchange e - 1 block s met block r in phase 0: s has acquired the flag that r released
// there, and r released it after its reads of exchange e - 2 (an earlier exchange of the same
// block, or an earlier kernel of its stream). So these reads are ordered before the writes of
// exchange e. A rank is thus never more than one exchange ahead of another, and a flag that holds
// e or e + 1 says that exchange e has been reached: a graph may be launched again and again.
//
// Sums are in the order of ranks, in f32, and rounded once; in two shots one rank computes a sum
// for all. So every rank has the same bits, in one shot and in two.
#pragma once

#include "device/device.h"
#include "kernels/rank_exchange.h"

namespace minisgl::cuda {

inline constexpr int kExchangeThreads = 256;

class BlockExchange {
 public:
  using Pack = device::Vec<uint32_t, 4>;

  // `failed` has one element.
  MINISGL_DEVICE BlockExchange(const RankExchange& ranks, device::Shared<uint32_t> failed)
      : ranks_(ranks),
        failed_(failed),
        thread_(static_cast<int>(threadIdx.x)),
        block_(static_cast<int>(blockIdx.x)),
        begun_(ranks.epochs[block_]),
        epoch_(begun_) {
    if (thread_ == 0) failed_[0] = 0;
  }

  // Begins an exchange.
  MINISGL_DEVICE void Next() { ++epoch_; }

  // [kExchangePacks] of the exchange, in the piece of rank `to`: the part that rank `from` gives
  // it, and the sums that others give it.
  MINISGL_DEVICE uint32_t* Part(int to, int from) const {
    const int parity = static_cast<int>(epoch_ % 2);
    return reinterpret_cast<uint32_t*>(ranks_.pieces[to] +
                                       ExchangePlace(ranks_.count, block_, parity, from));
  }
  MINISGL_DEVICE uint32_t* Sums(int to) const { return Part(to, ranks_.count); }

  // Returns when what all threads stored for other ranks is theirs, and what those stored for this
  // one may be read. False, on all threads, if another rank has failed: the kernel must end.
  MINISGL_DEVICE bool Meet(int phase) {
    __syncthreads();  // every thread has stored its packs
    const bool has_peer = thread_ < ranks_.count && thread_ != ranks_.rank;
    if (has_peer) device::StoreRelease(Flag(thread_, phase, ranks_.rank), epoch_);
    __syncwarp();  // no lane waits before all have said that this rank is here
    if (has_peer && !WaitFor(thread_, phase)) device::AtomicMaxShared(failed_, 1u);
    __syncthreads();  // every flag has been seen
    const uint32_t failed = failed_[0];
    return failed == 0;
  }

  // After the last exchange of the kernel. A block without one has met no barrier since its threads
  // read the number.
  MINISGL_DEVICE void End() {
    if (thread_ == 0 && epoch_ != begun_) ranks_.epochs[block_] = epoch_;
  }

 private:
  static constexpr int kPolls = 256;  // between looks at the alarm, in the memory of the host

  MINISGL_DEVICE uint32_t* Flag(int of, int phase, int from) const {
    return reinterpret_cast<uint32_t*>(ranks_.pieces[of] + ExchangeFlag(phase, block_, from));
  }

  MINISGL_DEVICE bool WaitFor(int from, int phase) {
    const uint32_t* const flag = Flag(ranks_.rank, phase, from);
    const int64_t begin = device::Nanoseconds();
    while (true) {
      for (int i = 0; i < kPolls; ++i) {
        const uint32_t reached = device::LoadAcquire(flag);
        if (static_cast<int32_t>(reached - epoch_) >= 0) return true;
      }
      if (device::LoadAcquire(ranks_.alarm) != 0) return false;
      if (device::Nanoseconds() - begin > ranks_.wait_ns) {
        device::StoreRelease(ranks_.alarm + 1 + ranks_.rank, static_cast<uint32_t>(1 + from));
        device::StoreRelease(ranks_.alarm, 1);
        return false;
      }
      device::Sleep(100);
    }
  }

  const RankExchange& ranks_;
  device::Shared<uint32_t> failed_;
  const int thread_, block_;
  const uint32_t begun_;
  uint32_t epoch_;
};

// A pack as elements of T.
template <typename T>
inline constexpr int kPackElements = kExchangePackBytes / static_cast<int>(sizeof(T));

// Elements [first, first + kPackElements) of x [count], those past the end zero. REQUIRES x aligned
// to a pack.
template <typename T>
MINISGL_DEVICE device::Vec<T, kPackElements<T>> LoadPack(const T* x, int64_t first, int64_t count) {
  constexpr int kElements = kPackElements<T>;
  if (first + kElements <= count) return device::LoadVec<kElements>(x + first);
  device::Vec<T, kElements> pack;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    pack[i] = first + i < count ? x[first + i] : device::FromFloat<T>(0);
  }
  return pack;
}

template <typename T>
MINISGL_DEVICE void StorePack(T* x, int64_t first, int64_t count,
                              const device::Vec<T, kPackElements<T>>& pack) {
  constexpr int kElements = kPackElements<T>;
  if (first + kElements <= count) return device::StoreVec(x + first, pack);
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (first + i < count) x[first + i] = pack[i];
  }
}

struct RankSumParams {
  RankExchange ranks;
  void* x;        // [count]
  int64_t count;  // elements
  int32_t slice;  // packs that a block exchanges at a time
  bool two_shots;
};

// A block's part of a sum over ranks: slices blockIdx.x, blockIdx.x + gridDim.x, ...
template <typename T>
class RankSum {
 public:
  MINISGL_DEVICE RankSum(const RankSumParams& params, device::Shared<uint32_t> failed)
      : params_(params),
        x_(static_cast<T*>(params.x)),
        rank_(params.ranks.rank),
        num_ranks_(params.ranks.count),
        exchange_(params.ranks, failed) {}

  MINISGL_DEVICE void Run() {
    const int64_t num_packs = (params_.count + kElements - 1) / kElements;
    const int64_t stride = int64_t{params_.slice} * gridDim.x;
    for (first_ = int64_t{params_.slice} * blockIdx.x; first_ < num_packs; first_ += stride) {
      const int64_t left = num_packs - first_;
      num_ = left < params_.slice ? static_cast<int>(left) : params_.slice;
      exchange_.Next();
      if (!(params_.two_shots ? SumInTwoShots() : SumInOneShot())) return;
    }
    exchange_.End();
  }

 private:
  static constexpr int kElements = kPackElements<T>;
  using Elements = device::Vec<T, kElements>;

  // Every rank gives all to all others.
  MINISGL_DEVICE bool SumInOneShot() {
    for (int i = static_cast<int>(threadIdx.x); i < num_; i += kExchangeThreads) {
      const Elements own = Load(i);
      for (int turn = 1; turn < num_ranks_; ++turn) {
        device::StoreVec(At(exchange_.Part(OtherRank(turn), rank_), i), own);
      }
    }
    if (!exchange_.Meet(0)) return false;
    for (int i = static_cast<int>(threadIdx.x); i < num_; i += kExchangeThreads) {
      Store(i, SumOfRanks(i, i));
    }
    return true;
  }

  // Rank r sums part r of the slice, and gives the sums to all.
  MINISGL_DEVICE bool SumInTwoShots() {
    for (int turn = 1; turn < num_ranks_; ++turn) {
      const int to = OtherRank(turn);
      T* const part = At(exchange_.Part(to, rank_), 0);
      for (int i = Begin(to) + static_cast<int>(threadIdx.x); i < Begin(to + 1);
           i += kExchangeThreads) {
        device::StoreVec(part + (i - Begin(to)) * kElements, Load(i));
      }
    }
    if (!exchange_.Meet(0)) return false;
    for (int i = Begin(rank_) + static_cast<int>(threadIdx.x); i < Begin(rank_ + 1);
         i += kExchangeThreads) {
      const Elements sums = SumOfRanks(i, i - Begin(rank_));
      Store(i, sums);
      for (int turn = 1; turn < num_ranks_; ++turn) {
        device::StoreVec(At(exchange_.Sums(OtherRank(turn)), i), sums);
      }
    }
    if (!exchange_.Meet(1)) return false;
    const T* const sums = At(exchange_.Sums(rank_), 0);
    for (int i = static_cast<int>(threadIdx.x); i < num_; i += kExchangeThreads) {
      if (i >= Begin(rank_) && i < Begin(rank_ + 1)) continue;
      Store(i, device::LoadVec<kElements>(sums + i * kElements));
    }
    return true;
  }

  // The sum over all ranks of pack i of the slice, which the others sent as their pack `place`.
  MINISGL_DEVICE Elements SumOfRanks(int i, int place) const {
    float sums[kElements] = {};
    for (int turn = 0; turn < num_ranks_; ++turn) {
      const int from = turn;  // on every rank
      const Elements addends = from == rank_ ? Load(i)
                                             : device::LoadVec<kElements>(static_cast<const T*>(
                                                   At(exchange_.Part(rank_, from), place)));
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        sums[e] = turn == 0 ? device::ToFloat(addends[e]) : sums[e] + device::ToFloat(addends[e]);
      }
    }
    Elements rounded;
#pragma unroll
    for (int e = 0; e < kElements; ++e) rounded[e] = device::FromFloat<T>(sums[e]);
    return rounded;
  }

  // The other ranks, each in another order, so that not all write to one at once.
  MINISGL_DEVICE int OtherRank(int turn) const { return (rank_ + turn) % num_ranks_; }
  // The first pack of the slice that rank `of` sums.
  MINISGL_DEVICE int Begin(int of) const { return num_ * of / num_ranks_; }
  MINISGL_DEVICE T* At(uint32_t* packs, int i) const {
    return reinterpret_cast<T*>(packs) + i * kElements;
  }
  MINISGL_DEVICE Elements Load(int i) const {
    return LoadPack<T>(x_, (first_ + i) * kElements, params_.count);
  }
  MINISGL_DEVICE void Store(int i, const Elements& pack) const {
    StorePack<T>(x_, (first_ + i) * kElements, params_.count, pack);
  }

  const RankSumParams& params_;
  T* const x_;
  const int rank_, num_ranks_;
  BlockExchange exchange_;
  int64_t first_ = 0;  // the slice
  int num_ = 0;
};

struct RankGatherParams {
  RankExchange ranks;
  const float* x;  // [num_tokens, width of the rank]
  float* out;      // [num_tokens, out_stride] or null
  int64_t out_stride;
  int32_t num_tokens;
  int32_t slice;
  int32_t bounds[kExchangeRanksMax + 1];
};

// A block's part of the columns of all ranks. A rank's own columns are one array, which it gives to
// the others slice by slice. The rank that gets a slice computes where its elements stand.
class RankGather {
 public:
  MINISGL_DEVICE RankGather(const RankGatherParams& params, device::Shared<uint32_t> failed)
      : params_(params), rank_(params.ranks.rank), exchange_(params.ranks, failed) {}

  MINISGL_DEVICE void Run() {
    int widest = 0;
    for (int rank = 0; rank < params_.ranks.count; ++rank) {
      widest = Width(rank) > widest ? Width(rank) : widest;
    }
    const int num_packs = (params_.num_tokens * widest + kElements - 1) / kElements;
    const int stride = params_.slice * static_cast<int>(gridDim.x);
    for (int first = params_.slice * static_cast<int>(blockIdx.x); first < num_packs;
         first += stride) {
      exchange_.Next();
      Give(first);
      if (!exchange_.Meet(0)) return;
      if (params_.out == nullptr) continue;
      for (int from = 0; from < params_.ranks.count; ++from) Take(first, from);
    }
    exchange_.End();
  }

 private:
  static constexpr int kElements = kPackElements<float>;

  MINISGL_DEVICE int Width(int of) const { return params_.bounds[of + 1] - params_.bounds[of]; }

  MINISGL_DEVICE void Give(int first) const {
    const int size = params_.num_tokens * Width(rank_);
    for (int i = static_cast<int>(threadIdx.x); i < params_.slice; i += kExchangeThreads) {
      const int at = (first + i) * kElements;
      if (at >= size) return;
      const device::Vec<float, kElements> own = LoadPack(params_.x, at, size);
      for (int turn = 1; turn < params_.ranks.count; ++turn) {
        const int to = (rank_ + turn) % params_.ranks.count;
        device::StoreVec(Floats(to, rank_) + i * kElements, own);
      }
    }
  }

  MINISGL_DEVICE void Take(int first, int from) const {
    const uint32_t width = static_cast<uint32_t>(Width(from));
    const int size = params_.num_tokens * Width(from);
    for (int i = static_cast<int>(threadIdx.x); i < params_.slice; i += kExchangeThreads) {
      const int at = (first + i) * kElements;
      if (at >= size) return;
      const device::Vec<float, kElements> pack =
          from == rank_ ? LoadPack(params_.x, at, size)
                        : device::LoadVec<kElements>(
                              static_cast<const float*>(Floats(rank_, from) + i * kElements));
      uint32_t token = static_cast<uint32_t>(at) / width;
      uint32_t column = static_cast<uint32_t>(at) - token * width;
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        if (at + e >= size) break;
        params_.out[token * params_.out_stride + params_.bounds[from] + column] = pack[e];
        if (++column == width) {
          column = 0;
          ++token;
        }
      }
    }
  }

  MINISGL_DEVICE float* Floats(int to, int from) const {
    return reinterpret_cast<float*>(exchange_.Part(to, from));
  }

  const RankGatherParams& params_;
  const int rank_;
  BlockExchange exchange_;
};

}  // namespace minisgl::cuda

// See rank_link.h.
#include "rank_link.h"

#include <fmt/core.h>

#include <atomic>
#include <utility>

#include "cuda_error.h"
#include "minisgl/base/log.h"
#include "minisgl/base/setting.h"

namespace minisgl::cuda {
namespace {

std::atomic_ref<uint32_t> Word(uint32_t* word) { return std::atomic_ref<uint32_t>(*word); }

bool AreDistinct(std::span<const RankDevice> ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (ranks[i].index == ranks[j].index) return false;
    }
  }
  return true;
}

// True if each device can use the memory of all others.
Result<bool> EnablePeers(std::span<const RankDevice> ranks) {
  bool all = true;
  for (const RankDevice& rank : ranks) {
    for (const RankDevice& peer : ranks) {
      if (peer.index == rank.index) continue;
      bool is_enabled = false;
      const CudaError error = rank.api->EnablePeerAccess(peer.index, &is_enabled);
      if (error != kCudaSuccess) {
        return CudaStatus(rank.api, error, fmt::format("peer access to cuda:{}", peer.index),
                          rank.ops->Name());
      }
      all = all && is_enabled;
    }
  }
  return all;
}

}  // namespace

RankExchange RankLink::Alone() const {
  RankExchange alone = exchange;
  alone.pieces[0] = exchange.pieces[exchange.rank];
  alone.rank = 0;
  alone.count = 1;
  alone.epochs += kExchangeBlocks;
  return alone;
}

void RankLink::RaiseAlarm() const { Word(exchange.alarm).store(1, std::memory_order_release); }

bool RankLink::IsAlarmed() const {
  return Word(exchange.alarm).load(std::memory_order_acquire) != 0;
}

Status RankLink::Failure(std::string_view name, bool* by_others) const {
  int32_t faulty = 0;
  const Status fault = nccl == nullptr ? Status() : nccl->Fault(&faulty);
  if (!fault.ok()) {
    *by_others = faulty != exchange.rank;
    if (!*by_others) return fault.WithPrefix(std::string(name));
    return fault.WithPrefix(fmt::format("{} stopped, because rank {} has failed", name, faulty));
  }
  const uint32_t waited = Word(exchange.alarm + 1 + exchange.rank).load(std::memory_order_acquire);
  *by_others = waited == 0;
  if (waited == 0) {
    return MakeStatus(StatusCode::kUnavailable, "{} stopped, because another device has failed",
                      name);
  }
  return MakeStatus(StatusCode::kUnavailable,
                    "{} waited {} s for the device of rank {}, which does not answer; check "
                    "nvidia-smi and dmesg for Xid, and start again without that device",
                    name, exchange.wait_ns / 1'000'000'000, waited - 1);
}

Result<std::vector<RankLink>> LinkRanks(std::span<const RankDevice> ranks,
                                        const CudaRanksConfig& config, bool through_host) {
  const auto count = static_cast<int32_t>(ranks.size());
  MINISGL_CHECK(count <= kExchangeRanksMax, "{} ranks on devices", count);
  MINISGL_ASSIGN_OR_RETURN(const bool have_peers, EnablePeers(ranks));
  if (!have_peers && !config.nccl) {
    Log(LogLevel::kInfo,
        fmt::format("the GPUs cannot use each other's memory: sums over ranks go through the "
                    "host's, which takes longer; {} nccl has NCCL add",
                    SettingName(Setting::kAllReduce)));
  }
  const bool on_host = through_host || !have_peers;
  const auto num_bytes = static_cast<size_t>(ExchangeBytes(count));
  std::vector<std::shared_ptr<void>> memory;
  RankExchange common = {
      .count = count,
      .wait_ns = config.wait_ms * 1'000'000,
      .one_shot_bytes = count == 2 ? config.one_shot_bytes_of_two : config.one_shot_bytes,
      .on_distinct_devices = AreDistinct(ranks)};
  MINISGL_ASSIGN_OR_RETURN(auto alarm, ranks[0].ops->AllocateHost(kAlarmBytes));
  common.alarm = static_cast<uint32_t*>(alarm.get());
  memory.push_back(std::move(alarm));
  for (int32_t rank = 0; rank < count; ++rank) {
    DeviceOps* const ops = ranks[static_cast<size_t>(rank)].ops;
    MINISGL_ASSIGN_OR_RETURN(auto piece,
                             on_host ? ops->AllocateHost(num_bytes) : ops->Allocate(num_bytes));
    common.pieces[rank] = static_cast<std::byte*>(piece.get());
    memory.push_back(std::move(piece));
  }
  std::vector<RankLink> links;
  for (int32_t rank = 0; rank < count; ++rank) {
    DeviceOps* const ops = ranks[static_cast<size_t>(rank)].ops;
    MINISGL_ASSIGN_OR_RETURN(auto epochs, ops->Allocate(2 * kExchangeBlocks * sizeof(uint32_t)));
    RankLink link = {.exchange = common, .memory = memory, .through_host = on_host};
    link.exchange.rank = rank;
    link.exchange.epochs = static_cast<uint32_t*>(epochs.get());
    link.memory.push_back(std::move(epochs));
    links.push_back(std::move(link));
    MINISGL_RETURN_IF_ERROR(ops->Synchronize());
  }
  return links;
}

}  // namespace minisgl::cuda

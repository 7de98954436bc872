// An engine that keeps the drafts of another that a scheduler asks for.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "minisgl/engine/engine.h"

namespace minisgl {

class RecordedDrafts final : public Engine {
 public:
  explicit RecordedDrafts(Engine* engine) : engine_(engine) {}

  // The drafts of rows with masks, step by step.
  std::vector<std::vector<std::vector<TokenId>>> drafts;

  const EngineLimits& limits() const override { return engine_->limits(); }
  void Launch(std::shared_ptr<const BatchPlan> plan) override { engine_->Launch(std::move(plan)); }
  void SupplyMasks(StepMasks masks) override { engine_->SupplyMasks(std::move(masks)); }
  std::vector<std::vector<TokenId>> GuideDrafts(const DraftGuide& guide) override {
    return drafts.emplace_back(engine_->GuideDrafts(guide));
  }
  StepResult Collect() override { return engine_->Collect(); }
  int64_t KvBlockBytes(int32_t block_tokens) const override {
    return engine_->KvBlockBytes(block_tokens);
  }
  std::unique_ptr<KvBlockCopy> ReadPages(std::span<const PageId> pages) override {
    return engine_->ReadPages(pages);
  }
  std::unique_ptr<KvBlockCopy> BeginWrite(std::span<const PageId> pages) override {
    return engine_->BeginWrite(pages);
  }
  void WritePages(std::unique_ptr<KvBlockCopy> copy) override {
    engine_->WritePages(std::move(copy));
  }
  int64_t StateBytes() const override { return engine_->StateBytes(); }
  std::unique_ptr<KvBlockCopy> ReadState(StateSlot slot) override {
    return engine_->ReadState(slot);
  }
  std::unique_ptr<KvBlockCopy> BeginStateWrite(StateSlot slot) override {
    return engine_->BeginStateWrite(slot);
  }
  void WriteState(std::unique_ptr<KvBlockCopy> copy) override {
    engine_->WriteState(std::move(copy));
  }

 private:
  Engine* const engine_;
};

}  // namespace minisgl

// Which adapters are loaded, when few may be at once.
#include "sched/adapter_ledger.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/sched/scheduler.h"
#include "sched/request_state.h"
#include "sched/waiting_queue.h"

namespace minisgl::sched {
namespace {

// Loads end when the test says so.
class Source : public AdapterSource {
 public:
  explicit Source(int32_t max_loaded) : max_loaded_(max_loaded) {}
  int32_t num_adapters() const override { return 10; }
  int32_t max_loaded() const override { return max_loaded_; }
  void Load(AdapterSlot adapter) override {
    loading.push_back(adapter);
    EXPECT_LE(static_cast<int32_t>(loading.size() + loaded.size()), max_loaded_);
  }
  void Drop(AdapterSlot adapter) override { EXPECT_EQ(loaded.erase(adapter), 1u); }
  std::vector<AdapterLoad> TakeFinished() override {
    std::vector<AdapterLoad> finished;
    for (const AdapterSlot adapter :
         ends ? std::exchange(loading, {}) : std::vector<AdapterSlot>()) {
      finished.push_back({adapter, error});
      if (error.empty()) loaded.insert(adapter);
    }
    return finished;
  }

  std::vector<AdapterSlot> loading;
  std::set<AdapterSlot> loaded;
  bool ends = true;
  std::string error;

 private:
  const int32_t max_loaded_;
};

class AdapterLedgerTest : public testing::Test {
 protected:
  void Begin(int32_t max_loaded, QueuePolicy policy = QueuePolicy::kFcfs) {
    source_ = std::make_unique<Source>(max_loaded);
    queue_ = std::make_unique<WaitingQueue>(policy);
    ledger_ = std::make_unique<AdapterLedger>(source_.get());
  }

  // A new request; kNoAdapter: without one.
  RequestState* Add(AdapterSlot adapter, int32_t priority = 0, uint8_t holds = 0) {
    states_.push_back(std::make_unique<RequestState>());
    RequestState* const state = states_.back().get();
    state->request.id = states_.size();
    state->request.priority = priority;
    state->arrival = states_.size();
    state->holds = holds;
    auto extras = std::make_shared<RowExtras>();
    extras->adapter = adapter;
    state->request.extras = std::move(extras);
    queue_->Add(state);
    ledger_->Wait(state, queue_.get());
    return state;
  }
  bool MayRun(RequestState* state) const { return queue_->Contains(state) && state->holds == 0; }
  void Admit(RequestState* state) {
    ASSERT_TRUE(MayRun(state));
    queue_->Remove(state);
    queue_->CountAdmission();
    ledger_->Run(state);
    state->phase = Phase::kDecode;
    Check();
  }
  void End(RequestState* state) {
    ledger_->Leave(state);
    if (queue_->Contains(state)) queue_->Remove(state);
    state->phase = Phase::kEnded;
    Check();
  }
  // Ends loads and begins others.
  std::vector<AdapterLoad> Update() {
    std::vector<AdapterLoad> failed = ledger_->Update(queue_.get());
    Check();
    return failed;
  }
  void Check() const {
    std::vector<const RequestState*> all;
    for (const auto& state : states_) all.push_back(state.get());
    ledger_->CheckInvariants(all);
  }

  std::unique_ptr<Source> source_;
  std::unique_ptr<WaitingQueue> queue_;
  std::unique_ptr<AdapterLedger> ledger_;
  std::vector<std::unique_ptr<RequestState>> states_;
};

TEST_F(AdapterLedgerTest, ARequestWaitsForItsAdapterAndNoOther) {
  Begin(2);
  RequestState* const first = Add(4);
  RequestState* const plain = Add(kNoAdapter);
  EXPECT_FALSE(MayRun(first));
  EXPECT_TRUE(MayRun(plain));
  source_->ends = false;
  Update();
  EXPECT_EQ(source_->loading, std::vector<AdapterSlot>{4});
  Update();
  EXPECT_FALSE(MayRun(first));
  source_->ends = true;
  Update();
  EXPECT_TRUE(MayRun(first));
  EXPECT_TRUE(MayRun(Add(4)));  // it is there
}

TEST_F(AdapterLedgerTest, ForRoomTheAdapterUsedLongestAgoIsDropped) {
  Begin(2);
  RequestState* const a = Add(0);
  RequestState* const b = Add(1);
  Update();
  Update();
  Admit(a);
  Admit(b);
  RequestState* const c = Add(2);
  Update();
  EXPECT_FALSE(MayRun(c));
  EXPECT_EQ(source_->loaded, (std::set<AdapterSlot>{0, 1}));  // both run
  End(b);
  End(a);
  Update();
  Update();
  EXPECT_TRUE(MayRun(c));
  EXPECT_EQ(source_->loaded, (std::set<AdapterSlot>{0, 2}));
}

TEST_F(AdapterLedgerTest, AnAdapterKeepsOthersAwayNoLongerThanABypassedRequest) {
  Begin(1);
  std::vector<RequestState*> many;
  for (int i = 0; i < 100; ++i) many.push_back(Add(0));
  RequestState* const other = Add(1);
  Update();
  Update();
  size_t admitted = 0;
  for (; admitted < many.size() && MayRun(many[admitted]); ++admitted) {
    Admit(many[admitted]);
    Update();
  }
  EXPECT_EQ(static_cast<int64_t>(admitted), kAdapterBypassMax);
  EXPECT_EQ(source_->loaded, std::set<AdapterSlot>{0});  // while its requests run
  EXPECT_FALSE(MayRun(Add(0)));                          // and takes no more
  for (size_t i = 0; i < admitted; ++i) End(many[i]);
  Update();
  Update();
  EXPECT_TRUE(MayRun(other));
  Admit(other);
  End(other);
  Update();
  Update();
  EXPECT_TRUE(MayRun(many[admitted]));
}

TEST_F(AdapterLedgerTest, AClosedAdapterOpensWhenNoOtherIsWanted) {
  Begin(1);
  std::vector<RequestState*> many;
  for (int i = 0; i < 20; ++i) many.push_back(Add(0));
  RequestState* const other = Add(1);
  Update();
  Update();
  for (int i = 0; i < kAdapterBypassMax; ++i) Admit(many[static_cast<size_t>(i)]);
  Update();
  EXPECT_FALSE(MayRun(many.back()));
  End(other);
  Update();
  EXPECT_TRUE(MayRun(many.back()));
}

TEST_F(AdapterLedgerTest, RequestsBehindAGateOrATurnNeedNoAdapterYet) {
  Begin(1);
  RequestState* const gated = Add(0, 0, kHeldByGate);
  RequestState* const ready = Add(1);
  Update();
  Update();
  EXPECT_TRUE(MayRun(ready));
  Admit(ready);
  End(ready);
  Update();
  EXPECT_EQ(source_->loaded, std::set<AdapterSlot>{1});
  queue_->Unhold(gated, kHeldByGate);
  Update();
  Update();
  EXPECT_TRUE(MayRun(gated));
}

TEST_F(AdapterLedgerTest, AChatsAdapterIsLoadedFirst) {
  Begin(1, QueuePolicy::kPriority);
  Add(0);
  RequestState* const chat = Add(1, kChatPriority);
  Update();
  Update();
  EXPECT_TRUE(MayRun(chat));
}

TEST_F(AdapterLedgerTest, AFailedLoadNamesItsRequests) {
  Begin(1);
  RequestState* const a = Add(0);
  RequestState* const b = Add(1);
  source_->error = "it is gone";
  Update();
  const std::vector<AdapterLoad> failed = Update();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].error, "it is gone");
  ASSERT_EQ(ledger_->WaitingFor(failed[0].adapter), std::vector<RequestState*>{a});
  End(a);
  source_->error.clear();
  Update();
  Update();
  EXPECT_TRUE(MayRun(b));
}

TEST_F(AdapterLedgerTest, APreemptedRequestKeepsItsAdapterOrWaitsForIt) {
  Begin(1);
  RequestState* const a = Add(0);
  Update();
  Update();
  Admit(a);
  ledger_->Leave(a);
  a->phase = Phase::kWaiting;
  queue_->Add(a);
  ledger_->Wait(a, queue_.get());
  Check();
  EXPECT_TRUE(MayRun(a));
}

}  // namespace
}  // namespace minisgl::sched

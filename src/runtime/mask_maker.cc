#include "runtime/mask_maker.h"

#include <new>
#include <utility>

namespace minisgl::runtime {
namespace {

// Work of the first piece: about a quarter of a millisecond, for which others may wait for the same
// grammar. Later pieces are larger, so that a mask is made even if each piece loses the work of the
// one before.
constexpr int64_t kPieceWork = 2'000;
constexpr int64_t kPiecesPerGrowth = 16;

// Returns true if the mask is done.
bool MakePiece(int64_t num_before, LateMask* mask) {
  try {
    int64_t work_left = kPieceWork * (1 + num_before / kPiecesPerGrowth);
    if (!mask->work().GoOn(&work_left, /*yields=*/true)) return false;
    mask->SetDone(/*failed=*/false);
  } catch (const std::bad_alloc&) {
    mask->SetDone(/*failed=*/true);
  }
  return true;
}

}  // namespace

MaskMaker::MaskMaker(std::function<void()> wake) : wake_(std::move(wake)) {}

MaskMaker::~MaskMaker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MaskMaker::Add(RequestId id, const std::shared_ptr<LateMask>& mask) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({id, mask});
    ++num_added_;
    if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  }
  changed_.notify_all();
}

std::vector<RequestId> MaskMaker::TakeReady() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ready_, {});
}

int64_t MaskMaker::num_added() const {
  const std::lock_guard lock(mutex_);
  return num_added_;
}

void MaskMaker::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    bool is_done = false;
    std::shared_ptr<LateMask> mask = job.mask.lock();
    const bool is_wanted = mask != nullptr;
    if (is_wanted) is_done = MakePiece(job.num_pieces++, mask.get());
    mask.reset();  // may be the last one: it takes the grammar's lock
    lock.lock();
    if (is_wanted && !is_done) jobs_.push_back(std::move(job));
    if (!is_done) continue;
    ready_.push_back(job.id);
    lock.unlock();
    wake_();
    lock.lock();
  }
}

}  // namespace minisgl::runtime

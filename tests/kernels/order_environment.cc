// Turns the checks of order on, for each case of the executable. They depend little on the order in
// which threads run, so three orders stand for all except in the long form.
#include <gtest/gtest.h>

#include "emulator/emulator.h"
#include "long_form.h"

namespace minisgl::cuda {
namespace {

class CheckedOrder : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo&) override {
    emulator::Options options = emulator::GetOptions();
    options.check_order = true;
    options.orders_max = ShortOrLong(3, int{emulator::kNumOrders});
    emulator::SetOptions(options);
  }
};

class CheckedOrderEnvironment : public testing::Environment {
 public:
  void SetUp() override { testing::UnitTest::GetInstance()->listeners().Append(new CheckedOrder); }
};

const testing::Environment* const checked_order =
    testing::AddGlobalTestEnvironment(new CheckedOrderEnvironment);

}  // namespace
}  // namespace minisgl::cuda

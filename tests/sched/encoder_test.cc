// Pictures in the scheduler: what a step encodes, how long embeddings stay, and which tokens wait
// for them. The simulated engine checks that each token is computed with its picture's.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "minisgl/plan/row_extras.h"
#include "sched/encoder_ledger.h"
#include "sched/request_state.h"
#include "sched/sched_fixture.h"
#include "sim/sim_driver.h"

namespace minisgl::sched {
namespace {

using sim::SimDriver;

constexpr ContentHash kTabby = {1, 1}, kHound = {2, 1}, kHeron = {3, 1};

EngineLimits PictureLimits(int32_t num_pages = 200) {
  EngineLimits limits;
  limits.vocab_size = kVocab;
  limits.page_size = 4;
  limits.num_pages = num_pages;
  limits.max_running_requests = 8;
  limits.max_seq_len = 200;
  limits.max_step_tokens = 80;
  limits.extras = kReplacesEmbeddings | kHasInputs;
  return limits;
}

SchedulerOptions PictureOptions(int64_t budget = 100, int64_t cache = 100) {
  SchedulerOptions options;
  options.max_prefill_tokens = 32;
  options.step = StepPolicy::kMixed;
  options.admission = AdmissionPolicy::kOptimistic;
  options.encoder_budget = budget;
  options.encoder_cache = cache;
  return options;
}

struct Picture {
  int64_t token, length;
  ContentHash hash;
  bool is_whole = false;
};

Request MakePicture(RequestId id, int64_t length, std::vector<Picture> pictures,
                    int64_t max_tokens = 4) {
  Request request = MakeRequest(3, length, max_tokens);
  request.id = request.sampling.seed = id;
  request.prompt.back() = static_cast<TokenId>(1 + id);
  RowExtras extras;
  for (const Picture& picture : pictures) {
    request.marks.push_back({picture.token, picture.hash});
    extras.embeddings.push_back({picture.token, static_cast<int32_t>(picture.length), 0,
                                 static_cast<EmbeddingSource>(extras.inputs.size())});
    extras.inputs.push_back(
        {picture.token, picture.length, picture.length, picture.hash, picture.is_whole});
  }
  request.extras = std::make_shared<const RowExtras>(std::move(extras));
  return request;
}

std::vector<int64_t> Encoded(SimDriver& driver) {
  std::vector<int64_t> sizes;
  for (const EncoderRun& run : driver.last_plan().extras.encoded) {
    sizes.push_back(run.num_embeddings);
  }
  return sizes;
}

TEST(EncoderTest, AStepEncodesWhatItsTokensNeed) {
  SimDriver driver(PictureLimits(), PictureOptions(), 0, kEndRate);
  const Request request = MakePicture(1, 60, {{4, 10, kTabby}, {40, 12, kHound}});
  driver.Submit(request);
  driver.Step();  // [0, 32)
  EXPECT_EQ(Encoded(driver), (std::vector<int64_t>{10}));
  driver.Step();  // [32, 60)
  EXPECT_EQ(Encoded(driver), (std::vector<int64_t>{12}));
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, request);
}

TEST(EncoderTest, APictureBeyondTheBudgetEndsTheChunkBeforeIt) {
  SimDriver driver(PictureLimits(), PictureOptions(12), 0, kEndRate);
  const Request request = MakePicture(1, 60, {{4, 10, kTabby}, {20, 5, kHound}});
  driver.Submit(request);
  driver.Step();
  EXPECT_EQ(Encoded(driver), (std::vector<int64_t>{10}));
  EXPECT_EQ(driver.last_plan().num_tokens(), 20);
  driver.Step();
  EXPECT_EQ(Encoded(driver), (std::vector<int64_t>{5}));
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, request);
}

TEST(EncoderTest, APictureLargerThanBudgetAndCacheIsEncodedAlone) {
  SimDriver driver(PictureLimits(), PictureOptions(5, 8), 0, kEndRate);
  const Request request = MakePicture(1, 60, {{4, 20, kTabby}, {26, 3, kHound}, {30, 3, kHeron}});
  driver.Submit(request);
  driver.Step();
  EXPECT_EQ(Encoded(driver), (std::vector<int64_t>{20}));
  EXPECT_EQ(driver.last_plan().num_tokens(), 26);
  driver.Step();
  EXPECT_EQ(Encoded(driver), (std::vector<int64_t>{3}));  // two are beyond the budget
  EXPECT_EQ(driver.last_plan().extras.dropped.size(), 1u);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, request);
}

EngineLimits LimitsWithPieces() {
  EngineLimits limits = PictureLimits();
  limits.encodes_in_pieces = true;
  return limits;
}

using Piece = std::vector<int64_t>;  // of: source, begin, end

std::vector<Piece> Pieces(SimDriver& driver) {
  std::vector<Piece> pieces;
  for (const EncoderRun& run : driver.last_plan().extras.encoded) {
    pieces.push_back({static_cast<int64_t>(run.source), run.begin, run.end});
  }
  return pieces;
}

// Another row answers beside the pieces; what follows the picture waits for the last one.
TEST(EncoderTest, APictureBeyondTheBudgetIsEncodedInPieces) {
  SimDriver driver(LimitsWithPieces(), PictureOptions(8), 0, kEndRate);
  const Request request = MakePicture(1, 40, {{4, 20, kTabby}});
  Request text = MakeRequest(5, 10, 20);
  text.id = text.sampling.seed = 2;
  driver.Submit(request);
  driver.Submit(text);
  driver.Step();
  EXPECT_EQ(driver.last_plan().num_tokens(), 4 + 10);
  EXPECT_TRUE(Pieces(driver).empty());
  for (const Piece& piece : {Piece{1, 0, 8}, Piece{1, 8, 16}}) {
    driver.Step();
    EXPECT_EQ(Pieces(driver), (std::vector<Piece>{piece}));
    EXPECT_EQ(driver.last_plan().num_tokens(), 1);
  }
  driver.Step();
  EXPECT_EQ(Pieces(driver), (std::vector<Piece>{{1, 16, 20}}));
  EXPECT_GT(driver.last_plan().num_tokens(), 20);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.scheduler().Stats().encoded_inputs, 1);
  ExpectRight(driver, request);
  ExpectRight(driver, text);
}

TEST(EncoderTest, AStepMayHaveAPieceAndNoRow) {
  SimDriver driver(LimitsWithPieces(), PictureOptions(8), 1, kEndRate);
  const Request request = MakePicture(1, 40, {{0, 20, kTabby}});
  driver.Submit(request);
  driver.Step();
  EXPECT_EQ(driver.last_plan().num_rows(), 0);
  EXPECT_EQ(Pieces(driver), (std::vector<Piece>{{1, 0, 8}}));
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, request);
}

// Both wait for the same picture, and a third one for another, which is begun after the last piece.
TEST(EncoderTest, OtherPicturesWaitForTheLastPiece) {
  SimDriver driver(LimitsWithPieces(), PictureOptions(8), 0, kEndRate);
  std::vector<Request> requests = {MakePicture(1, 40, {{0, 20, kTabby}}),
                                   MakePicture(2, 40, {{4, 20, kTabby}}),
                                   MakePicture(3, 40, {{4, 6, kHound}})};
  for (Request& request : requests) {
    request.prompt.front() = static_cast<TokenId>(request.id);
    driver.Submit(request);
  }
  std::vector<Piece> pieces;
  while (driver.Step()) {
    for (const Piece& piece : Pieces(driver)) {
      if (pieces.empty() || pieces.back() != piece) pieces.push_back(piece);
    }
  }
  EXPECT_EQ(pieces, (std::vector<Piece>{{1, 0, 8}, {1, 8, 16}, {1, 16, 20}, {2, 0, 6}}));
  EXPECT_EQ(driver.scheduler().Stats().encoded_inputs, 2);
  for (const Request& request : requests) ExpectRight(driver, request);
}

TEST(EncoderTest, AChatsPictureTakesThePlaceOfOneInPieces) {
  SchedulerOptions options = PictureOptions(8);
  options.queue = QueuePolicy::kPriority;
  SimDriver driver(LimitsWithPieces(), options, 0, kEndRate);
  const Request request = MakePicture(1, 40, {{4, 20, kTabby}});
  Request chat = MakePicture(2, 40, {{4, 7, kHound}});
  chat.priority = kChatPriority;
  driver.Submit(request);
  driver.Step();
  driver.Step();
  EXPECT_EQ(Pieces(driver), (std::vector<Piece>{{1, 0, 8}}));
  driver.Submit(chat);
  driver.Step();  // the text before it; beside a chat a piece is smaller
  EXPECT_EQ(Pieces(driver), (std::vector<Piece>{{1, 8, 10}}));
  driver.Step();
  EXPECT_EQ(Pieces(driver), (std::vector<Piece>{{2, 0, 7}}));
  EXPECT_EQ(driver.last_plan().extras.dropped, (std::vector<EmbeddingSource>{1}));
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, request);
  ExpectRight(driver, chat);
}

// It waits for both, and the one in pieces is encoded by its own request meanwhile. The cache has
// room for one of them.
TEST(EncoderTest, AChatGivesUpNoPiecesOfAPictureThatItWants) {
  SchedulerOptions options = PictureOptions(20, 33);
  options.queue = QueuePolicy::kPriority;
  SimDriver driver(LimitsWithPieces(), options, 0, kEndRate);
  const Request request = MakePicture(1, 60, {{4, 32, kTabby}});
  Request chat = MakePicture(2, 60, {{4, 7, kHound}, {12, 32, kTabby}});
  chat.priority = kChatPriority;
  driver.Submit(request);
  driver.Step();
  driver.Step();
  EXPECT_EQ(Pieces(driver), (std::vector<Piece>{{1, 0, 20}}));
  driver.Submit(chat);
  driver.Step();  // the text before its pictures
  EXPECT_EQ(Pieces(driver), (std::vector<Piece>{{1, 20, 25}}));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.engine().violation(), "");
  ExpectRight(driver, request);
  ExpectRight(driver, chat);
}

// The rest of a picture whose request ends is not encoded, nor that of one whose piece failed.
TEST(EncoderTest, PiecesEndWithTheirRequest) {
  SimDriver driver(LimitsWithPieces(), PictureOptions(8), 1, kEndRate);
  driver.Submit(MakePicture(1, 40, {{4, 20, kTabby}}));
  driver.Step();
  driver.Step();
  EXPECT_EQ(Pieces(driver), (std::vector<Piece>{{1, 0, 8}}));
  driver.scheduler().Abort(1);
  const Request second = MakePicture(2, 40, {{0, 20, kTabby}});
  driver.Submit(second);
  driver.Step();
  EXPECT_EQ(driver.last_plan().extras.dropped, (std::vector<EmbeddingSource>{1}));
  EXPECT_EQ(Pieces(driver), (std::vector<Piece>{{2, 0, 8}}));
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, second);
  driver.Submit(MakePicture(3, 40, {{0, 20, kHeron}}));
  driver.engine().FailNextStep("the tower broke");
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers().at(3).reason, EndReason::kFailed);
  const Request again = MakePicture(4, 40, {{0, 20, kHeron}});
  driver.Submit(again);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, again);
}

TEST(EncoderTest, RowsWithTheSamePictureEncodeItOnce) {
  SimDriver driver(PictureLimits(), PictureOptions(), 0, kEndRate);
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 20; ++id) {
    // The texts differ before the picture, so that no prefix is shared.
    requests.push_back(MakePicture(id, 30, {{6, 10, id % 2 == 0 ? kTabby : kHound}}));
    requests.back().prompt.front() = static_cast<TokenId>(1 + id);
    driver.Submit(requests.back());
  }
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.scheduler().Stats().encoded_inputs, 2);
  EXPECT_EQ(driver.scheduler().Stats().reused_inputs, 18);
  for (const Request& request : requests) ExpectRight(driver, request);
}

TEST(EncoderTest, WhatAWaitingRequestWantsIsDroppedLast) {
  EngineLimits limits = PictureLimits();
  limits.max_running_requests = 1;
  SimDriver driver(limits, PictureOptions(100, 25), 0, kEndRate);
  // The tabby is used first, so it is the oldest when the heron needs room; request 4 wants it.
  const std::vector<std::pair<RequestId, ContentHash>> order = {
      {1, kTabby}, {2, kHound}, {3, kHeron}, {4, kTabby}};
  std::vector<Request> requests;
  for (const auto& [id, hash] : order) {
    requests.push_back(MakePicture(id, 30, {{6, 10, hash}}));
    requests.back().prompt.front() = static_cast<TokenId>(1 + id);
    driver.Submit(requests.back());
  }
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.scheduler().Stats().encoded_inputs, 3);
  for (const Request& request : requests) ExpectRight(driver, request);
}

TEST(EncoderTest, APictureThatAttendsBothWaysIsComputedWhole) {
  SimDriver driver(PictureLimits(), PictureOptions(), 0, kEndRate);
  const Request request = MakePicture(1, 60, {{20, 24, kTabby, true}});
  driver.Submit(request);
  driver.Step();
  EXPECT_EQ(driver.last_plan().num_tokens(), 20);
  EXPECT_TRUE(Encoded(driver).empty());
  driver.Step();
  EXPECT_EQ(driver.last_plan().num_tokens(), 32);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, request);
}

// The first prompt ends within the picture of the second, whose tokens are the same so far.
TEST(EncoderTest, ACachedPrefixEndsBeforeAPictureThatIsComputedWhole) {
  SimDriver driver(PictureLimits(), PictureOptions(), 0, kEndRate);
  const Request first = MakePicture(1, 20, {{10, 9, kTabby}});
  driver.Submit(first);
  ASSERT_TRUE(driver.RunToEnd());
  const Request second = MakePicture(2, 60, {{10, 24, kTabby, true}});
  driver.Submit(second);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers().at(2).cached_tokens, 8);
  ExpectRight(driver, second);
}

TEST(EncoderTest, APictureThatNoStepCanComputeWholeIsRefused) {
  SimDriver driver(PictureLimits(), PictureOptions(), 0, kEndRate);
  driver.Submit(MakePicture(1, 60, {{10, 40, kTabby, true}}));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers().at(1).error_code, "length_exceeded");
  EXPECT_EQ(driver.answers().at(1).error_message,
            "a picture of 40 tokens, which one step computes, does not fit in the 32 of a step; "
            "allow longer steps, or fewer tokens of a picture");
  const Request causal = MakePicture(2, 60, {{10, 40, kTabby}});
  driver.Submit(causal);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, causal);
}

TEST(EncoderTest, AnEngineWithoutTowersRefusesAPicture) {
  EngineLimits limits = PictureLimits();
  limits.extras = kReplacesEmbeddings;
  SimDriver driver(limits, PictureOptions(), 0, kEndRate);
  driver.Submit(MakePicture(1, 60, {{10, 20, kTabby}}));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers().at(1).error_code, "invalid_row");
}

// Embeddings that are read never make room, however long ago they were used first.
TEST(EncoderTest, RoomIsMadeOfWhatNoRequestReads) {
  EncoderLedger ledger(PictureOptions(100, 25), false);
  RequestState reader, passed, waiting, later;
  const auto add = [&ledger](RequestState* state, RequestId id, ContentHash hash) {
    state->request = MakePicture(id, 30, {{6, 10, hash}});
    ledger.Add(state);
  };
  add(&reader, 1, kHound);
  add(&passed, 2, kTabby);
  add(&waiting, 3, kTabby);  // wants it, and does not read it
  add(&later, 4, kHeron);
  ledger.BeginStep(1);
  ledger.Take(&reader, 30);
  ledger.Take(&passed, 30);
  PlanExtras first, second;
  ledger.Launch(&first);
  ASSERT_EQ(first.encoded.size(), 2u);
  passed.computed_len = 30;
  ledger.Pass(&passed);
  ledger.BeginStep(1);
  EXPECT_EQ(ledger.Reach(later, 30), 30);
  ledger.Take(&later, 30);
  ledger.Launch(&second);
  EXPECT_EQ(second.dropped, (std::vector<EmbeddingSource>{first.encoded[1].source}));
  for (RequestState* state : {&reader, &passed, &waiting, &later}) ledger.Remove(state);
  EXPECT_EQ(ledger.num_referred(), 0);
}

// The chunk's second picture is kept since longest, so that room for the first would be made of it.
TEST(EncoderTest, RoomIsNotMadeOfWhatTheChunkReads) {
  EncoderLedger ledger(PictureOptions(100, 25), true);
  RequestState first, second, waiting, reader;
  const auto add = [&ledger](RequestState* state, RequestId id, std::vector<Picture> pictures) {
    state->request = MakePicture(id, 60, std::move(pictures));
    ledger.Add(state);
  };
  add(&first, 1, {{6, 10, kTabby}});
  add(&second, 2, {{6, 10, kHound}});
  add(&waiting, 3, {{6, 10, kHound}});
  add(&reader, 4, {{6, 10, kHeron}, {20, 10, kTabby}});
  PlanExtras kept, plan;
  ledger.BeginStep(1);
  ledger.Take(&first, 60);
  ledger.Take(&second, 60);
  ledger.Launch(&kept);
  for (RequestState* state : {&first, &second}) {
    state->computed_len = 60;
    ledger.Pass(state);
  }
  ledger.BeginStep(1);
  ASSERT_EQ(ledger.Reach(reader, 60), 60);
  ledger.Take(&reader, 60);
  ledger.Launch(&plan);
  EXPECT_EQ(plan.encoded.size(), 1u);
  EXPECT_EQ(plan.dropped, (std::vector<EmbeddingSource>{kept.encoded[1].source}));
  for (RequestState* state : {&first, &second, &waiting, &reader}) ledger.Remove(state);
}

// Two prompts part within the picture, where the first would leave a snapshot for the second.
TEST(EncoderTest, NoStateIsLeftWithinAPictureThatIsComputedWhole) {
  EngineLimits limits = PictureLimits();
  limits.num_state_slots = 40;
  SimDriver driver(limits, PictureOptions(), 0, kEndRate);
  std::vector<Request> requests;
  for (const RequestId id : {1, 2}) {
    requests.push_back(MakePicture(id, 60, {{20, 24, kTabby, true}}));
    requests.back().prompt[34] = static_cast<TokenId>(id);
    driver.Submit(requests.back());
  }
  int64_t num_segments = 0;
  while (driver.Step()) {
    const BatchPlan& plan = driver.last_plan();
    std::vector<int64_t> at;
    for (int row = 0; row < plan.num_rows(); ++row) {
      at.push_back(plan.kv_len[static_cast<size_t>(row)] - plan.extend_len(row));
    }
    for (const StateSegment& segment : plan.state_segments) {
      int64_t& end = at[static_cast<size_t>(segment.row)];
      end += segment.num_tokens;
      EXPECT_TRUE(end <= 20 || end >= 44) << "a segment ends after " << end << " tokens";
      ++num_segments;
    }
  }
  EXPECT_GT(num_segments, 4);
  for (const Request& request : requests) ExpectRight(driver, request);
}

// Both rows read the embeddings that the failed step encoded, in steps that were launched.
TEST(EncoderTest, AFailedStepsEmbeddingsAreNotFound) {
  SimDriver driver(PictureLimits(), PictureOptions(), 1, kEndRate);
  driver.engine().FailNextStep("the tower broke");
  driver.Submit(MakePicture(1, 60, {{20, 30, kTabby}}));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers().at(1).reason, EndReason::kFailed);
  const Request again = MakePicture(2, 60, {{20, 30, kTabby}});
  driver.Submit(again);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.scheduler().Stats().encoded_inputs, 2);
  ExpectRight(driver, again);
}

// The second row reads in a step that was launched, and a chat's turn takes its place before the
// step that encodes fails.
TEST(EncoderTest, APreemptedReaderOfAFailedStepIsToldNothing) {
  EngineLimits limits = PictureLimits();
  limits.max_in_flight = 3;
  limits.max_running_requests = 2;
  SchedulerOptions options = PictureOptions();
  options.queue = QueuePolicy::kPriority;
  SimDriver driver(limits, options, 2, kEndRate);
  driver.engine().FailNextStep("the tower broke");
  driver.Submit(MakePicture(1, 40, {{4, 10, kTabby}}));
  ASSERT_TRUE(driver.Step());
  driver.Submit(MakePicture(2, 20, {{2, 10, kTabby}}));
  ASSERT_TRUE(driver.Step());
  ASSERT_EQ(driver.last_plan().num_rows(), 2);
  Request chat = MakePicture(3, 8, {});
  chat.priority = kChatPriority;
  driver.Submit(chat);
  driver.Launch();
  ASSERT_EQ(driver.scheduler().Stats().preemptions, 1);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.engine().violation(), "");
  EXPECT_EQ(driver.answers().at(2).reason, EndReason::kFailed);
  EXPECT_TRUE(driver.answers().at(2).tokens.empty());
  ExpectRight(driver, chat);
}

TEST(EncoderTest, WrongInputsAreNamed) {
  const std::vector<KeyMark> marks = {{4, kTabby}};
  RowExtras extras;
  extras.inputs = {{4, 10, 10, kTabby}};
  EXPECT_TRUE(CheckExtras(extras, 14, marks).ok());
  EXPECT_FALSE(CheckExtras(extras, 13, marks).ok());
  EXPECT_FALSE(CheckExtras(extras, 14, {}).ok());
  extras.embeddings = {{4, 10, 0, 0}};
  EXPECT_TRUE(CheckExtras(extras, 14, marks).ok());
  extras.embeddings = {{4, 10, 1, 0}};
  EXPECT_EQ(CheckExtras(extras, 14, marks).message(),
            "replaced embeddings of tokens 4 to 14 are not those of an input");
  extras.embeddings = {{4, 10, 0, 1}};
  EXPECT_FALSE(CheckExtras(extras, 14, marks).ok());
  extras.embeddings.clear();
  extras.inputs.front().attends_both_ways = true;
  EXPECT_FALSE(CheckExtras(extras, 14, marks).ok());  // the last token is one of it
  EXPECT_TRUE(CheckExtras(extras, 15, marks).ok());
}

}  // namespace
}  // namespace minisgl::sched

// Classes of bytes that are merged, against the derivatives by each.
#include <gtest/gtest.h>

#include <random>

#include "grammar/expression_table.h"

namespace minisgl::grammar {
namespace {

Id RandomExpression(std::mt19937* random, ExpressionTable* table, int depth) {
  const uint32_t choice = (*random)() % (depth == 0 ? 3 : 10);
  if (choice < 3) {
    ByteSet bytes;
    for (uint32_t i = 0, end = 1 + (*random)() % 6; i < end; ++i) {
      const auto first = static_cast<uint8_t>((*random)() % 200);
      bytes = UnionOf(
          bytes,
          ByteSet::Range(first, static_cast<uint8_t>(first + (*random)() % (i == 0 ? 40 : 3))));
    }
    return table->MakeBytes(bytes);
  }
  const Id a = RandomExpression(random, table, depth - 1);
  if (choice == 3) return table->Not(a);
  if (choice == 4) return table->Repeat(a, (*random)() % 2, ExpressionTable::kUnbounded);
  const Id b = RandomExpression(random, table, depth - 1);
  if (choice < 7) return table->Concat(a, b);
  std::vector<Id> parts = {a, b, RandomExpression(random, table, depth - 1)};
  return choice == 7 ? table->And(&parts) : table->Or(&parts);
}

TEST(ByteClasses, MergedOnesHaveEqualDerivatives) {
  std::mt19937 random(11);
  size_t num_classes = 0, num_merged = 0;
  for (int round = 0; round < 200; ++round) {
    ExpressionTable table{ExpressionLimits()};
    std::vector<Id> both = {RandomExpression(&random, &table, 3),
                            RandomExpression(&random, &table, 3)};
    for (int step = 0; step < 4; ++step) {
      MergedClasses merged;
      table.MergeClasses(both, &merged);
      for (uint32_t byte_class = 0; byte_class < table.num_classes; ++byte_class) {
        const uint8_t same = merged.of[byte_class];
        ASSERT_EQ(merged.of[same], same);
        num_classes += 1;
        num_merged += same != byte_class ? 1 : 0;
        for (const Id id : both) {
          const Id derivative = table.Derive(id, byte_class);
          ASSERT_EQ(derivative, table.Derive(id, same)) << round;
          if (derivative != kNothingId) {
            ASSERT_TRUE(table.FirstBytes(id).Contains(table.byte_of_class[byte_class])) << round;
          }
        }
      }
      for (Id& id : both) id = table.Derive(id, random() % table.num_classes);
    }
  }
  EXPECT_GT(num_merged, num_classes / 3);
}

// A state of an automaton tells bytes apart by where they lead.
TEST(ByteClasses, OfAnAutomatonAreThoseOfItsNextStates) {
  ByteAutomaton automaton;
  automaton.num_classes = 4;
  for (uint8_t digit = '0'; digit <= '9'; ++digit) {
    automaton.class_of_byte[digit] = static_cast<uint8_t>(1 + digit % 3);
  }
  const uint32_t none = ByteAutomaton::kNoState;
  automaton.next = {none, 1, 1, 0, none, none, 1, 0};
  automaton.accepting = {false, true};
  ExpressionTable table{ExpressionLimits()};
  const Id id = table.Automaton(std::make_shared<const ByteAutomaton>(automaton));
  MergedClasses merged;
  table.MergeClasses({&id, 1}, &merged);
  const auto merged_of = [&](uint8_t byte) { return merged.of[table.class_of[byte]]; };
  EXPECT_EQ(merged_of('0'), merged_of('1'));
  EXPECT_NE(merged_of('0'), merged_of('2'));
  EXPECT_NE(merged_of('0'), merged_of('x'));
}

}  // namespace
}  // namespace minisgl::grammar

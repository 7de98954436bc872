// Hashes of blobs, against those that sha1sum, sha256sum and git hash-object print.
#include "hub/blob_hash.h"

#include <gtest/gtest.h>

#include <string>

namespace minisgl::hub {
namespace {

std::string Sha1Of(const std::string& text, size_t piece) {
  Sha1 hash;
  for (size_t i = 0; i < text.size(); i += piece) hash.Add(text.substr(i, piece));
  return hash.FinishHex();
}

std::string HashOf(const std::string& expected, const std::string& text) {
  BlobHash hash(expected, text.size());
  hash.Add(text);
  return hash.FinishHex();
}

// The examples of FIPS 180, in pieces that end inside blocks and at their ends.
TEST(BlobHashTest, Sha1HasTheStandardsValues) {
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  for (const size_t piece : {1u, 7u, 64u, 1000u}) {
    EXPECT_EQ(Sha1Of("", piece), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    EXPECT_EQ(Sha1Of("abc", piece), "a9993e364706816aba3e25717850c26c9cd0d89d");
    EXPECT_EQ(Sha1Of(two_blocks, piece), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    EXPECT_EQ(Sha1Of(std::string(1'000'000, 'a'), piece * 9),
              "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
  }
}

TEST(BlobHashTest, FortyDigitsAreGitsNameOfABlob) {
  const std::string empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
  EXPECT_EQ(HashOf(empty, ""), empty);
  const std::string hello = "ce013625030ba8dba906f756967f9e9ca394464a";
  EXPECT_EQ(HashOf(hello, "hello\n"), hello);
  EXPECT_NE(HashOf(hello, "hellp\n"), hello);
}

TEST(BlobHashTest, SixtyFourDigitsAreTheSha256) {
  const std::string abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(HashOf(abc, "abc"), abc);
}

TEST(BlobHashTest, OtherTextsAreNoHashes) {
  EXPECT_TRUE(IsBlobHash(std::string(40, 'a')));
  EXPECT_TRUE(IsBlobHash(std::string(64, '0')));
  for (const std::string& text :
       {std::string(), std::string(41, 'a'), std::string(40, 'A'), std::string(40, '/'),
        std::string(39, 'a') + "g", "../" + std::string(37, 'a')}) {
    EXPECT_FALSE(IsBlobHash(text)) << text;
  }
}

}  // namespace
}  // namespace minisgl::hub

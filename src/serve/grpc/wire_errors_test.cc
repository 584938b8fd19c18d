// Malformed, too large or too deep messages are refused.
#include <gtest/gtest.h>
#include <serve/grpc/spec_decoding.pb.h>

#include <limits>

#include "serve/grpc/rpc_status.h"
#include "serve/grpc/wire.h"

namespace talon {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

const WireLimits kTightLimits = {
    .max_tree_nodes = 8, .max_tree_depth = 4, .max_prompt_tokens = 10, .vocab_size = 100};

// The detail of the failure, or "OK".
std::string DetailOf(const specsplit::VerifyRequest& message) {
  const auto call = DecodeVerifyCall(message.SerializeAsString(), kTightLimits);
  if (call.ok()) return "OK";
  EXPECT_EQ(call.status().code(), StatusCode::kInvalidArgument);
  return std::string(StatusDetail(call.status()));
}

specsplit::TokenNode* AddNode(specsplit::VerifyRequest* message, int32_t token) {
  specsplit::TokenNode* node = message->add_draft_tree();
  node->set_token_id(token);
  return node;
}

// A chain of `depth` nodes, written by hand: protobuf cannot write a deep one without recursion.
std::string DeepChain(int depth) {
  std::string node = {0x08, 0x01};
  const auto varint = [](size_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    return bytes + static_cast<char>(value);
  };
  for (int i = 1; i < depth; ++i) {
    std::string parent = {0x08, 0x01, 0x1a};
    parent += varint(node.size());
    node = parent + node;
  }
  return std::string(1, 0x1a) + varint(node.size()) + node;
}

TEST(WireErrorsTest, BothTreeFormsAreAnError) {
  specsplit::VerifyRequest message;
  AddNode(&message, 1);
  message.mutable_flat_tree()->add_token_ids(1);
  message.mutable_flat_tree()->add_parents(-1);
  EXPECT_EQ(DetailOf(message), "TREE_INVALID");
}

TEST(WireErrorsTest, LimitsOfPromptsAndTrees) {
  specsplit::VerifyRequest message;
  for (int i = 0; i < 10; ++i) message.add_prompt_token_ids(1);
  for (int i = 0; i < 8; ++i) AddNode(&message, i);
  EXPECT_EQ(DetailOf(message), "OK");
  message.add_prompt_token_ids(1);
  EXPECT_EQ(DetailOf(message), "PROMPT_TOO_LONG");
  message.mutable_prompt_token_ids()->RemoveLast();
  AddNode(&message, 8);
  EXPECT_EQ(DetailOf(message), "TREE_TOO_LARGE");
  message.clear_draft_tree();
  for (int i = 0; i < 11; ++i) message.add_new_token_ids(1);
  EXPECT_EQ(DetailOf(message), "PROMPT_TOO_LONG");
  message.clear_new_token_ids();
  for (int i = 0; i < 9; ++i) {
    message.mutable_flat_tree()->add_token_ids(i);
    message.mutable_flat_tree()->add_parents(-1);
  }
  EXPECT_EQ(DetailOf(message), "TREE_TOO_LARGE");
}

TEST(WireErrorsTest, DepthLimit) {
  EXPECT_TRUE(DecodeVerifyCall(DeepChain(4), kTightLimits).ok());
  for (const int depth : {5, 64, 99, 100, 101, 1000, 20000}) {
    const auto call = DecodeVerifyCall(DeepChain(depth), kTightLimits);
    EXPECT_EQ(StatusDetail(call.status()), "TREE_INVALID") << depth;
  }
  specsplit::VerifyRequest flat;
  for (int i = 0; i < 5; ++i) {
    flat.mutable_flat_tree()->add_token_ids(i);
    flat.mutable_flat_tree()->add_parents(i - 1);
  }
  EXPECT_EQ(DetailOf(flat), "TREE_INVALID");
  // The deepest tree that is allowed by default also passes protobuf's own limit.
  EXPECT_TRUE(DecodeVerifyCall(DeepChain(64), WireLimits{}).ok());
  EXPECT_FALSE(DecodeVerifyCall(DeepChain(65), WireLimits{}).ok());
}

TEST(WireErrorsTest, AMillionNodesAreRefusedBeforeParsing) {
  std::string wide;
  for (int i = 0; i < 1000000; ++i) wide += std::string{0x1a, 0x02, 0x08, 0x01};
  EXPECT_EQ(StatusDetail(DecodeVerifyCall(wide, WireLimits{}).status()), "TREE_TOO_LARGE");
}

TEST(WireErrorsTest, TokensOutOfRange) {
  for (const int32_t token : {-1, 100, INT32_MAX, INT32_MIN}) {
    specsplit::VerifyRequest prompt;
    prompt.add_prompt_token_ids(token);
    EXPECT_EQ(DetailOf(prompt), "TOKEN_OUT_OF_RANGE");
    specsplit::VerifyRequest delta;
    delta.add_new_token_ids(token);
    EXPECT_EQ(DetailOf(delta), "TOKEN_OUT_OF_RANGE");
    specsplit::VerifyRequest stop;
    stop.add_stop_token_ids(token);
    EXPECT_EQ(DetailOf(stop), "TOKEN_OUT_OF_RANGE");
    specsplit::VerifyRequest tree;
    AddNode(&tree, 1)->add_children()->set_token_id(token);
    EXPECT_EQ(DetailOf(tree), "TOKEN_OUT_OF_RANGE");
    specsplit::VerifyRequest draw;
    AddNode(&draw, 1)->add_top_k_token_ids(token);
    draw.mutable_draft_tree(0)->add_top_k_probs(1);
    EXPECT_EQ(DetailOf(draw), "TOKEN_OUT_OF_RANGE");
  }
}

TEST(WireErrorsTest, CyclesAndOtherBadParents) {
  for (const auto& parents : std::vector<std::vector<int>>{
           {0}, {1, 0}, {-1, 1}, {-1, 2, 1}, {-2}, {-1, INT32_MAX}, {-1, INT32_MIN}}) {
    specsplit::VerifyRequest message;
    for (size_t i = 0; i < parents.size(); ++i) {
      message.mutable_flat_tree()->add_token_ids(static_cast<int>(i));
      message.mutable_flat_tree()->add_parents(parents[i]);
    }
    EXPECT_EQ(DetailOf(message), "TREE_INVALID");
  }
}

TEST(WireErrorsTest, FlatArraysMustFit) {
  specsplit::VerifyRequest message;
  message.mutable_flat_tree()->add_parents(-1);
  EXPECT_EQ(DetailOf(message), "TREE_INVALID");
  message.mutable_flat_tree()->add_token_ids(1);
  EXPECT_EQ(DetailOf(message), "OK");  // log-probs may be left out
  message.mutable_flat_tree()->add_log_probs(0);
  message.mutable_flat_tree()->add_log_probs(0);
  EXPECT_EQ(DetailOf(message), "TREE_INVALID");
}

TEST(WireErrorsTest, RepeatedSiblings) {
  specsplit::VerifyRequest message;
  AddNode(&message, 1)->add_children()->set_token_id(1);
  EXPECT_EQ(DetailOf(message), "OK");
  AddNode(&message, 1);
  EXPECT_EQ(DetailOf(message), "TREE_INVALID");
}

TEST(WireErrorsTest, BadProbabilities) {
  for (const float log_prob : {kNan, kInf, 0.5f}) {
    specsplit::VerifyRequest message;
    AddNode(&message, 1)->set_log_prob(log_prob);
    EXPECT_EQ(DetailOf(message), "TREE_INVALID") << log_prob;
  }
  specsplit::VerifyRequest impossible;
  AddNode(&impossible, 1)->set_log_prob(-kInf);
  EXPECT_EQ(DetailOf(impossible), "OK");
  for (const float prob : {kNan, kInf, -0.5f, 1.5f}) {
    specsplit::VerifyRequest message;
    AddNode(&message, 1)->add_top_k_token_ids(1);
    message.mutable_draft_tree(0)->add_top_k_probs(prob);
    EXPECT_EQ(DetailOf(message), "TREE_INVALID") << prob;
  }
}

TEST(WireErrorsTest, BadDraws) {
  specsplit::VerifyRequest message;
  AddNode(&message, 1)->add_top_k_token_ids(1);
  EXPECT_EQ(DetailOf(message), "TREE_INVALID");  // no probability
  specsplit::TokenNode* node = message.mutable_draft_tree(0);
  node->add_top_k_probs(0.5f);
  EXPECT_EQ(DetailOf(message), "OK");
  node->add_top_k_token_ids(1);
  node->add_top_k_probs(0.5f);
  EXPECT_EQ(DetailOf(message), "TREE_INVALID");  // the same token twice
}

// Before they are parsed, whichever of the two lists is too long.
TEST(WireErrorsTest, LongDrawsAreCounted) {
  specsplit::VerifyRequest tokens;
  AddNode(&tokens, 1);
  specsplit::VerifyRequest probs = tokens;
  for (int i = 0; i < 1025; ++i) {
    tokens.mutable_draft_tree(0)->add_top_k_token_ids(2);
    probs.mutable_draft_tree(0)->add_top_k_probs(0.5f);
  }
  for (const auto& message : {tokens, probs}) {
    EXPECT_EQ(DecodeVerifyCall(message.SerializeAsString(), kTightLimits).status().message(),
              "TREE_INVALID: 1025 entries of top_k, limit 1024");
  }
}

TEST(WireErrorsTest, BadSampling) {
  for (const float temperature : {kNan, kInf, -1.0f}) {
    specsplit::VerifyRequest message;
    message.set_temperature(temperature);
    EXPECT_EQ(DetailOf(message), "BAD_TEMPERATURE") << temperature;
    specsplit::DraftRequest draft;
    draft.set_temperature(temperature);
    const auto call = DecodeDraftCall(draft.SerializeAsString(), kTightLimits);
    EXPECT_EQ(StatusDetail(call.status()), "BAD_TEMPERATURE");
  }
  const auto fails = [](auto set) {
    specsplit::VerifyRequest message;
    set(&message);
    return !DecodeVerifyCall(message.SerializeAsString(), kTightLimits).ok();
  };
  EXPECT_TRUE(fails([](auto* m) { m->set_top_k(-1); }));
  EXPECT_TRUE(fails([](auto* m) { m->set_top_p(1.5f); }));
  EXPECT_TRUE(fails([](auto* m) { m->set_top_p(kNan); }));
  EXPECT_TRUE(fails([](auto* m) { m->set_min_p(-0.5f); }));
  EXPECT_TRUE(fails([](auto* m) { m->set_acceptance("always"); }));
  EXPECT_TRUE(fails([](auto* m) { m->set_expected_prefix_length(-1); }));
  EXPECT_TRUE(fails([](auto* m) { m->set_session_id(std::string(257, 'x')); }));
  EXPECT_TRUE(fails([](auto* m) { m->set_request_id(std::string(257, 'x')); }));
  EXPECT_FALSE(fails([](auto* m) { m->set_acceptance("match"); }));
}

TEST(WireErrorsTest, DraftCallLimits) {
  const auto fails = [](auto set) {
    specsplit::DraftRequest message;
    set(&message);
    return !DecodeDraftCall(message.SerializeAsString(), kTightLimits).ok();
  };
  EXPECT_TRUE(fails([](auto* m) { m->set_max_draft_len(65); }));
  EXPECT_TRUE(fails([](auto* m) { m->set_max_draft_len(-1); }));
  EXPECT_TRUE(fails([](auto* m) { m->set_num_beams(17); }));
  EXPECT_TRUE(fails([](auto* m) { m->set_max_nodes(9); }));
  EXPECT_FALSE(fails([](auto* m) { m->set_max_nodes(8); }));
}

TEST(WireErrorsTest, UnknownFields) {
  std::string unknown;
  for (int i = 0; i < 10; ++i) unknown += std::string{'\xf8', 0x07, 0x01};
  EXPECT_TRUE(DecodeVerifyCall(unknown, kTightLimits).ok());
  for (int i = 0; i < 10000; ++i) unknown += std::string{'\xf8', 0x07, 0x01};
  EXPECT_FALSE(DecodeVerifyCall(unknown, kTightLimits).ok());
}

}  // namespace
}  // namespace talon

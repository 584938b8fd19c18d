#include "model/heads/eagle_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "base/file.h"
#include "base/json.h"
#include "compute/test_device.h"
#include "model/heads/eagle_layout.h"
#include "model/heads/test_eagle.h"

namespace talon {
namespace {

class Eagle3Loading : public testing::Test {
 protected:
  Eagle3Loading() : bed_(NewTestBackend(1)) {}

  // The error's message, with the directory removed; "" if the head loads.
  std::string Error(const TestHead& head) {
    const TempDirectory dir;
    head.Write(dir.path());
    const auto loaded = EagleHead::Load(dir.path(), *bed_.target(), bed_.backend(), {});
    if (loaded.ok()) return "";
    std::string message = loaded.status().message();
    if (const size_t at = message.find(dir.path()); at != std::string::npos) {
      message.erase(at, dir.path().size() + 1);
    }
    return message;
  }
  std::string ErrorAfter(const std::function<void(TestHead*)>& change) {
    TestHead head = MakeTestHead();
    change(&head);
    return Error(head);
  }
  // Loads with these config keys but the tensors of a plain head.
  std::string ErrorWith(const Json& changes) {
    return ErrorAfter([&](TestHead* head) { head->config.update(changes); });
  }

  EagleTestBed bed_;
};

void SetOffset(TestHead* head, size_t draft, int64_t offset) {
  std::memcpy(head->Find("d2t")->bytes.data() + draft * sizeof(offset), &offset, sizeof(offset));
}

OwnedTensor Mask(int size, int marked) {
  OwnedTensor mask{.name = "t2d", .dtype = DType::kBool, .shape = {size}, .bytes = {}};
  mask.bytes.assign(static_cast<size_t>(size), 0);
  std::fill_n(mask.bytes.begin(), marked, 1);
  return mask;
}

TEST_F(Eagle3Loading, Spellings) {
  EXPECT_EQ(ErrorAfter([](TestHead*) {}), "");
  EXPECT_EQ(ErrorAfter([](TestHead* head) { head->RenamePrefix("midlayer.", "layers.0."); }), "");
  EXPECT_EQ(ErrorAfter([](TestHead* head) { head->RenamePrefix("", "model."); }), "");
  EXPECT_EQ(ErrorAfter([](TestHead* head) { head->RenamePrefix("midlayer.", "model.layers.0."); }),
            "");
}

TEST_F(Eagle3Loading, MixedSpellingsAreRefused) {
  EXPECT_EQ(ErrorAfter([](TestHead* head) {
              head->Rename("midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight");
            }),
            "model.safetensors: tensors layers.0.hidden_norm.weight and "
            "midlayer.input_layernorm.weight: both spellings of the layer in one file");
  EXPECT_EQ(ErrorAfter([](TestHead* head) { head->Add("model.norm.weight", {32}); }),
            "model.safetensors: tensors model.norm.weight and norm.weight are two spellings of "
            "one");
  EXPECT_EQ(ErrorAfter([](TestHead* head) { head->Add("layers.1.hidden_norm.weight", {32}); }),
            "model.safetensors: tensor layers.1.hidden_norm.weight: an EAGLE head has one layer, "
            "number 0");
}

TEST_F(Eagle3Loading, FeatureNormSpellings) {
  Json config = MakeTestHead().config;
  config["fc_norm"] = true;
  TestHead head = MakeTestHead(config);
  EXPECT_EQ(Error(head), "");
  TestHead legacy = head;
  legacy.config.erase("fc_norm");
  legacy.config["use_aux_norm"] = true;
  legacy.Rename("fc_norm.0.weight", "aux_norm_low.weight");
  legacy.Rename("fc_norm.1.weight", "aux_norm_mid.weight");
  legacy.Rename("fc_norm.2.weight", "aux_norm_high.weight");
  EXPECT_EQ(Error(legacy), "");
  legacy.Remove("aux_norm_mid.weight");
  EXPECT_EQ(Error(legacy), "model.safetensors: tensor aux_norm_mid.weight is missing");
  head.Add("aux_norm_low.weight", {32});
  EXPECT_EQ(Error(head),
            "model.safetensors: tensor aux_norm_low.weight is not accounted for by config.json "
            "(use_aux_norm)");
}

TEST_F(Eagle3Loading, MissingTensors) {
  for (const OwnedTensor& tensor : MakeTestHead().tensors) {
    if (tensor.name == "lm_head.weight" || tensor.name == "d2t") continue;
    EXPECT_EQ(ErrorAfter([&](TestHead* head) { head->Remove(tensor.name); }),
              "model.safetensors: tensor " + tensor.name + " is missing");
  }
  EXPECT_EQ(ErrorAfter([](TestHead* head) { head->Remove("lm_head.weight"); }),
            "model.safetensors: tensor lm_head.weight is missing, and the target's is [96, 32] "
            "instead of [40, 32]");
  EXPECT_EQ(ErrorAfter([](TestHead* head) { head->Remove("d2t"); }),
            "model.safetensors: tensor d2t is missing, but draft_vocab_size 40 is below vocab_size "
            "96");
  EXPECT_EQ(ErrorAfter([](TestHead* head) {
              head->RenamePrefix("midlayer.", "layers.0.");
              head->Remove("layers.0.mlp.up_proj.weight");
            }),
            "model.safetensors: tensor layers.0.mlp.up_proj.weight is missing");
  Json config = MakeTestHead().config;
  config["hidden_size"] = 48;
  config["target_hidden_size"] = 32;
  TestHead other_size = MakeTestHead(config);
  other_size.Remove("embed_tokens.weight");
  EXPECT_EQ(Error(other_size),
            "model.safetensors: tensor embed_tokens.weight is missing, and the target's has size "
            "32 instead of 48");
}

TEST_F(Eagle3Loading, OptionsNeedTheirTensors) {
  const auto missing = [](const char* name) {
    return fmt::format("model.safetensors: tensor {} is missing", name);
  };
  EXPECT_EQ(ErrorWith({{"bias", true}}), missing("fc.bias"));
  EXPECT_EQ(ErrorWith({{"norm_before_fc", true}}), missing("input_norm.weight"));
  EXPECT_EQ(ErrorWith({{"fc_norm", true}}), missing("fc_norm.0.weight"));
  EXPECT_EQ(ErrorWith({{"attention_bias", true}}), missing("midlayer.self_attn.q_proj.bias"));
  EXPECT_EQ(ErrorWith({{"mlp_bias", true}}), missing("midlayer.mlp.gate_proj.bias"));
  // Only the output projection's bias is optional.
  Json config = MakeTestHead().config;
  config["attention_bias"] = true;
  TestHead head = MakeTestHead(config);
  head.Remove("midlayer.self_attn.o_proj.bias");
  EXPECT_EQ(Error(head), "");
}

TEST_F(Eagle3Loading, TensorsNeedTheirOptions) {
  const auto error = [this](const char* name) {
    return ErrorAfter([&](TestHead* head) { head->Add(name, {32}); });
  };
  const auto unaccounted = [](const char* name, const char* option) {
    return fmt::format("model.safetensors: tensor {} is not accounted for by config.json ({})",
                       name, option);
  };
  for (const auto& [name, option] : {std::pair{"fc.bias", "bias"},
                                     {"input_norm.weight", "norm_before_fc"},
                                     {"fc_norm.0.weight", "fc_norm"},
                                     {"midlayer.self_attn.q_proj.bias", "attention_bias"},
                                     {"midlayer.mlp.down_proj.bias", "mlp_bias"}}) {
    EXPECT_EQ(error(name), unaccounted(name, option));
  }
  EXPECT_EQ(error("midlayer.self_attn.q_norm.weight"),
            "model.safetensors: tensor midlayer.self_attn.q_norm.weight is not part of an EAGLE-3 "
            "layer");
  for (const char* name : {"mask_hidden", "verifier_norm.weight", "rotary_emb.inv_freq",
                           "midlayer.self_attn.rotary_emb.inv_freq"}) {
    EXPECT_EQ(error(name), "") << name << " is ignored";
  }
}

TEST_F(Eagle3Loading, ShapesAreChecked) {
  EXPECT_EQ(ErrorWith({{"eagle_aux_hidden_state_layer_ids", {1, 2}}}),
            "model.safetensors: tensor fc.weight has shape [32, 96], 2 captured layers of size 32 "
            "need [32, 64]");
  EXPECT_EQ(ErrorWith({{"intermediate_size", 64}}),
            "model.safetensors: tensor midlayer.mlp.gate_proj.weight has shape [48, 32], "
            "config.json says [64, 32]");
  EXPECT_EQ(ErrorWith({{"draft_vocab_size", 48}}),
            "model.safetensors: tensor d2t has shape [40], expected [48]");
  EXPECT_EQ(ErrorAfter([](TestHead* head) {
              head->Add("embed_tokens.weight", {95, 32});
            }),
            "model.safetensors: tensor embed_tokens.weight has shape [95, 32], config.json says "
            "[96, 32]");
}

TEST_F(Eagle3Loading, TensorsOfEagle1AreRefused) {
  EXPECT_EQ(ErrorAfter([](TestHead* head) {
              head->RenamePrefix("midlayer.", "layers.0.");
              head->Remove("layers.0.hidden_norm.weight");
              head->Remove("fc.weight");
              head->Add("fc.weight", {32, 64});
            }),
            "model.safetensors: the tensors are those of an EAGLE-1 or EAGLE-2 head (fc.weight "
            "[32, 64], no hidden_norm), config.json is one of an EAGLE-3 head");
}

TEST(Eagle3, BadD2tRejected) {
  EagleTestBed bed(NewTestBackend(1));
  const auto error = [&](size_t draft, int64_t offset) {
    TestHead head = MakeTestHead();
    SetOffset(&head, draft, offset);
    const auto loaded = bed.Load(head);
    const std::string message = loaded.ok() ? "" : loaded.status().message();
    return message.substr(message.find("d2t"));
  };
  // The test's d2t maps i to 2 * i.
  EXPECT_EQ(error(7, 3), "d2t maps draft ids 5 and 7 both to 10");
  EXPECT_EQ(error(7, 89), "d2t moves draft id 7 by 89, out of the vocabulary of 96");
  EXPECT_EQ(error(7, -8), "d2t moves draft id 7 by -8, out of the vocabulary of 96");
  EXPECT_EQ(error(7, INT64_MAX),
            "d2t moves draft id 7 by 9223372036854775807, out of the vocabulary of 96");
  EXPECT_EQ(error(7, INT64_MIN),
            "d2t moves draft id 7 by -9223372036854775808, out of the vocabulary of 96");
}

TEST_F(Eagle3Loading, VocabularyMaps) {
  auto head = bed_.Load(MakeTestHead());
  ASSERT_TRUE(head.ok()) << head.status().message();
  ASSERT_EQ((*head)->target_ids().size(), 40u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ((*head)->target_ids()[static_cast<size_t>(i)], 2 * i);

  Json config = MakeTestHead().config;
  config["draft_vocab_size"] = 96;
  TestHead whole = MakeTestHead(config);
  whole.Remove("d2t");
  head = bed_.Load(whole);
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->target_ids()[95], 95) << "the identity";

  EXPECT_EQ(ErrorAfter([](TestHead* one) { one->tensors.push_back(Mask(96, 40)); }), "");
  EXPECT_EQ(ErrorAfter([](TestHead* one) { one->tensors.push_back(Mask(96, 41)); }),
            "model.safetensors: t2d marks 41 tokens, draft_vocab_size is 40");
  EXPECT_EQ(ErrorAfter([](TestHead* one) { one->tensors.push_back(Mask(95, 40)); }),
            "model.safetensors: tensor t2d has shape [95], expected [96]");
  EXPECT_EQ(ErrorAfter([](TestHead* one) { one->Find("d2t")->dtype = DType::kF64; }),
            "model.safetensors: tensor d2t has dtype f64, expected i64");
}

TEST_F(Eagle3Loading, ShardedAndMissingFiles) {
  const TempDirectory dir;
  const TestHead head = MakeTestHead();
  head.Write(dir.path());
  std::filesystem::remove(dir.path() + "/model.safetensors");
  const auto load = [&] {
    const auto loaded = EagleHead::Load(dir.path(), *bed_.target(), bed_.backend(), {});
    return loaded.ok() ? std::string() : loaded.status().message();
  };
  EXPECT_NE(load(), "");
  ASSERT_TRUE(WriteFile(dir.path() + "/pytorch_model.bin", "x").ok());
  EXPECT_EQ(load(), dir.path() +
                        ": has pytorch_model.bin but no model.safetensors; only safetensors are "
                        "read");
  const auto half = static_cast<int64_t>(head.tensors.size() / 2);
  const std::vector<OwnedTensor> first(head.tensors.begin(), head.tensors.begin() + half);
  const std::vector<OwnedTensor> second(head.tensors.begin() + half, head.tensors.end());
  ASSERT_TRUE(WriteTensors(dir.path() + "/a.safetensors", first).ok());
  ASSERT_TRUE(WriteTensors(dir.path() + "/b.safetensors", second).ok());
  Json index;
  for (const OwnedTensor& tensor : first) index["weight_map"][tensor.name] = "a.safetensors";
  for (const OwnedTensor& tensor : second) index["weight_map"][tensor.name] = "b.safetensors";
  ASSERT_TRUE(WriteFile(dir.path() + "/model.safetensors.index.json", index.dump()).ok());
  EXPECT_EQ(load(), "");
}

TEST_F(Eagle3Loading, OptionsOfTheCaller) {
  EXPECT_EQ(bed_.Load(MakeTestHead(), {.max_rows = 0}).status().message(),
            "eagle3: max_rows: 0, must be 1 or more");
  const auto head = bed_.Load(MakeTestHead(), {.capture_layers = {1, 2, 3}});
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->config().capture_layers, (std::vector<int>{1, 2, 3}));
  EXPECT_GT((*head)->weight_bytes(), 0u);
}

}  // namespace
}  // namespace talon

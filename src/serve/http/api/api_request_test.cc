#include "serve/http/api/api_request.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/json.h"

namespace talon {
namespace {

const ApiDefaults kDefaults{.drafter = "SUFFIX"};

std::optional<ApiError> ParseBody(const std::string& body, ApiRequest* request,
                                  Endpoint endpoint = Endpoint::kCompletions) {
  return ParseApiRequest(body, endpoint, kDefaults, request);
}

// The error of a completion request with this in it.
ApiError ErrorOfMember(const std::string& member) {
  ApiRequest request;
  const auto error = ParseBody("{\"prompt\": \"x\", " + member + "}", &request);
  EXPECT_TRUE(error.has_value()) << member;
  return error.value_or(ApiError{});
}

TEST(ApiRequest, DefaultsAreOpenAis) {
  ApiRequest request;
  ASSERT_FALSE(ParseBody(R"({"prompt": "Hi"})", &request));
  EXPECT_EQ(request.sampling.temperature, 1.0f);
  EXPECT_EQ(request.sampling.max_tokens, 16);
  EXPECT_FALSE(request.max_tokens_given);
  EXPECT_FALSE(request.sampling.seed.has_value());
  EXPECT_EQ(request.sampling.logprobs, -1);
  EXPECT_TRUE(request.speculate);
  EXPECT_EQ(request.n, 1);
}

TEST(ApiRequest, ReadsEveryParameter) {
  ApiRequest request;
  const auto error = ParseBody(R"({"model": "m", "prompt": "a", "max_tokens": 7, "temperature": 0.5,
      "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 9, "stop": ["x", "y"], "n": 3, "logprobs": 2,
      "frequency_penalty": 0.25, "presence_penalty": -0.5, "repetition_penalty": 1.25,
      "logit_bias": {"20": -1, "3": 2.5}, "stream": true, "stream_options": {"include_usage": true},
      "ignore_eos": true, "min_tokens": 2, "stop_token_ids": [5], "user": "u", "echo": false,
      "speculative": {"algorithm": "suffix", "nodes": 6, "trace": true}})",
                               &request);
  ASSERT_FALSE(error) << error->message;
  const SamplingParams& sampling = request.sampling;
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(sampling.max_tokens, 7);
  EXPECT_TRUE(request.max_tokens_given);
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.min_p, 0.1f);
  EXPECT_EQ(sampling.seed, 9u);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(request.n, 3);
  EXPECT_EQ(sampling.logprobs, 2);
  EXPECT_EQ(sampling.frequency_penalty, 0.25f);
  EXPECT_EQ(sampling.presence_penalty, -0.5f);
  EXPECT_EQ(sampling.repetition_penalty, 1.25f);
  const std::vector<std::pair<int32_t, float>> biases = {{3, 2.5f}, {20, -1.0f}};
  EXPECT_EQ(sampling.logit_bias, biases);  // ascending, as the sampler wants them
  EXPECT_TRUE(request.stream && request.include_usage && sampling.ignore_eos && request.trace);
  EXPECT_EQ(sampling.min_tokens, 2);
  EXPECT_EQ(sampling.stop_token_ids, (std::vector<int32_t>{5}));
  EXPECT_EQ(request.max_draft_nodes, 6);
  EXPECT_TRUE(request.speculate);
}

TEST(ApiRequest, NamesOfLlamaCpp) {
  ApiRequest request;
  ASSERT_FALSE(ParseBody(R"({"prompt": "a", "n_predict": 7, "repeat_penalty": 1.25})", &request));
  EXPECT_EQ(request.sampling.max_tokens, 7);
  EXPECT_TRUE(request.max_tokens_given);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.25f);
  ASSERT_FALSE(ParseBody(R"({"prompt": "a", "n_predict": -1})", &request));
  EXPECT_EQ(request.sampling.max_tokens, std::numeric_limits<int>::max());
  ASSERT_FALSE(ParseBody(R"({"prompt": "a", "n_predict": -1, "max_tokens": 3})", &request));
  EXPECT_EQ(request.sampling.max_tokens, 3);
}

TEST(ApiRequest, ASeedOfMinusOneIsRandomAsOnTheCommandLine) {
  ApiRequest request;
  ASSERT_FALSE(ParseBody(R"({"prompt": "a", "seed": -1})", &request));
  EXPECT_FALSE(request.sampling.seed.has_value());
  for (const int seed : {0, 5, -2}) {
    ASSERT_FALSE(ParseBody(fmt::format(R"({{"prompt": "a", "seed": {}}})", seed), &request));
    EXPECT_EQ(request.sampling.seed, static_cast<uint64_t>(seed));
  }
}

TEST(ApiRequest, BadWordsAreTexts) {
  ApiRequest request;
  ASSERT_FALSE(ParseBody(R"({"prompt": "a", "bad_words": ["x", " y"]})", &request));
  EXPECT_EQ(request.bad_words, (std::vector<std::string>{"x", " y"}));
  ASSERT_FALSE(ParseBody(R"({"input": "a", "bad_words": []})", &request, Endpoint::kResponses));
  EXPECT_TRUE(request.bad_words.empty());
}

TEST(ApiRequest, TheParameterOfAGrammarIsKept) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("response_format": {"type": "json_object"})", "response_format"},
      {R"("structured_outputs": {"regex": "a"})", "structured_outputs.regex"},
      {R"("guided_choice": ["a"])", "guided_choice"},
  };
  for (const auto& [member, param] : cases) {
    ApiRequest request;
    ASSERT_FALSE(ParseBody(fmt::format(R"({{"prompt": "a", {}}})", member), &request));
    EXPECT_EQ(request.grammar_param, param);
  }
}

TEST(ApiRequest, PromptsOfEveryKind) {
  ApiRequest request;
  ASSERT_FALSE(ParseBody(R"({"prompt": [1, 2]})", &request));
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(std::get<std::vector<int32_t>>(request.prompts[0]), (std::vector<int32_t>{1, 2}));
  ASSERT_FALSE(ParseBody(R"({"prompt": ["a", "b"]})", &request));
  ASSERT_EQ(request.prompts.size(), 2u);
  EXPECT_EQ(std::get<std::string>(request.prompts[1]), "b");
  ASSERT_FALSE(ParseBody(R"({"prompt": [[1], [2, 3]]})", &request));
  ASSERT_EQ(request.prompts.size(), 2u);
  EXPECT_EQ(std::get<std::vector<int32_t>>(request.prompts[1]), (std::vector<int32_t>{2, 3}));
  for (const char* bad : {"{}", R"({"prompt": 5})", R"({"prompt": []})", R"({"prompt": [[]]})",
                          R"({"prompt": [1, "a"]})", R"({"prompt": [1, -1]})",
                          R"({"prompt": [1.5]})", R"({"prompt": [99999999999]})"}) {
    const auto error = ParseBody(bad, &request);
    ASSERT_TRUE(error) << bad;
    EXPECT_EQ(error->param, "prompt") << bad;
    EXPECT_EQ(error->status, 400) << bad;
  }
}

TEST(ApiRequest, SpeculationOff) {
  ApiRequest request;
  ASSERT_FALSE(ParseBody(R"({"prompt": "x", "speculative": {"off": true}})", &request));
  EXPECT_FALSE(request.speculate);
  ASSERT_FALSE(ParseBody(R"({"prompt": "x", "speculative": {"algorithm": "NONE"}})", &request));
  EXPECT_EQ(request.drafter, "NONE");
  const ApiError error = ErrorOfMember(R"("speculative": {"algorithm": "EAGLE3"})");
  EXPECT_EQ(error.param, "speculative.algorithm");
  EXPECT_NE(error.message.find("SUFFIX"), std::string::npos);
}

TEST(ApiRequest, SpeculationByOneOfTheDrafters) {
  const ApiDefaults merged{.drafter = "EAGLE3,SUFFIX"};
  const auto parse = [&](const std::string& algorithm) {
    ApiRequest request;
    return ParseApiRequest(R"({"prompt": "x", "speculative": {"algorithm": ")" + algorithm + "\"}}",
                           Endpoint::kCompletions, merged, &request);
  };
  EXPECT_FALSE(parse("suffix"));
  EXPECT_FALSE(parse("SUFFIX,EAGLE3"));
  EXPECT_TRUE(parse("NGRAM"));
  EXPECT_TRUE(parse("EAGLE3,NGRAM"));
  EXPECT_TRUE(parse("X"));
}

TEST(ApiRequest, SpecPvOfARequest) {
  ApiRequest request;
  ASSERT_FALSE(ParseBody(
      R"({"prompt": "x", "speculative": {"specpv": {"mode": "fast", "budget_tokens": 9, "error_target": 0.25}}})",
      &request));
  EXPECT_EQ(request.specpv.mode, SpecPvMode::kFast);
  EXPECT_EQ(request.specpv.budget_tokens, 9);
  EXPECT_EQ(request.specpv.error_target, 0.25f);
  EXPECT_FALSE(request.specpv.off);
  ASSERT_FALSE(
      ParseBody(R"({"prompt": "x", "speculative": {"specpv": {"mode": "off"}}})", &request));
  EXPECT_TRUE(request.specpv.off);
}

TEST(ApiRequest, EchoAndPromptLogprobs) {
  ApiRequest request;
  ASSERT_FALSE(ParseBody(R"({"prompt": "x", "echo": true, "max_tokens": 0})", &request));
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(request.prompt_outputs.logprobs, -1);
  EXPECT_EQ(request.sampling.max_tokens, 0);
  ASSERT_FALSE(ParseBody(R"({"prompt": "x", "echo": true, "logprobs": 2})", &request));
  EXPECT_EQ(request.prompt_outputs.logprobs, 2);
  ASSERT_FALSE(ParseBody(R"({"prompt": "x", "prompt_logprobs": 1, "max_tokens": 0})", &request));
  EXPECT_EQ(request.prompt_outputs.logprobs, 1);
  EXPECT_EQ(request.sampling.logprobs, -1);
  EXPECT_EQ(ErrorOfMember(R"("max_tokens": 0)").param, "max_tokens");
}

TEST(ApiRequest, ParametersOfOtherServers) {
  ApiRequest request;
  // Honoured.
  ASSERT_FALSE(
      ParseBody(R"({"prompt": "x", "skip_special_tokens": false, "add_special_tokens": false,
      "include_stop_str_in_output": true, "n": 128})",
                &request));
  EXPECT_FALSE(request.skip_special_tokens || request.add_special_tokens);
  EXPECT_TRUE(request.include_stop);
  EXPECT_TRUE(request.ignored.empty());
  // They ask for nothing.
  ASSERT_FALSE(ParseBody(R"({"prompt": "x", "store": false, "verbosity": "medium", "priority": 0,
      "tool_choice": "auto", "tools": [], "cache_prompt": true, "user": "u", "metadata": {"a": 1},
      "spaces_between_special_tokens": true, "typical_p": 1.0, "guided_json": null,
      "response_format": {"type": "text"}, "best_of": 1})",
                         &request));
  EXPECT_TRUE(request.ignored.empty());
  // They have no effect, and the client is told.
  ASSERT_FALSE(ParseBody(R"({"prompt": "x", "verbosity": "low", "store": true, "priority": 3,
      "reasoning_effort": "high", "typical_p": 0.5})",
                         &request));
  EXPECT_EQ(request.ignored, (std::vector<std::string>{"priority", "reasoning_effort", "store",
                                                       "typical_p", "verbosity"}));
  EXPECT_EQ(ErrorOfMember(R"("ebnf": "root ::= x")").code, "unsupported_parameter");
  EXPECT_EQ(ErrorOfMember(R"("verbosty": "low")").code, "unknown_parameter");
}

TEST(ApiRequest, DefaultsOfTheServer) {
  ApiDefaults defaults;
  defaults.sampling.temperature = 0.6f;
  defaults.sampling.top_k = 20;
  ApiRequest request;
  ASSERT_FALSE(ParseApiRequest(R"({"prompt": "x", "top_k": 5})", Endpoint::kCompletions, defaults,
                               &request));
  EXPECT_EQ(request.sampling.temperature, 0.6f);
  EXPECT_EQ(request.sampling.top_k, 5);
}

TEST(ApiRequest, WrongValuesNameTheirParameter) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("temperature": -1)", "temperature"},
      {R"("temperature": "hot")", "temperature"},
      {R"("temperature": 1e300)", "temperature"},
      {R"("top_p": 1.5)", "top_p"},
      {R"("top_k": -2)", "top_k"},
      {R"("min_p": true)", "min_p"},
      {R"("max_tokens": 0)", "max_tokens"},
      {R"("max_tokens": 1.5)", "max_tokens"},
      {R"("max_tokens": 99999999999999999999)", "max_tokens"},
      {R"("max_tokens": 18446744073709551615)", "max_tokens"},
      {R"("max_tokens": 4, "min_tokens": 5)", "min_tokens"},
      {R"("n_predict": 0)", "n_predict"},
      {R"("n_predict": -2)", "n_predict"},
      {R"("repeat_penalty": 0)", "repeat_penalty"},
      {R"("bad_words": [""])", "bad_words"},
      {R"("bad_words": [5])", "bad_words"},
      {R"("n": 0)", "n"},
      {R"("n": 129)", "n"},
      {R"("seed": 1.5)", "seed"},
      {R"("stop": 5)", "stop"},
      {R"("stop": "")", "stop"},
      {R"("stop": ["a", null])", "stop"},
      {R"("logprobs": true)", "logprobs"},
      {R"("logprobs": 21)", "logprobs"},
      {R"("logit_bias": [])", "logit_bias"},
      {R"("logit_bias": {"a": 1})", "logit_bias"},
      {R"("logit_bias": {"1": 101})", "logit_bias.1"},
      {R"("frequency_penalty": 2.5)", "frequency_penalty"},
      {R"("presence_penalty": -2.5)", "presence_penalty"},
      {R"("repetition_penalty": 0)", "repetition_penalty"},
      {R"("stream": 1)", "stream"},
      {R"("stream_options": {"include_usage": true})", "stream_options"},
      {R"("stream": true, "stream_options": {"usage": true})", "stream_options.usage"},
      {R"("speculative": true)", "speculative"},
      {R"("speculative": {"nodes": 0})", "speculative.nodes"},
      {R"("speculative": {"node": 1})", "speculative.node"},
      {R"("ignore_eos": "yes")", "ignore_eos"},
      {R"("model": 5)", "model"},
      {R"("best_of": 3)", "best_of"},
      {R"("echo": true, "prompt_logprobs": 1)", "prompt_logprobs"},
      {R"("stream": true, "prompt_logprobs": 1)", "prompt_logprobs"},
      {R"("speculative": {"specpv": {"mode": "quick"}})", "speculative.specpv.mode"},
      {R"("speculative": {"specpv": {"budget_tokens": -1}})", "speculative.specpv.budget_tokens"},
      {R"("speculative": {"specpv": {"error_target": 2}})", "speculative.specpv.error_target"},
      {R"("speculative": {"specpv": {"blocks": 1}})", "speculative.specpv.blocks"},
      {R"("guided_regex": 5)", "guided_regex"},
      {R"("guided_choice": [])", "guided_choice"},
      {R"("regex": "a", "guided_choice": ["b"])", "guided_choice"},
      {R"("structured_outputs": {"structural_tag": "x"})", "structured_outputs.structural_tag"},
      {R"("structured_outputs": {"regex": "a", "whitespace": "none"})",
       "structured_outputs.whitespace"},
      {R"("tool_choice": "required")", "tool_choice"},
      {R"("skip_special_tokens": 1)", "skip_special_tokens"},
      {R"("suffix": "x")", "suffix"},
      {R"("tools": [{}])", "tools"},
      {R"("response_format": {"type": "xml"})", "response_format"},
      {R"("response_format": {"type": "json_schema", "json_schema": {}})", "response_format"},
      {R"("response_format": {"type": "json_schema", "json_schema": 3})",
       "response_format.json_schema"},
      {R"("response_format": {"type": "json_object", "pattern": "x"})", "response_format.pattern"},
      {R"("response_format": {"type": "json_object", "whitespace": "none"})",
       "response_format.whitespace"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}, "regex": "x"}})",
       "response_format.json_schema.regex"},
      {R"("structured_outputs": {"json": {}, "disable_additional_properties": true})",
       "structured_outputs.disable_additional_properties"},
      {R"("temprature": 1)", "temprature"},
  };
  for (const auto& [member, param] : cases) {
    const ApiError error = ErrorOfMember(member);
    EXPECT_EQ(error.param, param) << member << ": " << error.message;
    EXPECT_EQ(error.status, 400) << member;
    EXPECT_EQ(error.message.rfind(param, 0), 0u) << error.message;
  }
}

TEST(ApiRequest, WhatAnAnswerMustMatch) {
  const auto grammar = [](const std::string& member) {
    ApiRequest request;
    const auto error = ParseBody("{\"prompt\": \"x\", " + member + "}", &request);
    EXPECT_FALSE(error) << error->message;
    return request.grammar;
  };
  using Kind = GrammarSpec::Kind;
  EXPECT_EQ(grammar(R"("n": 1)").kind, Kind::kNone);
  EXPECT_EQ(grammar(R"("response_format": {"type": "text"})").kind, Kind::kNone);
  EXPECT_EQ(grammar(R"("response_format": {"type": "json_object"})").kind, Kind::kJsonObject);
  const GrammarSpec schema = grammar(R"("response_format": {"type": "json_schema", "json_schema":
      {"name": "n", "strict": true, "schema": {"z": 1, "a": 2}}, "whitespace": "compact"})");
  EXPECT_EQ(schema.kind, Kind::kJsonSchema);
  EXPECT_EQ(schema.source, R"({"z":1,"a":2})");  // in its own order
  EXPECT_EQ(schema.spacing, JsonSpacing::kCompact);
  EXPECT_EQ(grammar(R"("guided_json": "{\"b\": 1}")").source, R"({"b": 1})");
  EXPECT_EQ(grammar(R"("json_schema": {"q": true})").source, R"({"q":true})");
  EXPECT_EQ(grammar(R"("regex": "a+")").source, "a+");
  EXPECT_EQ(grammar(R"("guided_grammar": "root ::= x")").kind, Kind::kGbnf);
  EXPECT_EQ(grammar(R"("grammar": "")").kind, Kind::kNone);
  EXPECT_EQ(grammar(R"("structured_outputs": {"choice": ["a", "b"]})").choices,
            (std::vector<std::string>{"a", "b"}));
  // Other servers' forms.
  const GrammarSpec flat =
      grammar(R"("response_format": {"type": "json_object", "schema": {"c": 1}})");
  EXPECT_EQ(flat.kind, Kind::kJsonSchema);
  EXPECT_EQ(flat.source, R"({"c":1})");
  EXPECT_EQ(
      grammar(R"("response_format": {"type": "json_object", "whitespace": "compact"})").spacing,
      JsonSpacing::kCompact);
  EXPECT_EQ(grammar(R"("response_format": {"type": "json_schema", "json_schema":
      {"schema": {}, "whitespace": "compact"}})")
                .spacing,
            JsonSpacing::kCompact);
  const GrammarSpec dumped = grammar(R"("structured_outputs": {"json": null, "regex": "ab",
      "choice": null, "disable_fallback": true, "disable_any_whitespace": true})");
  EXPECT_EQ(dumped.kind, Kind::kRegex);
  EXPECT_EQ(dumped.spacing, JsonSpacing::kCompact);
  ApiRequest request;
  ASSERT_FALSE(ParseBody(R"({"input": "a", "text": {"format": {"type": "json_schema", "name": "n",
      "schema": {"y": 1, "b": 2}}}})",
                         &request, Endpoint::kResponses));
  EXPECT_EQ(request.grammar.source, R"({"y":1,"b":2})");
}

TEST(ApiRequest, UnknownParametersSuggestTheNearest) {
  const ApiError error = ErrorOfMember(R"("temprature": 1)");
  EXPECT_EQ(error.code, "unknown_parameter");
  EXPECT_NE(error.message.find("did you mean 'temperature'?"), std::string::npos) << error.message;
  EXPECT_EQ(ErrorOfMember(R"("zzzzzzzz": 1)").message.find("did you mean"), std::string::npos);
}

TEST(ApiRequest, ManyPromptsTimesManyChoicesAreRefused) {
  std::string prompts = "\"x\"";
  for (int i = 1; i < 20; ++i) prompts += ", \"x\"";
  ApiRequest request;
  ASSERT_FALSE(ParseBody("{\"prompt\": [" + prompts + "], \"n\": 12}", &request));
  const auto error = ParseBody("{\"prompt\": [" + prompts + "], \"n\": 13}", &request);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param, "n");
}

TEST(ApiRequest, BodiesThatAreNotAnObject) {
  ApiRequest request;
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("\"x\""),
        std::string("{\"prompt\": \"\xff\"}"), std::string("{\"prompt\": \"x\"} x"),
        std::string("{\"prompt\": 1e999}"), std::string(100000, '['), std::string("\0{}", 3)}) {
    const auto error = ParseBody(body, &request);
    ASSERT_TRUE(error) << body.substr(0, 20);
    EXPECT_EQ(error->status, 400);
    EXPECT_NE(error->message.find("the body"), std::string::npos) << error->message;
  }
}

TEST(ApiError, HasOpenAisShape) {
  const Json json = ErrorJson({.status = 404, .message = "m", .param = "model", .code = "c"});
  EXPECT_EQ(json["error"]["message"], "m");
  EXPECT_EQ(json["error"]["type"], "invalid_request_error");
  EXPECT_EQ(json["error"]["param"], "model");
  EXPECT_EQ(json["error"]["code"], "c");
  EXPECT_TRUE(ErrorJson({.status = 500})["error"]["param"].is_null());
  EXPECT_EQ(ErrorFromStatus(ResourceExhausted("full")).status, 429);
  EXPECT_EQ(ErrorFromStatus(Unavailable("too many grammars")).status, 503);
  EXPECT_EQ(ErrorFromStatus(InvalidArgument("prompt: token 9 at 0")).param, "prompt");
}

}  // namespace
}  // namespace talon

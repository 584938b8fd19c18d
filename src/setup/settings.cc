// The table itself; the rows of workers are in worker_settings.cc, its checks in
// check_settings.cc.
#include "setup/settings.h"

#include "model/sampling/sampling_params.h"
#include "setup/device.h"
#include "setup/setting_rows.h"
#include "spec/drafter_list.h"

namespace talon {
namespace {

constexpr Range kShare{0, 1};
constexpr Range kPort{0, 65535};

Choices WeightChoices() {
  return {{"auto", "as stored"},
          "f32",
          "f16",
          "bf16",
          {"fp8", "quantised at load"},
          {"int8", "quantised at load"},
          {"int4", "quantised at load"}};
}

Choices KvChoices() { return {"f32", "f16", "bf16", "fp8", {"fp8_e4m3", "the same"}, "int8"}; }

Choices BlockSizeChoices() { return {"8", "16", "32", "64"}; }

Choices MethodChoices() {
  Choices choices = {{kAutoMethod, "the head given or found, and SUFFIX"}};
  for (const std::string& name : DrafterList::KnownNames()) {
    choices.emplace_back(name.c_str(), name == "MERGED" ? "EAGLE3,SUFFIX" : "");
  }
  return choices;
}

Status CheckDevice(const std::string& name) { return ParseDeviceName(name).status(); }
Status CheckMethod(const std::string& names) {
  return IsAutoMethod(names) ? OkStatus() : DrafterList::Parse(names).status();
}

// As a browser sends it: "https://example.com", without a path.
Status CheckOrigin(const std::string& origin) {
  const size_t scheme = origin.find("://");
  const bool has_scheme = scheme != std::string::npos && scheme > 0;
  const std::string rest = has_scheme ? origin.substr(scheme + 3) : origin;
  const std::string host = rest.substr(0, rest.find('/'));
  const bool fits = has_scheme && !host.empty() && host == rest;
  if (origin.empty() || origin == "*" || fits) return OkStatus();
  return InvalidArgument("cors_origin: '{}', must be * or an origin as browsers send it: '{}://{}'",
                         origin, has_scheme ? origin.substr(0, scheme) : "https",
                         host.empty() ? "HOST" : host);
}

void AddModelSettings(Config* c, std::vector<Setting>* rows) {
  RowAdder add("", rows);
  add("model", &c->model, "Model directory in Hugging Face format; none = the bundled model",
      ValueName{"DIR"}, Alias{"model_path"}, Short{"-m"});
  add("generation_config", &c->generation_config,
      "Sampling that the model's generation_config.json suggests (temperature, top_k, top_p, "
      "min_p, repetition_penalty)",
      Choices{{"auto", "where a flag or request does not say otherwise"}, {"none", "ignored"}});
  add("device", &c->device, "Device, as far as this build has it (--version)",
      Choices{"cpu", "cuda", "cuda:N"}, Check{CheckDevice});
  add("deterministic", &c->deterministic,
      "The same text with and without speculation, alone and in a batch; always on");
  add("disable_amx", &c->disable_amx,
      "cpu: no AMX in products and attention, for comparisons; bf16 sums are then rounded "
      "otherwise");
  add("disable_cuda_graph", &c->disable_cuda_graph,
      "cuda: launch every kernel by itself instead of replaying CUDA graphs");
  add("disable_nccl", &c->disable_nccl,
      "cuda: ranks exchange activations through host memory, also where NCCL could");
  add("enable_nan_detection", &c->enable_nan_detection,
      "Logits that are not finite end their request with an error; always on");
  add("threads", &c->threads, "Threads; 0 = all cores this process may use", Range{0, 1024});
  add("tensor_parallel", &c->tensor_parallel,
      "Ranks that share the model: processes that mpirun starts", Choices{"1", "2", "4", "8"},
      Alias{"tensor_parallel_size"});
  add("rank_timeout", &c->rank_timeout,
      "Seconds that a rank may wait for another one; then the engine stops", Range{1, 3600});
  add("weights", &c->weights, "Type of the weights", WeightChoices());
  add("activations", &c->activations,
      "Rows that dense layers multiply by fp8 weights; fp8: rounded by 128 values (lossy), which "
      "pays for prompts and batches on a Hopper GPU",
      Choices{{"auto", "as the device has them"}, "fp8"});
  add("kv_dtype", &c->kv_dtype,
      "Type of the KV cache; fp8 (e4m3) and int8 have a scale for each token and head", KvChoices(),
      kAnyCase);
  add("block_size", &c->block_size, "Tokens per KV block", BlockSizeChoices());
  add("max_length", &c->max_length, "Longest sequence in tokens; 0 = the model's context",
      Range{0, 1 << 24});
  add("kv_tokens", &c->kv_tokens, "Size of the KV pool in tokens; 0 = as much as is needed",
      Range{0, 1 << 30});
  add("max_sequences", &c->max_sequences, "Sequences that run at once", Range{1, 1024});
  add("prefill_chunk", &c->prefill_chunk,
      "Prompt tokens computed per step; 0 = by device: 512 on a CPU, 2048 on a GPU",
      Range{0, 16384});
  add("kv_offload", &c->kv_offload,
      "Keep K and V in host memory; with SpecPV partial steps read a copy of their blocks on the "
      "GPU");
  add("enable_prefix_cache", &c->enable_prefix_cache,
      "Keep the K and V of earlier requests; equal prompt beginnings skip their pass");
  add("kv_audit", &c->kv_audit,
      "Check after every step that committed K and V are unchanged (slow); if not, the requests "
      "fail and the engine stops");
  add("log_level", &c->log_level, "Least severe messages that are logged",
      Choices{{"auto", "info for serve, which logs its requests, else warning"},
              "debug",
              "info",
              "warning",
              "error",
              "off"});
  add("log_format", &c->log_format, "Form of log lines",
      Choices{"text", {"json", "one object per line"}});
  add("trace", &c->trace,
      "Write steps, passes and requests to this file, for ui.perfetto.dev or chrome://tracing",
      ValueName{"FILE"});
}

void AddSamplingSettings(SamplingConfig* s, std::vector<Setting>* rows) {
  using P = SamplingParams;
  RowAdder add("", rows);
  add("max_tokens", &s->max_tokens, "New tokens at most", P::kMaxTokensRange, Short{"-n"});
  add("temperature", &s->temperature, "0 = greedy; higher is more random", P::kTemperatureRange);
  add("top_k", &s->top_k, "Draw from the k most likely tokens; 0 = off", P::kTopKRange);
  add("top_p", &s->top_p, "Draw from the smallest set with this probability; 1 = off",
      P::kProbabilityRange);
  add("min_p", &s->min_p, "Drop tokens below this share of the most likely one's; 0 = off",
      P::kProbabilityRange);
  add("repetition_penalty", &s->repetition_penalty,
      "Makes tokens of prompt and output less likely; 1 = off", P::kRepetitionPenaltyRange);
  add("frequency_penalty", &s->frequency_penalty,
      "Taken off a logit per occurrence in the output; 0 = off", P::kPenaltyRange);
  add("presence_penalty", &s->presence_penalty,
      "Taken off once if a token is in the output; 0 = off", P::kPenaltyRange);
  add("logit_bias", &s->logit_bias, "Added to logits: token=bias, e.g. 17=-2.5,42=1");
  add("bad_words", &s->bad_words,
      "Texts that must not appear, one per line: the tokens of each are banned, with and without a "
      "space before it");
  add("min_tokens", &s->min_tokens, "No end of text before this many tokens", P::kMinTokensRange);
  add("ignore_eos", &s->ignore_eos, "Go on after the end-of-text token");
  add("stop", &s->stop, "Text that ends the output (not part of it); may be repeated");
  add("stop_token_ids", &s->stop_token_ids, "Token ids that end the output, separated by commas");
  add("seed", &s->seed, "Seed of the draws; -1 = random, reported in the statistics");
  add("logprobs", &s->logprobs, "With --json: log-probs of this many most likely tokens; -1 = none",
      P::kLogProbsRange);
}

void AddServeSettings(ServeConfig* s, std::vector<Setting>* rows) {
  RowAdder add("", rows);
  add("host", &s->host, "Address to listen on; 0.0.0.0 = all, reachable from other machines");
  add("port", &s->port, "Port to listen on; 0 = any that is free", kPort);
  add("api_key", &s->api_key,
      "Key that clients must send as Authorization: Bearer KEY; none = that of the environment "
      "variable TALON_API_KEY, which other users of the machine do not see",
      ValueName{"KEY"});
  add("allow_special_in_content", &s->allow_special_in_content,
      "Special tokens written out in a message's content are tokens, not text");
  add("api_key_file", &s->api_key_file,
      "File with one key per line; clients must send one as Authorization: Bearer KEY",
      ValueName{"FILE"});
  add("cors_origin", &s->cors_origin,
      "Web pages of this origin (* = all, else such as https://example.com) may use the server; "
      "none = only its own page",
      Check{CheckOrigin});
  add("allowed_host", &s->allowed_host,
      "Name by which clients may call the server in the Host header, besides localhost and the "
      "address it listens on; may be repeated. Checked on this machine's own address without a "
      "key, and wherever a name is given");
  add("max_connections", &s->max_connections, "Connections open at once", Range{1, 65536});
  add("max_request_bytes", &s->max_request_bytes, "Largest body of a request",
      Range{1024, 1 << 30});
  add("max_inflight_bytes", &s->max_inflight_bytes,
      "Bytes of large bodies in memory at once; more wait, then are refused (503)",
      Range{1024, 1 << 30});
  add("max_waiting", &s->max_waiting, "Requests that may wait; more are refused (429)",
      Range{1, 1 << 20});
  add("read_timeout", &s->read_timeout, "Seconds for a client to send a header, and a body",
      Range{1, kDaySeconds});
  add("request_timeout", &s->request_timeout,
      "Seconds after which a request is cancelled; 0 = never", kSecondsOfADay);
  add("served_model_name", &s->served_model_name,
      "The model's name in the API; none = its directory's");
  add("shutdown_timeout", &s->shutdown_timeout,
      "Seconds that requests may still take after Ctrl-C or SIGTERM", kSecondsOfADay);
}

void AddChatSettings(ServeConfig* s, std::vector<Setting>* rows) {
  RowAdder add("", rows);
  add("chat_template", &s->chat_template,
      "Chat template, in place of the model's own: a file, or chatml, gemma, llama2, llama3, plain",
      ValueName{"FILE|NAME"});
  add("tool_call_parser", &s->tool_call_parser, "Format in which the model writes calls of tools",
      Choices{{"auto", "the chat template's own"},
              "harmony",
              "hermes",
              "llama3",
              "mistral",
              "mistral_args"});
}

void AddDraftSettings(SpeculativeConfig* s, RowAdder add) {
  add("method", &s->method, "Drafter, or several separated by commas",
      Flag{"--speculative-algorithm"}, MethodChoices(), Check{CheckMethod});
  add.Speculative("draft_model_path", &s->draft_model_path,
                  "Directory of the head or the STANDALONE model", ValueName{"DIR"});
  add.Speculative("draft_weights", &s->draft_weights, "Type of the draft model's weights",
                  WeightChoices());
  add.Speculative("draft_window_size", &s->draft_window_size,
                  "Heads: a draft row sees this many last rows; 0 = all, -1 = all, or with SpecPV "
                  "as many as a partial step reads",
                  Range{-1, 1 << 24});
  add.Speculative("draft_sink_size", &s->draft_sink_size,
                  "Heads: and this many first rows, where there is a window", Range{0, 1 << 24});
  add("eagle3_capture_layers", &s->eagle3_capture_layers,
      "Heads: layers whose input the head reads; none = as its config says");
  add.Speculative("token_map", &s->token_map,
                  "EAGLE: file of the token ids it may draft; none = all", ValueName{"FILE"});
  add.Speculative("num_steps", &s->num_steps, "Depth of the draft tree; 0 = the method's default",
                  Range{0, 64});
  add.Speculative("eagle_topk", &s->eagle_topk,
                  "Branches per expansion of a tree drafter; 0 = the method's default",
                  Range{0, 64});
  add.Speculative("num_draft_tokens", &s->num_draft_tokens,
                  "Nodes of a tree, root included; 0 = the method's default", Range{0, 256});
}

void AddAcceptanceSettings(SpeculativeConfig* s, RowAdder add) {
  add.Speculative("acceptance", &s->acceptance, "Rule that accepts drafts",
                  Choices{{"match", "exact, same text as plain"},
                          {"threshold", "lossy; implied by a threshold below 1"},
                          {"rejection", "exact in distribution"}});
  add.Speculative("accept_threshold_single", &s->accept_threshold_single,
                  "Accept a draft of at least this probability; below 1 is lossy", kShare);
  add.Speculative("accept_threshold_acc", &s->accept_threshold_acc,
                  "Divides the cumulative probability of drafts; below 1 is lossy", kShare);
  add.Speculative("adaptive", &s->adaptive,
                  "Choose the number of nodes by measured cost and acceptance, down to none");
  add.Speculative("verify_curve", &s->verify_curve,
                  "File of the verify curve: loaded if it exists, else measured and saved",
                  ValueName{"FILE"});
}

void AddSpeculativeSettings(SpeculativeConfig* s, std::vector<Setting>* rows) {
  RowAdder add(kSpeculativeGroup, rows);
  add("enable_speculative_decoding", &s->enable_speculative_decoding,
      "false: plain decoding whatever the method");
  add("enable_target_tree", &s->enable_target_tree,
      "false: the target verifies no trees, which is plain decoding",
      Alias{"enable_eagle_target_tree"});
  AddDraftSettings(s, add);
  AddAcceptanceSettings(s, add);
  add("draft_min_prob", &s->draft_min_prob, "Drop drafts whose path probability is below this",
      kShare);
  add("enable_nwor", &s->enable_nwor,
      "No-write-on-reject: stage tree rows, write accepted ones only");
  add("scv_chunk_size", &s->scv_chunk_size,
      "Verify trees in chunks of this many nodes; 0 = in one pass", Range{0, 256});
  add("ngram_mode", &s->ngram_mode, "How NGRAM grows its tree", Choices{"BFS", "PROB"}, kAnyCase);
  add("ngram_max_depth", &s->ngram_max_depth, "Longest n-gram kept", Range{2, 64});
  add("ngram_corpus", &s->ngram_corpus,
      "NGRAM knows this file's documents from the start; lines as of --suffix-corpus",
      ValueName{"FILE"});
  add("suffix_corpus", &s->suffix_corpus,
      "SUFFIX knows this file's documents from the start, one per line: text, or JSON: \"text\", "
      "{\"prompt\": text}, [token ids] or {\"tokens\": [ids]}",
      ValueName{"FILE"});
}

void AddSpecPvSettings(SpecPvSettings* s, std::vector<Setting>* rows) {
  using C = SpecPvConfig;
  C& v = s->values;
  RowAdder add(kSpeculativeGroup, rows);
  add("enable_specpv", &v.enabled,
      "Partial verification: long sequences are verified over chosen KV blocks, and now and then "
      "in full");
  add("specpv_mode", &s->mode, "Partial verification",
      Choices{{"exact", "full passes re-check; same text as without"},
              {"fast", "never re-checked, lossy"}});
  add("specpv_block_size", &v.block_size, "Tokens per block, as --block-size", BlockSizeChoices());
  add("specpv_n_sink_blocks", &v.sink_blocks, "First blocks, always read", C::kBlocksRange);
  add("specpv_n_retrieval_blocks", &v.retrieval_blocks, "Blocks chosen by the selector",
      C::kBlocksRange);
  add("specpv_n_window_blocks", &v.window_blocks, "Last blocks, always read", C::kWindowRange);
  add("specpv_n_spec_tokens_buf", &v.buffer_tokens,
      "Room for provisional tokens and a tree; at least tree + depth + 1", C::kBufferRange);
  add("specpv_partial_threshold", &v.partial_threshold,
      "Sequences up to this many tokens are verified in full", C::kThresholdRange);
  add("specpv_full_refresh_interval", &v.full_refresh_interval,
      "Partial steps between full passes at most", C::kIntervalRange,
      Alias{"specpv_full_refresh_steps"});
  add("specpv_selector", &s->selector, "How retrieved blocks are chosen",
      Choices{{"auto", "attention on a CPU, quest on a GPU"},
              "attention",
              "quest",
              "quest_bound",
              "h2o",
              "streaming",
              "sliding"});
  add("specpv_reduce", &s->reduce, "Reduction of scores over a pass's queries",
      Choices{"mean", "max", {"root", "the root's only"}});
  add("specpv_adaptive", &v.adaptive, "Fewer retrieved blocks for very long requests");
  add("specpv_shadow_rate", &v.shadow_rate,
      "Share of partial steps that are also run in full, to measure the difference",
      C::kShareRange);
  add("specpv_error_target", &v.error_target,
      "Disagreement with full verification that sets the refresh interval; 0 = off",
      C::kShareRange);
}

// "Type of the KV cache: f32, f16 or bf16", "Sequences that run at once; 1 to 1024".
std::string HelpOf(const Setting& setting) {
  if (setting.range) return setting.meaning + "; " + setting.range->ToString();
  std::vector<std::string> names;
  for (const SettingChoice& choice : setting.choices) {
    names.push_back(choice.note.empty() ? choice.name
                                        : fmt::format("{} ({})", choice.name, choice.note));
  }
  return names.empty() ? setting.meaning : setting.meaning + ": " + JoinWithOr(names);
}

}  // namespace

std::span<const SettingSetTitle> SettingSetTitles() {
  static constexpr SettingSetTitle kTitles[] = {
      {kServeSettings, "Server"},
      {kChatSettings, "Chat"},
      {kWorkerSettings, "Worker"},
      {kDraftWorkerSettings, "Draft worker"},
      {kModelSettings, "Model and memory"},
      {kSamplingSettings, "Sampling"},
      {kSpeculativeSettings, "Speculation"},
      {kRemoteSettings, "Remote drafts"},
      {kTargetSettings, "Remote target"},
  };
  return kTitles;
}

std::vector<Setting> SettingsOf(Config* config, unsigned sets) {
  std::vector<Setting> rows;
  if ((sets & kModelSettings) != 0) AddModelSettings(config, &rows);
  if ((sets & kSamplingSettings) != 0) AddSamplingSettings(&config->sampling, &rows);
  if ((sets & kSpeculativeSettings) != 0) {
    AddSpeculativeSettings(&config->speculative, &rows);
    AddSpecPvSettings(&config->speculative.specpv, &rows);
  }
  if ((sets & kServeSettings) != 0) AddServeSettings(&config->serve, &rows);
  if ((sets & kChatSettings) != 0) AddChatSettings(&config->serve, &rows);
  if ((sets & kWorkerSettings) != 0) AddWorkerSettings(&config->worker, &rows);
  if ((sets & kDraftWorkerSettings) != 0) AddDraftWorkerSettings(&config->worker, &rows);
  if ((sets & kRemoteSettings) != 0) AddRemoteSettings(&config->remote, &rows);
  if ((sets & kTargetSettings) != 0) AddTargetSettings(&config->remote, &rows);
  for (Setting& row : rows) row.help = HelpOf(row);
  return rows;
}

const char* TypeText(const Setting& setting) {
  return std::visit([](auto* value) { return KindOf(value).text; }, setting.value);
}

}  // namespace talon

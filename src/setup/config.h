// Everything that a user can set, with its default. Names, meaning and valid values: settings.h.
#ifndef TALON_SETUP_CONFIG_H_
#define TALON_SETUP_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "spec/specpv/config.h"

namespace talon {

// The method that is chosen by the other settings (ChooseDrafters, draft_choice.h).
inline constexpr const char* kAutoMethod = "auto";

// Partial verification. What is chosen by name stays as the user wrote it.
struct SpecPvSettings {
  SpecPvConfig values;
  std::string mode = "exact";
  std::string selector = "auto";
  std::string reduce = "mean";
};

// Speculation, under `speculative_config:` in the file.
struct SpeculativeConfig {
  bool enable_speculative_decoding = true;
  bool enable_target_tree = true;
  std::string method = kAutoMethod;
  std::string draft_model_path;
  std::string draft_weights = "int8";
  int draft_window_size = -1;  // -1 = all rows, or what partial verification reads
  int draft_sink_size = 0;
  std::vector<int> eagle3_capture_layers;
  std::string token_map;
  int num_steps = 0;  // 0 = the method's default, like the next two
  int eagle_topk = 0;
  int num_draft_tokens = 0;  // nodes of a tree, root included
  std::string acceptance = "match";
  float accept_threshold_single = 1.0f;
  float accept_threshold_acc = 1.0f;
  bool adaptive = true;
  std::string verify_curve;
  float draft_min_prob = 0.0f;
  bool enable_nwor = true;
  int scv_chunk_size = 0;
  std::string ngram_mode = "BFS";
  int ngram_max_depth = 18;
  std::string ngram_corpus;
  std::string suffix_corpus;
  SpecPvSettings specpv;
};

struct SamplingConfig {
  int max_tokens = 128;
  float temperature = 0;
  int top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  std::string logit_bias;  // "17=-2.5,42=1"
  std::string bad_words;   // texts separated by newlines
  int min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  std::vector<int> stop_token_ids;
  int64_t seed = -1;  // -1 = random, reported back
  int logprobs = -1;
};

// The HTTP server, and how messages become prompts. Times are in seconds.
struct ServeConfig {
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string api_key;
  bool allow_special_in_content = false;
  std::string api_key_file;
  std::string chat_template;  // a file, or a built-in name; empty = the model's own
  std::string cors_origin;
  std::vector<std::string> allowed_host;
  int max_connections = 1024;
  int max_request_bytes = 4 << 20;
  int max_inflight_bytes = 32 << 20;
  int max_waiting = 1024;
  int read_timeout = 30;
  int request_timeout = 600;
  std::string served_model_name;  // empty = the model directory's name
  int shutdown_timeout = 30;
  std::string tool_call_parser = "auto";
};

// Certificates of a worker or its client; PEM files.
struct TlsConfig {
  std::string cert_file;
  std::string key_file;
  std::string ca_file;
  bool insecure = false;
};

// A draft or target worker, under `worker_config:` in the file. Times are in seconds.
struct WorkerConfig {
  std::string host = "127.0.0.1";
  int port = -1;  // -1 = the default of the worker's kind
  int handler_threads = 4;
  int max_sessions = 16;
  int session_ttl_seconds = 300;
  int max_tree_nodes = 2048;
  int max_prompt_tokens = 8192;
  int shutdown_timeout = 30;
  std::string metrics_host = "127.0.0.1";
  int metrics_port = -1;  // -1 = none
  TlsConfig tls;
  // Draft workers only: defaults for calls that leave these out.
  int max_draft_tokens = 5;
  int num_beams = 1;
  float draft_temperature = 1;
};

// Generation with workers, under `remote_config:` in the file. 0 = no limit.
struct RemoteConfig {
  std::string draft_address;
  std::string target_address;
  int max_rounds = 0;
  float timeout_s = 30;
  int max_output_tokens = 0;
  int max_context_window = 0;
  int max_draft_tokens = 5;
  int num_beams = 4;
  int draft_nodes = 0;
  float draft_temperature = -1;  // -1 = the temperature of the verification
  bool overlap = true;
  bool adaptive_length = true;
  bool strict_vocab_check = true;
  float simulated_rtt_ms = 0;
  std::string telemetry;
  TlsConfig tls;
};

struct Config {
  std::string model;  // empty = the bundled one
  std::string generation_config = "auto";
  std::string device = "cpu";
  int threads = 0;
  int tensor_parallel = 1;
  int rank_timeout = 8;
  std::string weights = "auto";
  std::string activations = "auto";
  std::string kv_dtype = "bf16";
  int block_size = 16;
  int max_length = 0;
  int kv_tokens = 0;
  int max_sequences = 32;
  int prefill_chunk = 0;  // 0: by device
  bool kv_offload = false;
  bool kv_audit = false;
  bool enable_prefix_cache = true;
  bool deterministic = true;
  bool disable_amx = false;
  bool disable_cuda_graph = false;
  bool disable_nccl = false;
  bool enable_nan_detection = true;
  std::string log_level = "auto";
  std::string log_format = "text";
  std::string trace;
  // Not settings: servers allocate and touch memory at the start; the keys that a file has set.
  bool touch_memory = false;
  std::vector<std::string> file_keys;
  SamplingConfig sampling;
  SpeculativeConfig speculative;
  ServeConfig serve;
  WorkerConfig worker;
  RemoteConfig remote;
};

}  // namespace talon

#endif  // TALON_SETUP_CONFIG_H_

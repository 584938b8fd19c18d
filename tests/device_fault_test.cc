// A launch that fails and a kernel that faults while requests run: all of them end with an error
// that says so, new ones are refused, and the process ends as usual. Needs a GPU, and a process of
// its own: the CUDA context does not survive the second.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "compute/cuda/cuda_backend.h"
#include "compute/cuda/testing/trap.h"
#include "engine/engine_thread.h"
#include "engine/test_engine.h"

namespace talon {
namespace {

constexpr int kRequests = 5;

GenerateRequest LongRequest(std::mt19937& random) {
  return {.prompt = RandomPrompt(random, 40, 200),
          .sampling = {.max_tokens = 2000, .ignore_eos = true}};
}

// Requests run, two of them queued, when `fault` happens.
void ExpectRequestsToEnd(const std::function<void()>& fault) {
  TestModel model("tests/data/goldens/llama3");
  std::atomic<int> stopped{0};
  EngineThread thread(
      model.MakeEngine({.kv_dtype = DType::kF32, .max_length = 2100, .max_sequences = 3}),
      EngineThread::kMaxWaiting, [&] { ++stopped; });
  std::mt19937 random(7);
  std::vector<std::shared_ptr<RequestStream>> streams;
  for (int i = 0; i < kRequests; ++i) streams.push_back(thread.Submit(LongRequest(random)).value());
  while (!streams[0]->Next(std::chrono::milliseconds(100))) {  // they run
  }
  fault();
  for (const auto& stream : streams) {
    while (!stream->done()) (void)stream->Next(std::chrono::milliseconds(100));
    EXPECT_EQ(stream->result().finish, FinishReason::kError);
    EXPECT_EQ(stream->result().error.code(), StatusCode::kUnavailable);
    EXPECT_NE(stream->result().error.message().find("cuda: "), std::string::npos)
        << stream->result().error.message();
  }
  while (stopped.load() == 0) std::this_thread::yield();
  EXPECT_EQ(thread.snapshot().health.code(), StatusCode::kUnavailable);
  EXPECT_EQ(thread.Submit(LongRequest(random)).status().code(), StatusCode::kUnavailable);
  thread.Shutdown(std::chrono::seconds(300));
}

TEST(DeviceFault, ALaunchThatFailsEndsTheRequestsAndNotTheProcess) {
  ExpectRequestsToEnd([] { cuda::FailLaunches(true); });
  cuda::FailLaunches(false);
}

// The last test: nothing runs on the device afterwards.
TEST(DeviceFault, AKernelThatFaultsEndsTheRequestsAndNotTheProcess) {
  ExpectRequestsToEnd(cuda::TrapDevice);
}

}  // namespace
}  // namespace talon

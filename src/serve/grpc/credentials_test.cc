#include "serve/grpc/credentials.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "serve/grpc/rpc_status.h"

namespace talon {
namespace {

TEST(CredentialsTest, LoopbackAddresses) {
  for (const char* address : {"127.0.0.1", "127.0.0.1:50051", "127.1.2.3:1", "localhost",
                              "localhost:50051", "::1", "[::1]:50051", "unix:/run/talon.sock"}) {
    EXPECT_TRUE(IsLoopbackAddress(address)) << address;
  }
  for (const char* address : {"0.0.0.0", "192.0.2.1:50051", "::", "[::]:50051", "example.org:1",
                              "127.evil.example:50051", "localhost.example.org", ""}) {
    EXPECT_FALSE(IsLoopbackAddress(address)) << address;
  }
}

TEST(CredentialsTest, AddressesNeedHostAndPort) {
  for (const char* address : {"localhost:50051", "192.0.2.1:1", "[::1]:65535"}) {
    EXPECT_TRUE(CheckAddress("target_address", address).ok()) << address;
  }
  for (const char* address :
       {"", "localhost", ":50051", "localhost:", "localhost:0", "localhost:65536", "a:b",
        "localhost:50051x", "::1", "[::1]", "[::1:50051"}) {
    const Status status = CheckAddress("target_address", address);
    EXPECT_FALSE(status.ok()) << address;
    EXPECT_NE(status.message().find("target_address"), std::string::npos);
  }
}

TEST(CredentialsTest, PlaintextStaysOnThisMachine) {
  EXPECT_TRUE(MakeServerCredentials({}, "127.0.0.1").ok());
  EXPECT_TRUE(MakeChannelCredentials({}, "localhost:50051").ok());
  for (const char* host : {"0.0.0.0", "192.0.2.1"}) {
    EXPECT_FALSE(MakeServerCredentials({}, host).ok());
    EXPECT_FALSE(MakeChannelCredentials({}, host).ok());
    EXPECT_TRUE(MakeServerCredentials({.insecure = true}, host).ok());
    EXPECT_TRUE(MakeChannelCredentials({.insecure = true}, host).ok());
  }
}

class FilesTest : public testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& text) {
    const std::string path = testing::TempDir() + "/talon_credentials_" + name;
    EXPECT_TRUE(WriteFile(path, text).ok());
    return path;
  }
  const std::string cert_ = File("cert", "-----BEGIN CERTIFICATE-----\nMAA=\n");
  const std::string key_ = File("key", "-----BEGIN RSA PRIVATE KEY-----\nMAA=\n");
  const std::string other_ = File("other", "nothing of the sort");
};

TEST_F(FilesTest, ErrorsNameTheFileOrFlag) {
  const auto server_error = [](const RpcSecurity& security) {
    return MakeServerCredentials(security, "0.0.0.0").status().message();
  };
  EXPECT_NE(server_error({.cert_file = "/nowhere", .key_file = key_}).find("/nowhere"),
            std::string::npos);
  EXPECT_NE(server_error({.cert_file = other_, .key_file = key_}).find("tls_cert_file"),
            std::string::npos);
  EXPECT_NE(server_error({.cert_file = cert_, .key_file = other_}).find("tls_key_file"),
            std::string::npos);
  EXPECT_NE(server_error({.cert_file = cert_}).find("only the certificate"), std::string::npos);
  EXPECT_NE(server_error({.key_file = key_}).find("only the key"), std::string::npos);
  EXPECT_NE(server_error({.ca_file = cert_}).find("also needs"), std::string::npos);
  EXPECT_NE(
      server_error({.cert_file = cert_, .key_file = key_, .ca_file = other_}).find("tls_ca_file"),
      std::string::npos);
  EXPECT_NE(server_error({.cert_file = cert_, .key_file = key_, .insecure = true})
                .find("one or the other"),
            std::string::npos);
}

TEST_F(FilesTest, AClientNeedsACertificateAuthority) {
  EXPECT_TRUE(MakeChannelCredentials({.ca_file = cert_}, "example.org:1").ok());
  EXPECT_FALSE(
      MakeChannelCredentials({.cert_file = cert_, .key_file = key_}, "example.org:1").ok());
  EXPECT_TRUE(MakeChannelCredentials({.cert_file = cert_, .key_file = key_, .ca_file = cert_},
                                     "example.org:1")
                  .ok());
}

TEST(RpcStatusTest, CodesAndMessagesSurvive) {
  for (int code = 1; code <= static_cast<int>(StatusCode::kUnimplemented); ++code) {
    const Status status(static_cast<StatusCode>(code), "KV_FULL: need 3 blocks");
    const Status back = FromRpcStatus(ToRpcStatus(status));
    EXPECT_EQ(back.code(), status.code());
    EXPECT_EQ(back.message(), status.message());
  }
  EXPECT_TRUE(ToRpcStatus(OkStatus()).ok());
  EXPECT_TRUE(FromRpcStatus(grpc::Status()).ok());
  const Status unknown = FromRpcStatus({grpc::StatusCode::DATA_LOSS, "gone"});
  EXPECT_EQ(unknown.code(), StatusCode::kInternal);
  EXPECT_NE(unknown.message().find("15"), std::string::npos);
}

TEST(RpcStatusTest, Details) {
  EXPECT_EQ(StatusDetail(ResourceExhausted("KV_FULL: need 3 blocks")), "KV_FULL");
  EXPECT_EQ(StatusDetail(Unavailable("LOADING")), "LOADING");
  EXPECT_EQ(StatusDetail(Unavailable("failed to connect")), "");
  EXPECT_EQ(StatusDetail(Unavailable("DNS resolution failed: x")), "");
  EXPECT_EQ(StatusDetail(OkStatus()), "");
}

}  // namespace
}  // namespace talon

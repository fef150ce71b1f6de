#include "asynct/model/safetensors.h"

#include <cstring>
#include <numeric>

#include "asynct/model/checkpoint.h"
#include "asynct/model/safetensors_writer.h"
#include "asynct/model/test_files.h"

namespace asynct {
namespace {

using testing::expect_error;
using testing::TempDir;

/// The bytes of a file: length, header, `data` bytes of zeros.
std::string file_of(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data, '\0');
}

std::string length_of(std::uint64_t length) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return cat("\"", name) + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

/// {a,b,...}
template <class... Rest>
std::string object(const std::string& first, const Rest&... rest) {
  std::string text = cat("{", first);
  ((text += cat(",", rest)), ...);
  return text + "}";
}

std::vector<SafetensorsEntry> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "f");
}

TEST(Safetensors, ReadsWhatIsThere) {
  const TempDir dir;
  const std::string metadata = R"("__metadata__":{"format":"pt"})";
  std::string file = file_of(
      object(tensor("b", "BF16", "[2,3]", "[4,16]"), tensor("a", "F32", "[1]", "[0,4]"), metadata) + "   ",
      16);
  const float value = 1.5F;
  std::memcpy(file.data() + file.size() - 16, &value, 4);
  const SafetensorsFile safetensors(dir.write("x.safetensors", file));
  ASSERT_EQ(safetensors.entries().size(), 2U);
  EXPECT_EQ(safetensors.entries()[0].name, "a");  // file order
  EXPECT_EQ(safetensors.find("a")->at(0), 1.5F);
  EXPECT_EQ(safetensors.find("b")->shape, (Shape{2, 3}));
  EXPECT_EQ(safetensors.find("b")->dtype, DType::bf16);
  EXPECT_FALSE(safetensors.find("c").has_value());
  EXPECT_TRUE(parse(file_of("{}", 0)).empty());
}

TEST(Safetensors, MisalignedTensorsAreCopied) {
  const TempDir dir;
  for (int padding = 0; padding < 8; ++padding) {
    const auto spaces = static_cast<std::size_t>(padding);
    std::string header = object(tensor("a", "F32", "[3]", "[0,12]")) + std::string(spaces, ' ');
    std::string file = file_of(header, 12);
    const float values[3] = {1, -2, 3};
    std::memcpy(file.data() + file.size() - 12, values, 12);
    const SafetensorsFile safetensors(dir.write("x", file));
    const TensorView view = *safetensors.find("a");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % 4, 0U);
    EXPECT_EQ(view.at(1), -2);
  }
}

TEST(Safetensors, HostileFiles) {
  const std::string good = tensor("a", "F32", "[2]", "[0,8]");
  const struct {
    std::string file;
    const char* message;
  } kCases[] = {
      {"", "too few"},
      {std::string(7, '\0'), "too few"},
      {length_of(UINT64_MAX) + "{}", "above the limit"},
      {length_of(100'000'001) + "{}", "above the limit"},
      {length_of(3) + "{}", "reaches past the end"},
      {length_of(0), "does not begin with '{'"},
      {file_of(" {}", 0), "does not begin with '{'"},
      {file_of("[]", 0), "does not begin with '{'"},
      {file_of("{", 0), "not valid JSON"},
      {file_of("{} {}", 0), "not valid JSON"},
      {file_of("{\"a\xff\":1}", 0), "not valid JSON"},
      {file_of("{\"a\":1}", 0), "unexpected a number"},
      {file_of("{\"a\":null}", 0), "unexpected null"},
      {file_of("{\"a\":[]}", 0), "unexpected a list"},
      {file_of("{\"a\":{}}", 0), "expected the keys dtype, shape and data_offsets"},
      {file_of("{\"a\":{\"dtype\":{}}}", 0), "unexpected an object"},
      {file_of("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0), "appears twice"},
      {file_of("{\"a\":{\"stride\":1}}", 0), "unknown key \"stride\""},
      {file_of("{\"a\":{\"dtype\":1}}", 0), "unexpected a number"},
      {file_of("{\"a\":{\"shape\":\"F32\"}}", 0), "unexpected a string"},
      {file_of("{\"__metadata__\":{\"a\":1}}", 0), "unexpected a number"},
      {file_of("{\"__metadata__\":{\"a\":{}}}", 0), "unexpected an object"},
      {file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "twice"},
      {file_of(object(good, good), 8), "names \"a\" twice"},
      {file_of(object(tensor("a", "F33", "[2]", "[0,8]")), 8), "unknown dtype \"F33\""},
      {file_of(object(tensor("a", "F32", "[-2]", "[0,8]")), 8), "negative"},
      {file_of(object(tensor("a", "F32", "[2.0]", "[0,8]")), 8), "unexpected 2.0"},
      {file_of(object(tensor("a", "F32", "[[2]]", "[0,8]")), 8), "unexpected a list"},
      {file_of(object(tensor("a", "F32", "[true]", "[0,8]")), 8), "unexpected true"},
      {file_of(object(tensor("a", "F32", "[9223372036854775808]", "[0,8]")), 8), "dimension"},
      {file_of(object(tensor("a", "F32", "[4611686018427387904,4]", "[0,8]")), 8), "overflows 64 bits"},
      {file_of(object(tensor("a", "F32", "[3]", "[0,8]")), 8), "need 12 bytes, data_offsets give 8"},
      {file_of(object(tensor("a", "F32", "[2]", "[8,0]")), 8), "run backwards"},
      {file_of(object(tensor("a", "F32", "[2]", "[0]")), 8), "expected the keys"},
      {file_of(object(tensor("a", "F32", "[2]", "[0,8,8]")), 8), "more than two"},
      {file_of(object(tensor("a", "F32", "[2]", "[4,12]")), 12), "a hole"},
      {file_of(object(good, tensor("b", "F32", "[2]", "[4,12]")), 12), "overlap"},
      {file_of(object(good, tensor("b", "F32", "[2]", "[0,8]")), 8), "overlap"},
      {file_of(object(good, tensor("b", "F32", "[2]", "[12,20]")), 20), "a hole"},
      {file_of(object(good), 7), "truncated?"},
      {file_of(object(good), 9), "holds 9 bytes of data, its tensors 8"},
      {file_of(object(tensor("a", "F4", "[3]", "[0,1]")), 1), "not whole bytes"},
      {file_of(object(tensor("a", "U8", "[1]", "[18446744073709551614,18446744073709551615]")), 1), "a hole"},
      {file_of(std::string("{\"a\":") + std::string(200000, '[') + "}", 0), "unexpected a list"},
  };
  for (const auto& each : kCases) expect_error([&] { parse(each.file); }, each.message);
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string file = file_of(object(tensor("a", "F32", "[2]", "[0,8]")), 8);
  ASSERT_EQ(parse(file).size(), 1U);
  for (std::size_t size = 0; size < file.size(); ++size) EXPECT_THROW(parse(file.substr(0, size)), Error);
}

TEST(Safetensors, OtherDtypesFailOnlyWhenUsed) {
  const TempDir dir;
  const SafetensorsFile file(dir.write("x", file_of(object(tensor("ids", "I64", "[2]", "[0,16]"),
                                                           tensor("deep", "F32", "[1,1,1,1,1]", "[16,20]"),
                                                           tensor("none", "F32", "[0,9]", "[20,20]")),
                                                    20)));
  expect_error([&] { file.find("ids"); }, "tensor \"ids\": dtype I64 is not supported");
  expect_error([&] { file.find("deep"); }, "5 dimensions");
  EXPECT_EQ(file.find("none")->bytes(), 0U);
}

TEST(Safetensors, WriterRoundTripAndCleanUp) {
  const TempDir dir;
  const std::string path = dir / "w.safetensors";
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  const std::vector<SafetensorsSpec> specs = {{"m \"x\"", DType::f32, {2, 3}}, {"s", DType::bf16, {1}}};
  { const SafetensorsWriter abandoned(path, specs); }
  EXPECT_FALSE(std::filesystem::exists(path));
  SafetensorsWriter writer(path, specs, {{"format", "pt"}});
  const Bf16 half = to_bf16(0.5F);
  writer.write(1, 0, std::as_bytes(std::span(&half, 1)));
  writer.write(0, 8, std::as_bytes(std::span(values).subspan(2)));
  writer.write(0, 0, std::as_bytes(std::span(values).first(2)));
  writer.finish();
  const SafetensorsFile file(path);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(file.find("m \"x\"")->at(i), static_cast<float>(i));
  EXPECT_EQ(file.find("s")->at(0), 0.5F);
  EXPECT_TRUE(file.release(*file.find("s")));
  EXPECT_FALSE(file.release(TensorView{values.data(), DType::f32, {6}}));
  expect_error([&] { SafetensorsWriter again(path, specs); }, "cannot create");
}

std::string one_tensor(const std::string& name) {
  return file_of(object(tensor(name, "F32", "[2]", "[0,8]")), 8);
}

TEST(Checkpoint, SingleFile) {
  const TempDir dir;
  expect_error([&] { Checkpoint c(dir.path()); }, "neither model.safetensors nor");
  dir.write("pytorch_model.bin", "");
  expect_error([&] { Checkpoint c(dir.path()); }, "convert it to safetensors");
  dir.write("model.safetensors", one_tensor("a"));
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(checkpoint.tensor("a", {2}).bytes(), 8U);
  expect_error([&] { checkpoint.tensor("a", {1, 2}); }, "tensor \"a\" has shape [2], expected [1, 2]");
  expect_error([&] { checkpoint.tensor("b", {2}); }, "tensor \"b\" is missing, expected shape [2]");
  dir.write("model.safetensors.index.json", "{}");
  expect_error([&] { Checkpoint c(dir.path()); }, "both");
}

TEST(Checkpoint, Shards) {
  const TempDir dir;
  const std::string index = "model.safetensors.index.json";
  dir.write("one.safetensors", one_tensor("a"));
  dir.write("two.safetensors", one_tensor("b"));
  const auto open = [&] { return Checkpoint(dir.path()); };
  dir.write(
      index,
      R"({"metadata": {"total_size": 16}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  EXPECT_EQ(open().names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(open().find("b").has_value());
  const struct {
    const char* map;
    const char* message;
  } kCases[] = {
      {R"({"a": "one.safetensors"})", ""},  // fine: the other file is not part of it
      {R"({"a": "two.safetensors"})", "tensor \"b\" is not in the index (no entry)"},
      {R"({"a": "one.safetensors", "b": "one.safetensors"})", "tensor \"b\" is missing, but the index"},
      {R"({"a": "../x/one.safetensors"})", "expected the name of a file in the directory"},
      {R"({"a": "/etc/passwd"})", "expected the name of a file in the directory"},
      {R"({"a": ".."})", "expected the name of a file in the directory"},
      {R"({"a": ""})", "expected the name of a file in the directory"},
      {R"({"a": 3})", "weight_map[\"a\"] is 3"},
      {R"({"a": "three.safetensors"})", "three.safetensors: cannot open"},
      {R"([])", "weight_map is missing"},
  };
  for (const auto& each : kCases) {
    dir.write(index, std::string(R"({"weight_map": )") + each.map + "}");
    if (*each.message == '\0')
      EXPECT_EQ(open().names().size(), 1U);
    else
      expect_error([&] { open(); }, each.message);
  }
  dir.write(index, "[1]");
  expect_error([&] { open(); }, "weight_map is missing");
}

}  // namespace
}  // namespace asynct

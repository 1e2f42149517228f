#include <redlatch/net/reply.hpp>
#include <redlatch/net/reply_bounds.hpp>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using redlatch::detail::Reply;
using redlatch::detail::ReplyView;

/// What hiredis makes of these bytes.
Reply read(std::string_view bytes) {
    struct Free {
        void operator()(redisReader* reader) const noexcept { redisReaderFree(reader); }
    };
    const std::unique_ptr<redisReader, Free> reader{redisReaderCreate()};
    void* reply = nullptr;
    EXPECT_EQ(redisReaderFeed(reader.get(), bytes.data(), bytes.size()), REDIS_OK);
    EXPECT_EQ(redisReaderGetReply(reader.get(), &reply), REDIS_OK);
    EXPECT_NE(reply, nullptr) << bytes;
    return Reply{reply};
}

TEST(Reply, integer) {
    const Reply reply = read(":42\r\n");
    EXPECT_EQ(reply.view().integer(), 42);
    EXPECT_EQ(reply.view().string(), std::nullopt);
    EXPECT_EQ(reply.view().size(), std::nullopt);
    EXPECT_EQ(reply.view().text(), "");
    EXPECT_FALSE(reply.view().is_nil());
    EXPECT_FALSE(reply.view().is_error());
    EXPECT_FALSE(reply.view().is_status("42"));
}

TEST(Reply, integer_at_the_ends) {
    using Limits = std::numeric_limits<std::int64_t>;
    EXPECT_EQ(read(":0\r\n").view().integer(), 0);
    EXPECT_EQ(read(":-2\r\n").view().integer(), -2);
    EXPECT_EQ(read(":9223372036854775807\r\n").view().integer(), Limits::max());
    EXPECT_EQ(read(":-9223372036854775808\r\n").view().integer(), Limits::min());
}

TEST(Reply, status) {
    const Reply reply = read("+OK\r\n");
    EXPECT_TRUE(reply.view().is_status("OK"));
    EXPECT_FALSE(reply.view().is_status("ok"));
    EXPECT_FALSE(reply.view().is_status("O"));
    EXPECT_FALSE(reply.view().is_status(""));
    EXPECT_EQ(reply.view().text(), "OK");
    EXPECT_EQ(reply.view().string(), std::nullopt);
    EXPECT_EQ(reply.view().integer(), std::nullopt);
    EXPECT_FALSE(reply.view().is_error());
}

TEST(Reply, string) {
    const Reply reply = read("$2\r\nOK\r\n");
    EXPECT_EQ(reply.view().string(), "OK");
    EXPECT_EQ(reply.view().text(), "OK");
    EXPECT_FALSE(reply.view().is_status("OK")) << "a value must not pass for a status";
    EXPECT_EQ(reply.view().integer(), std::nullopt);
}

TEST(Reply, binary_and_empty_strings) {
    using namespace std::string_view_literals;
    EXPECT_EQ(read("$5\r\na\0\r\nb\r\n"sv).view().string(), "a\0\r\nb"sv);
    EXPECT_EQ(read("$0\r\n\r\n").view().string(), "");
}

TEST(Reply, nil) {
    for (const std::string_view bytes : {"$-1\r\n", "*-1\r\n"}) {
        const Reply reply = read(bytes);
        EXPECT_TRUE(reply.view().is_nil());
        EXPECT_EQ(reply.view().string(), std::nullopt);
        EXPECT_EQ(reply.view().integer(), std::nullopt);
        EXPECT_EQ(reply.view().size(), std::nullopt);
        EXPECT_EQ(reply.view().text(), "");
        EXPECT_FALSE(reply.view().is_status(""));
    }
}

TEST(Reply, error) {
    const Reply reply = read("-WRONGTYPE Operation\r\n");
    EXPECT_TRUE(reply.view().is_error());
    EXPECT_EQ(reply.view().text(), "WRONGTYPE Operation");
    EXPECT_EQ(reply.view().string(), std::nullopt);
    EXPECT_EQ(reply.view().integer(), std::nullopt);
    EXPECT_FALSE(reply.view().is_status("WRONGTYPE Operation"));
}

TEST(Reply, array) {
    const Reply reply = read("*4\r\n:1\r\n$2\r\nab\r\n$-1\r\n+OK\r\n");
    const ReplyView view = reply.view();
    ASSERT_EQ(view.size(), 4U);
    EXPECT_EQ(view[0].integer(), 1);
    EXPECT_EQ(view[1].string(), "ab");
    EXPECT_TRUE(view[2].is_nil());
    EXPECT_TRUE(view[3].is_status("OK"));
    EXPECT_EQ(view[0].string(), std::nullopt);
    EXPECT_EQ(view[1].integer(), std::nullopt);
    EXPECT_EQ(view.integer(), std::nullopt);
    EXPECT_EQ(view.string(), std::nullopt);
    EXPECT_EQ(view.text(), "");
    EXPECT_FALSE(view.is_nil());
}

TEST(Reply, empty_and_nested_arrays) {
    EXPECT_EQ(read("*0\r\n").view().size(), 0U);
    const Reply reply = read("*2\r\n*1\r\n:7\r\n-ERR x\r\n");
    ASSERT_EQ(reply.view().size(), 2U);
    ASSERT_EQ(reply.view()[0].size(), 1U);
    EXPECT_EQ(reply.view()[0][0].integer(), 7);
    EXPECT_TRUE(reply.view()[1].is_error());
}

TEST(Reply, none_at_all_answers_nothing) {
    const Reply reply{nullptr};
    EXPECT_EQ(reply.view().integer(), std::nullopt);
    EXPECT_EQ(reply.view().string(), std::nullopt);
    EXPECT_EQ(reply.view().size(), std::nullopt);
    EXPECT_EQ(reply.view().text(), "");
    EXPECT_FALSE(reply.view().is_nil());
    EXPECT_FALSE(reply.view().is_error());
    EXPECT_FALSE(reply.view().is_status("OK"));
}

TEST(Reply, line_of_info_is_found_by_its_whole_name) {
    const std::string info = "# Memory\r\nused_maxmemory:1\r\nmaxmemory:2\r\nempty:\r\nlast:3";
    const Reply reply = read("$" + std::to_string(info.size()) + "\r\n" + info + "\r\n");
    EXPECT_EQ(reply.view().line("maxmemory:"), "2");
    EXPECT_EQ(reply.view().line("empty:"), "");
    EXPECT_EQ(reply.view().line("last:"), "3");
    EXPECT_EQ(reply.view().line("memory:"), "");
    EXPECT_EQ(read(":1\r\n").view().line("last:"), "");
}

TEST(Reply, is_sent_once_unless_told_otherwise) {
    EXPECT_FALSE(read("+OK\r\n").repeated);
}

/// What a connection's reader makes of these bytes; the last reply may stay with it.
std::vector<Reply> read_all(std::string_view bytes, std::size_t count) {
    struct Free {
        void operator()(redisReader* reader) const noexcept { redisReaderFree(reader); }
    };
    const std::unique_ptr<redisReader, Free> reader{redisReaderCreate()};
    const redlatch::detail::ReplyBounds bounds{*reader};
    EXPECT_EQ(redisReaderFeed(reader.get(), bytes.data(), bytes.size()), REDIS_OK);
    std::vector<Reply> replies;
    for (std::size_t i = 0; i < count; ++i) {
        void* reply = nullptr;
        EXPECT_EQ(redisReaderGetReply(reader.get(), &reply), REDIS_OK);
        replies.emplace_back(reply);
    }
    return replies;
}

TEST(Reply, of_a_connection_is_what_the_server_said) {
    const auto replies = read_all(
        "+OK\r\n+OK\r\n+QUEUED\r\n$2\r\nOK\r\n:0\r\n:1\r\n:1\r\n:2\r\n:-1\r\n$-1\r\n*-1\r\n-OK\r\n",
        12);
    EXPECT_TRUE(replies[0].view().is_status("OK"));
    EXPECT_TRUE(replies[1].view().is_status("OK")) << "the first one is still there";
    EXPECT_TRUE(replies[2].view().is_status("QUEUED"));
    EXPECT_EQ(replies[3].view().string(), "OK");
    EXPECT_FALSE(replies[3].view().is_status("OK"));
    EXPECT_EQ(replies[4].view().integer(), 0);
    EXPECT_EQ(replies[5].view().integer(), 1);
    EXPECT_EQ(replies[6].view().integer(), 1);
    EXPECT_EQ(replies[7].view().integer(), 2);
    EXPECT_EQ(replies[8].view().integer(), -1);
    EXPECT_TRUE(replies[9].view().is_nil());
    EXPECT_TRUE(replies[10].view().is_nil());
    EXPECT_TRUE(replies[11].view().is_error());
    EXPECT_EQ(replies[11].view().text(), "OK");
}

TEST(Reply, of_a_connection_may_be_an_array_of_such) {
    const auto replies = read_all("*4\r\n:1\r\n+OK\r\n$-1\r\n*1\r\n:0\r\n:1\r\n", 2);
    const ReplyView array = replies[0].view();
    ASSERT_EQ(array.size(), 4U);
    EXPECT_EQ(array[0].integer(), 1);
    EXPECT_TRUE(array[1].is_status("OK"));
    EXPECT_TRUE(array[2].is_nil());
    EXPECT_EQ(array[3][0].integer(), 0);
    EXPECT_EQ(replies[1].view().integer(), 1);
}

TEST(Reply, that_nobody_took_goes_with_the_connection) {
    for (const char* const bytes :
         {"+OK\r\n", ":1\r\n", "$-1\r\n", "*2\r\n:1\r\n", "*2\r\n+OK\r\n$3\r\nab"}) {
        EXPECT_TRUE(read_all(bytes, 0).empty());
    }
    // Half of it has come when the reader is asked, and goes.
    const auto half = read_all("+OK\r\n*2\r\n:1\r\n", 2);
    EXPECT_TRUE(half[0].view().is_status("OK"));
    EXPECT_FALSE(half[1].view().integer());
}

}  // namespace

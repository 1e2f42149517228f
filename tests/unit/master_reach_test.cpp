#include <redlatch/core/master_reach.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::Fault;
using detail::TimePoint;
using Kind = detail::ConnectStatus::Kind;

constexpr bool has_room = true;

class MasterReach : public ::testing::Test {
protected:
    static Fault fault(Errc code = Errc::unavailable) {
        return {.error = {code, {}, {}, "refused", {}}, .maybe_executed = true};
    }
    Kind request(bool room = has_room) { return reach_.request(room, now_).kind; }

    TimePoint now_{1h};
    detail::MasterReach reach_;
};

TEST_F(MasterReach, has_one_connection_made_at_a_time) {
    EXPECT_FALSE(reach_.connects());
    const auto first = reach_.request(has_room, now_);
    EXPECT_EQ(first.kind, Kind::coming);
    EXPECT_EQ(first.since, now_);
    EXPECT_TRUE(reach_.connects());
    EXPECT_EQ(reach_.request(has_room, now_ + 1ms).since, now_) << "it is on its way";
    reach_.connected({}, now_ + 2ms);
    EXPECT_FALSE(reach_.connects());
    EXPECT_EQ(reach_.request(has_room, now_ + 3ms).since, now_ + 3ms) << "the next one";
}

TEST_F(MasterReach, has_none_made_where_there_is_no_room) {
    EXPECT_EQ(request(!has_room), Kind::coming) << "somebody may give one back";
    EXPECT_FALSE(reach_.connects());
}

TEST_F(MasterReach, closes_idle_connections_for_the_one_that_ends_a_doubt) {
    EXPECT_FALSE(reach_.wants_room(!has_room)) << "they are of use";
    reach_.failed(fault());
    EXPECT_FALSE(reach_.wants_room(has_room));
    EXPECT_TRUE(reach_.wants_room(!has_room)) << "none of them is used before it was reached anew";
    request();
    reach_.connected({}, now_);
    EXPECT_FALSE(reach_.wants_room(!has_room));
}

TEST_F(MasterReach, is_tried_again_after_a_pause) {
    request();
    reach_.connected(fault(), now_);
    EXPECT_TRUE(reach_.is_doubtful());
    now_ += 99ms;
    EXPECT_EQ(request(), Kind::none);
    EXPECT_FALSE(reach_.connects());
    now_ += 1ms;
    EXPECT_EQ(request(), Kind::doubtful);
    EXPECT_TRUE(reach_.connects());
    reach_.connected({}, now_);
    EXPECT_FALSE(reach_.is_doubtful());
}

TEST_F(MasterReach, is_tried_at_once_after_a_command_that_failed_where_it_was_reached_just_before) {
    request();
    reach_.connected({}, now_);
    EXPECT_TRUE(reach_.failed(fault()));
    EXPECT_EQ(request(), Kind::doubtful);
    EXPECT_TRUE(reach_.connects());
    reach_.connected(fault(), now_);
    EXPECT_FALSE(reach_.failed(fault())) << "of a command on an older connection";
    EXPECT_EQ(request(), Kind::none) << "it was tried just now";
}

TEST_F(MasterReach, is_doubtful_after_a_command_that_it_did_not_answer) {
    EXPECT_FALSE(reach_.failed(fault(Errc::wrong_type))) << "it has answered";
    EXPECT_FALSE(reach_.is_doubtful());
    EXPECT_TRUE(reach_.failed(fault()));
    EXPECT_FALSE(reach_.failed(fault())) << "its connections are closed already";
    const auto status = reach_.request(has_room, now_);
    EXPECT_EQ(status.kind, Kind::doubtful) << "at once";
    EXPECT_FALSE(status.fault.maybe_executed) << "no command of whoever asks now";
}

}  // namespace

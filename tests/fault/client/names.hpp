#pragma once

#include <redlatch/redlatch.hpp>

#include <map>
#include <string>

// Outcomes as a history names them.

namespace redlatch::test::fault {

inline std::string name_of(Release outcome) {
    static const std::map<Release, std::string> names{{Release::released, "released"},
                                                      {Release::still_held, "still_held"},
                                                      {Release::expired, "expired"},
                                                      {Release::not_held, "not_held"}};
    return names.at(outcome);
}

inline std::string name_of(HoldState state) {
    static const std::map<HoldState, std::string> names{{HoldState::none, "none"},
                                                        {HoldState::held, "held"},
                                                        {HoldState::uncertain, "uncertain"},
                                                        {HoldState::lost, "lost"}};
    return names.at(state);
}

inline std::string name_of(Errc code) {
    static const std::map<Errc, std::string> names{{Errc::timed_out, "timed_out"},
                                                   {Errc::cancelled, "cancelled"},
                                                   {Errc::lost, "lost"},
                                                   {Errc::not_held, "not_held"},
                                                   {Errc::unavailable, "unavailable"},
                                                   {Errc::no_quorum, "no_quorum"},
                                                   {Errc::denied, "denied"},
                                                   {Errc::wrong_type, "wrong_type"},
                                                   {Errc::unclear, "unclear"},
                                                   {Errc::deadlock, "deadlock"},
                                                   {Errc::protocol, "protocol"},
                                                   {Errc::invalid_argument, "invalid_argument"}};
    const auto found = names.find(code);
    return found == names.end() ? make_error_code(code).message() : found->second;
}

}  // namespace redlatch::test::fault

#pragma once

#include <redlatch/async/command_operation.hpp>
#include <redlatch/service/shared_client.hpp>
#include <redlatch/steps/ask.hpp>
#include <redlatch/steps/inspect.hpp>

#include <utility>

namespace redlatch::inline v0::detail {

/// Asks the server who holds a lock, or permits, without a thread that waits.
template <class Info>
class InspectOperation final : public CommandOperation<Info> {
public:
    using Read = Info (*)(const ReplyView& answer, const LockSpec& spec);

    InspectOperation(const LockSpec& spec, Read read)
        : CommandOperation<Info>(spec.client->session(), spec.keys), spec_(spec), read_(read) {}

private:
    void happened(unsigned) noexcept override {
        this->send(
            CommandRank::usual, this->answer_by(), nullptr,
            [spec = spec_](bool) { return inspect_call(*spec.keys, spec.traits); },
            [this](Expected<Reply, Fault> reply, const MasterSets&, TimePoint) {
                auto said = told(*this->session_, spec_, std::move(reply));
                if (!said) return this->complete(Unexpected{std::move(said).error()});
                this->complete(read_(said->view(), spec_));
            },
            {}, spec_.traits.scripts);
    }

    const LockSpec spec_;
    const Read read_;
};

}  // namespace redlatch::inline v0::detail

#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/command.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/net/script.hpp>
#include <redlatch/options.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace redlatch::inline v0::detail {

/// How a call is put on the wire of one connection.
struct EncodeOptions {
    SendForm form{};
    std::string_view server = "-";  ///< the run id of the server at the other end, `-` if unknown
    std::int64_t server_deadline = 0;  ///< by its clock: when the call must do nothing any more
};

/// One argument of a command: bytes that live elsewhere, a number, or what only the connection
/// knows that the command will go out on.
class Argument {
public:
    constexpr Argument() = default;
    constexpr Argument(std::string_view bytes) : bytes_(bytes) {}
    constexpr Argument(const char* text) : bytes_(text) {}
    Argument(const std::string& bytes) : bytes_(bytes) {}
    constexpr Argument(std::int64_t number) : number_(number), kind_(Kind::number) {}

    static constexpr Argument server() {
        Argument argument;
        argument.kind_ = Kind::server;
        return argument;
    }

    static constexpr Argument server_deadline() {
        Argument argument;
        argument.kind_ = Kind::server_deadline;
        return argument;
    }

    using Digits = std::array<char, 20>;

    /// The bytes to send; a number is written into `digits`, which has to outlive the result.
    std::string_view bytes(Digits& digits, const EncodeOptions& options = {}) const noexcept {
        if (kind_ == Kind::bytes) return bytes_;
        if (kind_ == Kind::server) return options.server;
        const std::int64_t number =
            kind_ == Kind::server_deadline ? options.server_deadline : number_;
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
        return {digits.data(), static_cast<std::size_t>(end.ptr - digits.data())};
    }

private:
    enum class Kind { bytes, number, server, server_deadline };

    std::string_view bytes_;
    std::int64_t number_ = 0;
    Kind kind_ = Kind::bytes;
};

/// A command to send: a script with its keys and arguments, or a plain command. Borrows all bytes.
///
/// A script has to do without all keys but the first where the server's ACL forbids the others,
/// unless it needs them all.
class Call {
public:
    Call(const Script& script, std::initializer_list<std::string_view> keys,
         std::initializer_list<Argument> arguments, ReplyShape shape = ReplyShape::integer)
        : script_(&script), shape_(shape), count_(first_key), keys_(keys.size()) {
        for (const std::string_view key : keys) slots_[count_++] = key;
        for (const Argument& argument : arguments) slots_[count_++] = argument;
    }

    /// The same, but for a script that is of no use without all its keys.
    Call with_all_keys(bool needed) const {
        Call call = *this;
        call.needs_all_keys_ = needed;
        return call;
    }

    /// The same for an acquisition that is to be acknowledged by replicas.
    Call for_replicas(Replicas replicas) const {
        Call call = *this;
        call.replicas_ = replicas;
        return call;
    }
    Replicas replicas() const noexcept { return replicas_; }

    /// The same where the first key is to be of that type, by the server's word for it.
    Call for_type(std::string_view type) const {
        Call call = *this;
        call.type_ = type;
        return call;
    }
    std::string_view type() const noexcept { return type_; }

    static Call plain(std::initializer_list<Argument> words, ReplyShape shape = ReplyShape::any) {
        return {words, shape};
    }

    ReplyShape shape() const noexcept { return shape_; }

    bool is_script() const noexcept { return script_ != nullptr; }

    /// The key by which it finds its server; empty where it has none.
    std::string_view key() const noexcept {
        Argument::Digits digits;
        if (is_script()) return slots_[first_key].bytes(digits);
        return count_ > 1 ? slots_[1].bytes(digits) : std::string_view{};
    }

    const Script* script() const noexcept { return script_; }
    bool can_omit_keys() const noexcept { return keys_ > 1 && !needs_all_keys_; }

    /// Whether a text names one of the keys but the first, as the scripts do.
    bool names_companion(std::string_view text) const {
        Argument::Digits digits;
        for (std::size_t i = first_key + 1; i < first_key + keys_; ++i) {
            const std::string mark = " (" + std::string{slots_[i].bytes(digits)} + ")";
            if (text.find(mark) != std::string_view::npos) return true;
        }
        return false;
    }

    /// The keys but the first, each of which has that one's name in it, as patterns of an ACL.
    std::string key_patterns() const {
        Argument::Digits digits;
        std::string text;
        for (std::size_t i = first_key + 1; i < first_key + keys_; ++i) {
            const std::string_view name = slots_[i].bytes(digits);
            const std::size_t varies = name.rfind(key());
            const bool found = varies != std::string_view::npos && varies > 0;
            text += " ~" + printable(name.substr(0, found ? varies - 1 : 0)) + "*";
        }
        return text;
    }

    /// The bytes that go over the wire: how many words, and before each how long it is. Formats by hand:
    /// hiredis does it with `sprintf`, which took half of a lock's time here.
    std::string wire(const EncodeOptions& options = {}) const {
        std::string bytes;
        append_to(bytes, options);
        return bytes;
    }

    /// The same, behind the bytes that are there.
    void append_to(std::string& bytes, const EncodeOptions& options = {}) const {
        const std::size_t omitted = options.form.first_key_only && can_omit_keys() ? keys_ - 1 : 0;
        std::array<Argument::Digits, capacity> digits;
        std::array<std::string_view, capacity> words;
        std::size_t count = 0;
        std::size_t size = most_digits;
        for (std::size_t i = 0; i < count_; ++i) {
            if (i > first_key && i <= first_key + omitted) continue;
            words[count] = slot(i, options, keys_ - omitted).bytes(digits[count], options);
            size += words[count++].size() + most_digits;
        }
        const std::size_t before = bytes.size();
        bytes.resize(before + size);
        char* const begin = bytes.data();
        char* at = write_count(begin + before, '*', count);
        for (std::size_t i = 0; i < count; ++i) {
            at = write_count(at, '$', words[i].size());
            at = end_line(write(at, words[i]));
        }
        bytes.resize(static_cast<std::size_t>(at - begin));
    }

    /// Waits until so many replicas have what was written before. WAIT takes 0 for "without limit", and may
    /// answer a tenth of a second later than it was told.
    static Call wait_for_replicas(std::int64_t wanted, Clock::duration left) {
        constexpr std::int64_t an_hour = 3'600'000;
        const std::int64_t ms = std::chrono::floor<std::chrono::milliseconds>(left).count();
        const std::int64_t early = std::min<std::int64_t>(ms / 2, 120);
        return plain({"WAIT", wanted, std::clamp<std::int64_t>(ms - early, 1, an_hour)});
    }

private:
    static constexpr std::size_t capacity = 16;
    static constexpr std::size_t first_key = 3;  // behind EVALSHA, the SHA and the number of keys
    static constexpr std::size_t most_digits = 32;  // of a length, with the signs around it

    Call(std::initializer_list<Argument> words, ReplyShape shape) : shape_(shape) {
        for (const Argument& word : words) slots_[count_++] = word;
    }

    static char* write(char* at, std::string_view bytes) noexcept {
        return std::copy(bytes.begin(), bytes.end(), at);
    }
    /// Not by a call of `memmove`, of which there would be as many as words.
    static char* end_line(char* at) noexcept {
        *at++ = '\r';
        *at++ = '\n';
        return at;
    }
    /// Most counts have two digits at most.
    static char* write_count(char* at, char kind, std::size_t count) noexcept {
        *at++ = kind;
        if (count >= 100) return end_line(std::to_chars(at, at + most_digits, count).ptr);
        if (count >= 10) *at++ = static_cast<char>('0' + count / 10);
        *at++ = static_cast<char>('0' + count % 10);
        return end_line(at);
    }

    Argument slot(std::size_t i, const EncodeOptions& options, std::size_t keys) const noexcept {
        if (!is_script() || i >= first_key) return slots_[i];
        if (i == 2) return static_cast<std::int64_t>(keys);
        if (options.form.whole) return i == 0 ? Argument{"EVAL"} : Argument{script_->source()};
        return i == 0 ? Argument{"EVALSHA"} : Argument{script_->sha()};
    }

    const Script* script_ = nullptr;
    ReplyShape shape_;
    std::array<Argument, capacity> slots_{};
    std::size_t count_ = 0;
    std::size_t keys_ = 0;
    bool needs_all_keys_ = false;
    Replicas replicas_ = Replicas::none();
    std::string_view type_;  // empty where any will do
};

}  // namespace redlatch::inline v0::detail

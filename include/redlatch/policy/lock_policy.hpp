#pragma once

#include <redlatch/compilation.hpp>

#include <concepts>
#include <string_view>

namespace redlatch::inline v0 {

struct LockScripts;

/// The Redis type of the key that a lock lives in. One name has one at a time.
enum class KeyType {
    string,      ///< the owner's token
    hash,        ///< the owner's token → its hold count
    sorted_set,  ///< each holder's claim → the end of its lease
};

namespace detail {

/// The server's word for the type of such a key.
constexpr std::string_view type_of(KeyType key_type) noexcept {
    if (key_type == KeyType::sorted_set) return "zset";
    return key_type == KeyType::string ? "string" : "hash";
}

}  // namespace detail

/// Says how a lock is stored: in a key of which type, changed by which scripts.
template <class P>
concept StoresLock = requires {
    { P::key_type } -> std::convertible_to<KeyType>;
    { P::scripts() } -> std::same_as<const LockScripts&>;
};

/// Says how a lock behaves: whether the thread that holds it may take it again (`reentrant`), and
/// whether its lease is renewed until it is released (`watched`).
template <class P>
concept DescribesHolds = requires {
    { P::reentrant } -> std::convertible_to<bool>;
    { P::watched } -> std::convertible_to<bool>;
};

/// Whether each new acquisition gets a fencing token. Not for a policy that does not say so.
template <class P>
inline constexpr bool is_fenced = false;
/// That of a policy that says so.
template <class P>
    requires requires {
        P::fenced;
    }
inline constexpr bool is_fenced<P> = P::fenced;

/// Whether several may hold the lock for reading. Not for a policy that does not say so.
template <class P>
inline constexpr bool is_shared = false;
/// That of a policy that says so.
template <class P>
    requires requires {
        P::shared;
    }
inline constexpr bool is_shared<P> = P::shared;

/// What `Lock` asks of its policy: a plain type with four static members, and two more, `fenced` and
/// `shared`, if it likes. `Simple`, `Reentrant`, `Watchdog<P>` and `Fenced<P>` are examples; to change one thing,
/// derive from a policy and redeclare it:
///
///     struct Audited : redlatch::Simple {
///         static const redlatch::LockScripts& scripts();   // also writes a log entry
///     };
template <class P>
concept LockPolicy = StoresLock<P> && DescribesHolds<P>;

namespace detail {

/// A policy as a value, for the code below `Lock` that is no template.
struct PolicyTraits {
    KeyType key_type;
    bool reentrant;
    bool watched;
    bool fenced;
    const LockScripts* scripts;
    bool can_move = false;  ///< one of them gives the lock to a next token
    bool can_keep = false;  ///< one of them keeps the lock from everybody after a release
    bool shared = false;

    /// Several may hold the lock, each with a claim.
    constexpr bool has_claims() const noexcept { return key_type == KeyType::sorted_set; }
};

}  // namespace detail
}  // namespace redlatch::inline v0

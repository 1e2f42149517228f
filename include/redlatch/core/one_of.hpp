#pragma once

#include <redlatch/compilation.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace redlatch::inline v0::detail {

/// One of several types, such as a machine's actions: what a `std::variant` is, with functions of the same names below.
/// A `std::variant` takes the compiler some 250 functions for each machine, this one some 50.
template <class... Ts>
class OneOf {
public:
    static constexpr std::size_t size = sizeof...(Ts);

    template <class T>
        requires(std::is_same_v<T, Ts> || ...)
    OneOf(T what) : index_(index_of<T>) { ::new (place()) T(std::move(what)); }
    OneOf(const OneOf& other) : index_(other.index_) {
        (void)((index_ == index_of<Ts> && ::new (place())
                                              Ts(*static_cast<const Ts*>(other.place()))) ||
               ...);
    }
    OneOf(OneOf&& other) noexcept : index_(other.index_) {
        (void)((index_ == index_of<Ts> && ::new (place())
                                              Ts(std::move(*static_cast<Ts*>(other.place())))) ||
               ...);
    }
    OneOf& operator=(OneOf other) noexcept {
        this->~OneOf();
        return *::new (static_cast<void*>(this)) OneOf(std::move(other));
    }
    ~OneOf() {
        (void)((index_ == index_of<Ts> && (static_cast<Ts*>(place())->~Ts(), true)) || ...);
    }

    std::size_t index() const noexcept { return index_; }

    template <class T>
    static constexpr std::size_t index_of = [] {
        std::size_t index = 0;
        (void)((std::is_same_v<T, Ts> || (++index, false)) || ...);
        return index;
    }();

    /// Where the value lies.
    void* place() noexcept { return bytes_.data(); }
    const void* place() const noexcept { return bytes_.data(); }

private:
    std::size_t index_;
    alignas(Ts...) std::array<std::byte, std::max({sizeof(Ts)...})> bytes_;
};

template <class T, class... Ts>
bool holds_alternative(const OneOf<Ts...>& one) noexcept {
    return one.index() == OneOf<Ts...>::template index_of<T>;
}

/// @{
/// Null for another type.
template <class T, class... Ts>
T* get_if(OneOf<Ts...>* one) noexcept {
    return holds_alternative<T>(*one) ? static_cast<T*>(one->place()) : nullptr;
}
template <class T, class... Ts>
const T* get_if(const OneOf<Ts...>* one) noexcept {
    return holds_alternative<T>(*one) ? static_cast<const T*>(one->place()) : nullptr;
}
/// @}

/// @{
/// The value, which has to be of that type.
template <class T, class... Ts>
T& get(OneOf<Ts...>& one) noexcept {
    return *get_if<T>(&one);
}
template <class T, class... Ts>
const T& get(const OneOf<Ts...>& one) noexcept {
    return *get_if<T>(&one);
}
template <class T, class... Ts>
T&& get(OneOf<Ts...>&& one) noexcept {
    return std::move(*get_if<T>(&one));
}
/// @}

/// @{
/// Calls `function` with the value. It answers with the same type for each.
template <class Function, class T, class... Ts>
auto visit_at(const Function& function, std::size_t index, auto* place) {
    if constexpr (sizeof...(Ts) > 0) {
        if (index != 0) return visit_at<Function, Ts...>(function, index - 1, place);
    }
    return function(*static_cast<T*>(place));
}
template <class Function, class... Ts>
auto visit(const Function& function, OneOf<Ts...>& one) {
    return visit_at<Function, Ts...>(function, one.index(), one.place());
}
template <class Function, class... Ts>
auto visit(const Function& function, const OneOf<Ts...>& one) {
    return visit_at<Function, const Ts...>(function, one.index(), one.place());
}
/// @}

}  // namespace redlatch::inline v0::detail

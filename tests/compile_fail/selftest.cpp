// expect: no lock here

template <class T>
constexpr void check() {
    static_assert(sizeof(T) > 1, "no lock here");
}

int main() {
#ifdef REDLATCH_EXPECT_FAIL
    check<char>();
#else
    check<long>();
#endif
}

pub const TESTS: &[super::Test] = &[];

// Package quorumtest tests quorum Lockers on real databases. It has tests only.
package quorumtest

package main

import (
	"path"
	"slices"
	"strings"
)

// exempt are the paths whose names the replacement of the schema changes.
var exempt = []string{"driver/", "lockpg/", "lockmysql/", "locksqlite/", "migrations/"}

// A rule says where a word is private and what to write for it.
type rule struct {
	write string
	// scope is where the word is private. In other places it is plain English.
	scope scope
	paths []string // only there, everywhere if empty
}

type scope int

const (
	everywhere scope = iota // in names, and in test names and headings
	inNames                 // not in test names and headings
	notLocal                // in addition not in parameters and local variables
	wholeNames              // in addition not in a name of several words
)

// applies tells whether the word is private in a name of n words in the file at path.
func (r rule) applies(path string, k kind, n int) bool {
	switch {
	case r.scope >= inNames && k == sentence, r.scope >= notLocal && k == localName, r.scope >= wholeNames && n > 1:
		return false
	}
	return len(r.paths) == 0 || matchesAny(r.paths, path)
}

// matchesAny tells whether one of the patterns matches: a directory that ends in a
// slash with all below it, or a glob for the whole path.
func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if strings.HasSuffix(p, "/") {
			return strings.HasPrefix(name, p)
		}
		ok, _ := path.Match(p, name)
		return ok
	})
}

// core are the paths where locking itself is described.
var core = []string{"*.go", "sqllocktest/", "internal/conformance/", "internal/queuetest/",
	"internal/batch/", "internal/session/", "internal/sqlconn/", "internal/clock/"}

// private are the words of the old vocabulary, with all their forms.
var private = index(
	// How a lock is got.
	words("acquisition", inNames, nil, "attempt", "attempts"),
	words("request", inNames, nil, "ask", "asks", "asked", "asking"),
	words("known, answered or received", inNames, nil, "told", "telling", "said"),
	words("record", inNames, nil, "learn", "learns", "learned"),
	words("shared batch, or many callers", everywhere, nil, "crowd", "crowds", "crowded", "crowding"),
	words("isolated, or single", notLocal, core, "alone", "lone", "lonely"),
	words("granted", notLocal, core, "served"),
	// Terms.
	words("term, or keep", notLocal, nil, "hold", "holds"),
	words("term, or keep", everywhere, nil, "stint", "stints", "fret", "frets", "worry", "worries"),
	words("cancel", wholeNames, core, "abort", "final"),
	// Waiting.
	words("wait", inNames, nil, "stand", "stands", "standing", "stood"),
	words("queue", notLocal, core, "line", "lines", "lined"),
	words("queue, position or address", inNames, nil, "place", "places"),
	words("prune", everywhere, nil, "tidy", "tidies", "tidied", "untidy"),
	words("admitted", everywhere, nil, "seated"),
	words("next waiter", everywhere, nil, "heir", "heirs"),
	words("claim", inNames, nil, "ticket", "tickets", "ticketed", "ticketing"),
	words("handed over, connection token, or due", inNames, nil, "turn", "turns"),
	// Waking.
	words("run", everywhere, nil, "attend", "attends", "attended", "attending"),
	words("recheck", everywhere, nil, "nudge", "nudges", "nudged"),
	words("wake", everywhere, nil, "kick", "kicks", "kicked", "rouse", "rouses", "stir", "stirs"),
	words("idle", notLocal, core, "rest", "rests", "rested", "resting"),
	words("listener", everywhere, nil, "ears"),
	words("noPush", everywhere, nil, "deaf"),
	words("listening", everywhere, nil, "hearing"),
	words("keepOpen", everywhere, nil, "linger", "lingers", "lingering"),
	// Batches and connections.
	words("batcher", everywhere, nil, "collector", "collectors"),
	words("pending", everywhere, nil, "errand", "errands"),
	words("cancel", everywhere, nil, "desert", "deserts", "deserted"),
	words("send", inNames, nil, "fly", "flies", "flew"),
	words("inFlight", inNames, nil, "flying"),
	words("done", everywhere, nil, "landed", "lands"),
	words("maxFast", everywhere, nil, "swift"),
	words("maxInFlight, or reserved connection", everywhere, nil, "lane", "lanes", "laned"),
	words("slow", everywhere, nil, "overdue"),
	words("inflight, or blockedUntil", inNames, nil, "gate", "gates", "gated", "ungated"),
	words("sessionConn", everywhere, nil, "seat", "seats", "seating"),
	words("sessionLock", everywhere, nil, "grip", "grips"),
	words("connLimit", inNames, nil, "room", "rooms"),
	words("connLimit", everywhere, nil, "roomy"),
	words("waitingInDB", everywhere, nil, "park", "parks", "parked", "parking", "unpark"),
	words("batchRequest, or want", inNames, nil, "wanted", "unwanted", "unwant"),
	words("sharedConn", everywhere, nil, "carrier", "carriers"),
	// The rest.
	words("inspect", notLocal, nil, "inside"),
	words("retry", everywhere, nil, "insist", "insists"),
	words("withTimeout", inNames, nil, "bounded"),
	words("capabilities", everywhere, nil, "lining"),
	words("capabilities", wholeNames, core, "lives", "txs", "why", "single"),
	words("cleanup", inNames, nil, "undo", "undoes", "undoing", "undone"),
	words("unknown", inNames, nil, "unclear", "undecided"),
	words("unknown", everywhere, nil, "hazy"),
	// Words that are in no glossary and say nothing to a stranger.
	words("timeout, or wait", inNames, nil, "patience", "patient", "patiently", "impatient"),
	words("sleep, or pause", inNames, nil, "nap", "naps", "peace"),
	words("early, or premature", inNames, nil, "rash", "hasty", "hastily", "hastiest"),
	words("quick, or short", inNames, nil, "brief", "briefly"),
	words("other, or unknown", inNames, nil, "stranger", "strangers", "squatter"),
	words("supervisor", everywhere, nil, "warden", "wardens"),
	words("watchdog", inNames, nil, "guardian", "guardians"),
	words("recorder", inNames, nil, "spy", "spied"),
	words("apply, or fault", inNames, nil, "struck", "strike", "strikes"),
	words("pause, or quiet period", inNames, nil, "calm"),
	words("large", inNames, nil, "bulky"),
	words("errors, or log", inNames, nil, "complain", "complaints"),
	words("close, or free", inNames, nil, "disband", "disown"),
	words("replaced", inNames, nil, "overthrown"),
	words("dead, or failed", inNames, nil, "stillborn", "zombies", "mortal", "bury", "buries", "buried", "grave"),
	words("repair", inNames, nil, "mend", "mends", "mending"),
	words("outcome", inNames, nil, "fate"),
	words("required", inNames, nil, "vital"),
	words("result", inNames, nil, "news"),
)

// ingNouns are nouns, not participles, and may end the name of a type.
var ingNouns = map[string]bool{"finding": true, "setting": true, "string": true, "meeting": true, "pending": true}

// allowed are names that keep a private word because it means something else there: all
// names in a path that contain a text, in lower case.
var allowed = []struct {
	word, path, name string
}{
	{"hold", "", "minhold"},                               // the option MinHold
	{"hold", "", "maxhold"},                               // the option MaxHold
	{"attempts", "hooks.go", "attempts"},                  // exported
	{"line", "docs_test.go", ""},                          // of a text
	{"alone", "internal/conformance/harness.go", "alone"}, // exported by sqllocktest
	{"brief", "internal/conformance/harness.go", "brief"},
	{"seats", "examples/flashsale/", ""}, // of a theatre
	{"ticket", "examples/flashsale/", ""},
	{"tickets", "examples/flashsale/", ""},
}

func isAllowed(word, path, name string) bool {
	for _, a := range allowed {
		if a.word == word && strings.HasPrefix(path, a.path) && strings.Contains(strings.ToLower(name), a.name) {
			return true
		}
	}
	return false
}

type entry struct {
	words []string
	rule  rule
}

func words(write string, s scope, paths []string, words ...string) entry {
	return entry{words: words, rule: rule{write: write, scope: s, paths: paths}}
}

func index(entries ...entry) map[string]rule {
	byWord := map[string]rule{}
	for _, e := range entries {
		for _, w := range e.words {
			if _, ok := byWord[w]; ok {
				panic("bug: " + w + " is listed twice")
			}
			byWord[w] = e.rule
		}
	}
	return byWord
}

func replacement(word string) string {
	if r, ok := private[word]; ok {
		return r.write
	}
	for _, p := range phrases {
		if p.pattern.MatchString(word) {
			return p.write
		}
	}
	return "the noun: grantBatch, releaseBatch, …"
}

// Package quorum has the rules of a lock over several databases that know nothing of each other,
// its nodes: how many of them make a quorum, when an acquisition over them has got the name, with
// which token, and when a term goes on. The rules are pure: they run no SQL, read no clock and
// start no goroutine. The tests of the package explore them.
//
// Each node keeps names in rows, as unique mode does: a row has an acquisition, a version that
// rises with every grant, and an expiry. An acquisition asks all nodes. When a quorum has granted
// it the name, its token is the highest version among these grants. It then raises the versions
// of the other rows that it was granted to the token, and has the name when a quorum of nodes has
// stored the token, or a higher version. The raise makes tokens unique and rising: the next quorum
// has a node in common with this one, whose next version is higher than the token. Without it,
// the node in common may be one that drew a low version.
package quorum

import (
	"math"
	"slices"
)

// MaxNodes is how many nodes there can be. Each lock costs a statement on every node.
const MaxNodes = 9

// Need returns how many of the nodes make a quorum if faulty of them may forget what they have
// stored: ⌈(nodes+faulty+1)/2⌉. Two quorums then have more than faulty nodes in common. There is
// no quorum if the result is more than nodes.
func Need(nodes, faulty int) int { return (nodes + faulty + 2) / 2 }

// Outcome is what is known of a round.
type Outcome uint8

// The outcomes.
const (
	Open    Outcome = iota // replies are missing that decide it
	Granted                // a quorum of nodes has stored the token
	Lost                   // a quorum cannot be reached any more
)

// Round is one acquisition of a name over the nodes. When it is lost, the caller gives it up for
// good, whatever comes later, and releases the acquisition on all nodes, also on those that have
// not answered. When it is granted, it goes on to take replies that are late. A Round can be
// copied. It is not safe for concurrent use.
type Round struct {
	need, count int
	token       int64 // 0 until a quorum has granted the name
	granted     bool
	nodes       [MaxNodes]node
}

// node is what a round knows of one node.
type node struct {
	state   nodeState
	version int64 // of the row, unless the state is silent or out
}

type nodeState uint8

const (
	silent  nodeState = iota // it has not answered
	out                      // it has refused, or it is not known whether it has granted the name
	drawn                    // it has granted the name, with a version that may be too low
	raising                  // its version is being raised to the token
	above                    // it has answered late, with a version above the token
	stored                   // it counts: its row has the token, or a higher version
)

// NewRound returns a round over so many nodes, of which need make a quorum.
func NewRound(nodes, need int) Round { return Round{need: need, count: nodes} }

// Token returns the token of the round, or 0 if a quorum has not granted the name yet.
func (r *Round) Token() int64 { return r.token }

// Grant notes that a node has granted the name with a version. It may come late, also when the
// round is granted.
func (r *Round) Grant(i int, version int64) {
	r.nodes[i] = node{drawn, version}
	if r.token == 0 && r.with(drawn) >= r.need {
		for i := range r.count {
			r.token = max(r.token, r.nodes[i].version)
		}
	}
	r.settle()
}

// settle notes which nodes count.
//
// A node that answers late, with a version above the token, does not count for the grant: another
// acquisition may have the same token, with a quorum that has this node in common with ours, and
// have ended before this node has granted us the name. When the round is granted without it, it
// counts: the next grant of this node has a higher version still.
func (r *Round) settle() {
	for i := range r.count {
		n := &r.nodes[i]
		switch {
		case r.token == 0 || n.state != drawn && n.state != above:
		case n.version == r.token || n.version > r.token && r.granted:
			n.state = stored
		case n.version > r.token:
			n.state = above
		}
	}
	if !r.granted && r.with(stored) >= r.need {
		r.granted = true
		r.settle()
	}
}

// Refuse notes that a node has not granted the name, or has not said in time whether it has. If
// it has granted it all the same, Grant can tell so later.
func (r *Round) Refuse(i int) { r.nodes[i] = node{state: out} }

// ToRaise returns the nodes whose versions are to be raised to the token now. Each is returned
// once, and counts when [Round.Raise] has said that it was raised.
func (r *Round) ToRaise() (nodes []int) {
	for i := range r.count {
		if n := &r.nodes[i]; n.state == drawn && r.token != 0 {
			n.state = raising
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// Raise notes that the row of a node has the token now, or that this is not known.
func (r *Round) Raise(i int, done bool) {
	if !done {
		r.Refuse(i)
		return
	}
	r.nodes[i] = node{stored, r.token}
	r.settle()
}

// Outcome tells what is known of the round.
func (r *Round) Outcome() Outcome {
	switch {
	case r.granted:
		return Granted
	case r.with(stored)+r.with(silent)+r.with(drawn)+r.with(raising) < r.need:
		return Lost
	}
	return Open
}

// Version returns the version that a node has stored for the term, or 0 if it has not stored one
// that counts.
func (r *Round) Version(i int) int64 {
	if n := &r.nodes[i]; n.state == stored {
		return n.version
	}
	return 0
}

func (r *Round) with(s nodeState) (n int) {
	for i := range r.count {
		if r.nodes[i].state == s {
			n++
		}
	}
	return n
}

// Reply is what one node says of something that is asked of all of them, such as a renewal.
type Reply uint8

// The replies.
const (
	Missing Reply = iota // it has not answered yet
	Unknown              // it will not answer, or has said that it could not do it now
	Yes
	No
)

// Verdict is what the replies of all nodes come to.
type Verdict uint8

// The verdicts.
const (
	Pending   Verdict = iota // replies are missing that decide it
	Confirmed                // a quorum has said yes
	Refused                  // so many have said no that a quorum cannot say yes
	Uncertain                // neither, and no reply is missing
)

// Judge returns what replies come to if need of them make a quorum. A term goes on if a quorum
// has renewed it, and is lost if its renewal was refused.
func Judge(replies []Reply, need int) Verdict {
	var n [No + 1]int
	for _, r := range replies {
		n[r]++
	}
	switch {
	case n[Yes] >= need:
		return Confirmed
	case len(replies)-n[No] < need:
		return Refused
	case n[Missing] > 0 && n[Yes]+n[Missing] >= need, n[Missing] > 0 && len(replies)-n[No]-n[Missing] < need:
		return Pending
	}
	return Uncertain
}

// Quorum returns the highest value that need of the values reach, such as for how long a quorum
// of nodes keeps a name. If there are fewer values it returns the lowest int64.
func Quorum(values []int64, need int) int64 {
	if len(values) < need {
		return math.MinInt64
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)-need]
}

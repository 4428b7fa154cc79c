package quorum_test

import (
	"math"
	"slices"
	"testing"

	"github.com/sqllock/sqllock/internal/quorum"
)

func TestARoundRaisesWhatIsLower(t *testing.T) {
	r := quorum.NewRound(3, 2)
	r.Grant(0, 7)
	if r.Token() != 0 || len(r.ToRaise()) != 0 || r.Outcome() != quorum.Open {
		t.Fatalf("after one grant: token %d, outcome %d", r.Token(), r.Outcome())
	}
	r.Grant(2, 9)
	if got := r.ToRaise(); r.Token() != 9 || !slices.Equal(got, []int{0}) {
		t.Fatalf("after two grants: token %d, to raise %v", r.Token(), got)
	}
	if got := r.ToRaise(); len(got) != 0 {
		t.Errorf("asked again, %v are to be raised", got)
	}
	if r.Outcome() != quorum.Open || r.Version(0) != 0 {
		t.Errorf("before the raise is done: outcome %d, version %d of the node", r.Outcome(), r.Version(0))
	}
	r.Raise(0, true)
	if r.Outcome() != quorum.Granted || r.Version(0) != 9 || r.Version(2) != 9 || r.Version(1) != 0 {
		t.Errorf("after the raise: outcome %d, versions %d, %d and %d", r.Outcome(), r.Version(0), r.Version(1), r.Version(2))
	}
	r.Grant(1, 12)
	if r.Version(1) != 12 || r.Token() != 9 {
		t.Errorf("after a late grant above the token: version %d, token %d", r.Version(1), r.Token())
	}
}

func TestALateGrantAboveTheTokenDoesNotDecide(t *testing.T) {
	r := quorum.NewRound(3, 2)
	r.Grant(0, 2)
	r.Grant(1, 3)
	_ = r.ToRaise()
	r.Grant(2, 4)
	if r.Outcome() != quorum.Open || r.Version(2) != 0 {
		t.Fatalf("outcome %d, version %d", r.Outcome(), r.Version(2))
	}
	lost := r
	lost.Raise(0, false)
	if lost.Outcome() != quorum.Lost {
		t.Errorf("without the raise the outcome is %d", lost.Outcome())
	}
	r.Raise(0, true)
	if r.Outcome() != quorum.Granted || r.Version(2) != 4 {
		t.Errorf("with the raise the outcome is %d, the version %d", r.Outcome(), r.Version(2))
	}
}

func TestARoundIsLostAsSoonAsAQuorumCannotBeReached(t *testing.T) {
	r := quorum.NewRound(5, 3)
	for i, want := range []quorum.Outcome{quorum.Open, quorum.Open, quorum.Lost} {
		if r.Refuse(i); r.Outcome() != want {
			t.Errorf("after %d refusals the outcome is %d, want %d", i+1, r.Outcome(), want)
		}
	}
}

func TestJudge(t *testing.T) {
	const m, u, y, n = quorum.Missing, quorum.Unknown, quorum.Yes, quorum.No
	for _, c := range []struct {
		replies []quorum.Reply
		want    quorum.Verdict
	}{
		{[]quorum.Reply{m, m, m}, quorum.Pending},
		{[]quorum.Reply{y, y, m}, quorum.Confirmed},
		{[]quorum.Reply{y, y, n}, quorum.Confirmed},
		{[]quorum.Reply{n, n, m}, quorum.Refused},
		{[]quorum.Reply{y, n, m}, quorum.Pending},
		{[]quorum.Reply{y, n, u}, quorum.Uncertain},
		{[]quorum.Reply{y, u, u}, quorum.Uncertain},
		{[]quorum.Reply{u, u, m}, quorum.Uncertain},
		{[]quorum.Reply{n, u, m}, quorum.Pending}, // it can still be refused
		{[]quorum.Reply{y, u, m}, quorum.Pending},
	} {
		if got := quorum.Judge(c.replies, 2); got != c.want {
			t.Errorf("%v: verdict %d, want %d", c.replies, got, c.want)
		}
	}
}

func TestQuorumIsTheValueThatEnoughReach(t *testing.T) {
	if got := quorum.Quorum([]int64{5, 1, 9, 7}, 3); got != 5 {
		t.Errorf("three of four reach %d, want 5", got)
	}
	if got := quorum.Quorum([]int64{5, 1}, 3); got != math.MinInt64 {
		t.Errorf("two values are no quorum of three, but reach %d", got)
	}
}

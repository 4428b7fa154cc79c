package access_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sqllock/sqllock/internal/access"
)

var errFails = errors.New("it fails")

// each answers even numbers together and odd ones alone, as text.
func each(reqs []int, alone, together error) (answers []string, calls string, err error) {
	by := func(what string, err error) func([]int) ([]string, error) {
		return func(reqs []int) (out []string, _ error) {
			calls += fmt.Sprint(what, reqs)
			if err != nil {
				return nil, err
			}
			for _, r := range reqs {
				out = append(out, fmt.Sprint(what, r))
			}
			return out, nil
		}
	}
	answers, err = access.Each(reqs, func(r *int) bool { return *r%2 == 0 }, by("a", alone), by("t", together),
		func(err error) error { return fmt.Errorf("partly: %w", err) })
	return answers, calls, err
}

func TestAnswersAreInTheOrderOfTheRequests(t *testing.T) {
	for _, c := range []struct {
		reqs    []int
		answers []string
		calls   string
	}{
		{[]int{4, 1, 2, 3}, []string{"t4", "a1", "t2", "a3"}, "a[1 3]t[4 2]"},
		{[]int{1, 3}, []string{"a1", "a3"}, "a[1 3]"},
		{[]int{2, 4}, []string{"t2", "t4"}, "t[2 4]"},
		{nil, nil, "a[]"},
	} {
		answers, calls, err := each(c.reqs, nil, nil)
		if !slices.Equal(answers, c.answers) || calls != c.calls || err != nil {
			t.Errorf("%v: %v by %s, %v", c.reqs, answers, calls, err)
		}
	}
}

func TestAnErrorReportsAPartialSuccess(t *testing.T) {
	for _, c := range []struct {
		reqs            []int
		alone, together error
		want            string
	}{
		{[]int{1, 2}, errFails, nil, "it fails"},
		{[]int{1, 2}, nil, errFails, "partly: it fails"},
		{[]int{2}, nil, errFails, "it fails"},
		{[]int{1}, errFails, nil, "it fails"},
	} {
		answers, _, err := each(c.reqs, c.alone, c.together)
		if err == nil || err.Error() != c.want || answers != nil {
			t.Errorf("%v: %v, %v; want %s", c.reqs, answers, err, c.want)
		}
	}
}

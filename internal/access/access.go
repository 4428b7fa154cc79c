// Package access divides batches by access: what somebody asks for alone, and what
// together with others, are served by statements of their own.
package access

// Each answers the requests of a batch, in their order: those that are not shared
// by alone and then those that are by together, each with all of its requests at
// once. What has none is not called. partly wraps an error of together after alone
// has done its part.
func Each[R, A any](
	reqs []R, shared func(*R) bool, alone, together func([]R) ([]A, error), partly func(error) error,
) ([]A, error) {
	which := make([]int, 0, len(reqs)) // those that are shared
	for i := range reqs {
		if shared(&reqs[i]) {
			which = append(which, i)
		}
	}
	switch len(which) {
	case 0:
		return alone(reqs)
	case len(reqs):
		return together(reqs)
	}
	answers := make([]A, len(reqs))
	var rest []int
	for i := range reqs {
		if !shared(&reqs[i]) {
			rest = append(rest, i)
		}
	}
	if err := scatter(answers, reqs, rest, alone); err != nil {
		return nil, err
	}
	if err := scatter(answers, reqs, which, together); err != nil {
		return nil, partly(err)
	}
	return answers, nil
}

// scatter answers the requests at which.
func scatter[R, A any](answers []A, reqs []R, which []int, answer func([]R) ([]A, error)) error {
	part := make([]R, len(which))
	for k, i := range which {
		part[k] = reqs[i]
	}
	got, err := answer(part)
	for k := range got {
		answers[which[k]] = got[k]
	}
	return err
}

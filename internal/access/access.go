// Package access divides batches by access. Requests for exclusive access and requests
// for shared access go to the database in separate statements.
package access

// Each answers the requests of a batch in their order. It passes all exclusive requests
// to exclusive, and then all shared requests to combined. It does not call a function
// that has no requests. If combined fails after exclusive has succeeded, Each returns
// partly of the error.
func Each[R, A any](
	reqs []R, shared func(*R) bool, exclusive, combined func([]R) ([]A, error), partly func(error) error,
) ([]A, error) {
	sharedAt := make([]int, 0, len(reqs)) // the indexes of the shared requests
	for i := range reqs {
		if shared(&reqs[i]) {
			sharedAt = append(sharedAt, i)
		}
	}
	switch len(sharedAt) {
	case 0:
		return exclusive(reqs)
	case len(reqs):
		return combined(reqs)
	}
	answers := make([]A, len(reqs))
	var exclusiveAt []int
	for i := range reqs {
		if !shared(&reqs[i]) {
			exclusiveAt = append(exclusiveAt, i)
		}
	}
	if err := scatter(answers, reqs, exclusiveAt, exclusive); err != nil {
		return nil, err
	}
	if err := scatter(answers, reqs, sharedAt, combined); err != nil {
		return nil, partly(err)
	}
	return answers, nil
}

// scatter answers the requests with the given indexes.
func scatter[R, A any](answers []A, reqs []R, indexes []int, answer func([]R) ([]A, error)) error {
	part := make([]R, len(indexes))
	for k, i := range indexes {
		part[k] = reqs[i]
	}
	got, err := answer(part)
	for k := range got {
		answers[indexes[k]] = got[k]
	}
	return err
}

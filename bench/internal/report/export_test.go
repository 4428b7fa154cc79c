package report

// Verdict is that of a goal with these bounds.
func Verdict(atLeast bool, must, aim, value float64, failures int) string {
	return goal{atLeast: atLeast, must: must, aim: aim}.verdict(value, failures)
}

// BeatVerdict is that of the goal for rows per beat.
func BeatVerdict(value float64) string { return rowsPerBeat(postgres).verdict(value, 0) }
